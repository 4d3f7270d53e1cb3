//! Evasions on IP: each is detected, and in mode `ips` a packet that the attack needs is dropped.

use millrace_ips_engine::{Mode, Settings};
use millrace_types::Duration;

use crate::bed::{
    ATTACK, TestBed, datagram, fragment, fragments, geneve, gre, six_in_four, vxlan, with_ident,
};

/// Returns a datagram whose word is split between fragments of 8 bytes.
fn attack() -> Vec<u8> {
    datagram(b"0123 attack 0123456789")
}

#[test]
fn fragments_of_eight_bytes() {
    let mut bed = TestBed::inline();
    let mut packets = fragments(&attack(), 8);
    let last = packets.pop().unwrap();
    assert!(!bed.send_all(packets), "fragments are forwarded until the last");
    assert!(bed.send(last).is_dropped());
    assert!(bed.is_attack_found());
}

#[test]
fn fragments_in_reverse_order() {
    let mut bed = TestBed::inline();
    let mut packets = fragments(&attack(), 8);
    packets.reverse();
    assert!(bed.send_all(packets));
    assert!(bed.is_attack_found());
}

#[test]
fn duplicated_fragments() {
    // In mode `ids`, copies do not matter. In mode `ips`, an overlap refuses the packet, so that no receiver
    // can reassemble it.
    let packets = fragments(&attack(), 8)
        .into_iter()
        .flat_map(|packet| [packet.clone(), packet]);
    let mut bed = TestBed::new(Mode::Ids, ATTACK);
    bed.send_all(packets.clone());
    assert!(bed.is_attack_found());
    assert!(TestBed::inline().send_all(packets));
}

#[test]
fn overlapping_fragments_old_and_new() {
    let attack = attack();
    let payload = &attack[20..];
    for innocent_first in [true, false] {
        let (first, second) = match innocent_first {
            true => (&b"0123 XXX"[..], &payload[8..16]),
            false => (&payload[8..16], &b"0123 XXX"[..]),
        };
        let mut bed = TestBed::inline();
        bed.send(fragment(&attack, 0, true, &payload[..8]));
        bed.send(fragment(&attack, 8, true, first));
        assert!(bed.send(fragment(&attack, 8, true, second)).is_dropped());
        assert!(
            bed.send(fragment(&attack, 16, false, &payload[16..]))
                .is_dropped()
        );
    }
}

#[test]
fn fragments_between_decoys() {
    let mut bed = TestBed::inline();
    let decoy = with_ident(&datagram(b"0123 innocent 0123456789"), 99);
    let mut packets = Vec::new();
    for (packet, decoy) in fragments(&attack(), 8).into_iter().zip(fragments(&decoy, 8)) {
        packets.extend([decoy, packet]);
    }
    assert!(bed.send_all(packets));
    assert!(bed.is_attack_found());
}

#[test]
fn a_missing_fragment_that_comes_late() {
    let mut bed = TestBed::inline();
    let mut packets = fragments(&attack(), 8);
    let late = packets.remove(1);
    assert!(!bed.send_all(packets));
    bed.now = bed.now + Duration::from_secs(30);
    assert!(bed.send(late).is_dropped());
    assert!(bed.is_attack_found());
}

#[test]
fn a_last_fragment_that_was_dropped_and_comes_again() {
    let mut bed = TestBed::inline();
    let mut packets = fragments(&attack(), 8);
    let last = packets.pop().unwrap();
    assert!(!bed.send_all(packets.clone()));
    for seconds in [0, 1, 29, 30] {
        bed.now = bed.now + Duration::from_secs(seconds);
        assert!(bed.send(last.clone()).is_dropped(), "the receiver has the others");
    }
    assert!(bed.send(packets.remove(0)).is_dropped());
    // Fragments of other packets are forwarded, and so is the whole datagram of another packet.
    let other = with_ident(&datagram(b"0123 innocent 0123456789"), 99);
    assert!(!bed.send_all(fragments(&other, 8)));
}

#[test]
fn a_fragment_that_the_receiver_did_not_get_and_comes_again_with_other_data() {
    let attack = attack();
    let payload = &attack[20..];
    let innocent = [&payload[..8], b"0123 nothing 012"].concat();
    let mut first = fragment(&attack, 0, true, &innocent);
    // The first fragment expires on its way, or the receiver discards it because of its checksum.
    let mut expires = first.clone();
    expires[8] = 1;
    expires[10..12].fill(0);
    let checksum = millrace_wire::checksum::internet(&expires[..20]);
    expires[10..12].copy_from_slice(&checksum.to_be_bytes());
    first[10] ^= 0xff;
    for (lost, is_dropped) in [(first, true), (expires, false)] {
        let settings = Settings {
            mode: Mode::Ips,
            checks_checksums: true,
            ..Settings::default()
        };
        let mut bed = TestBed::with(settings, ATTACK);
        assert!(
            !bed.send(fragment(&attack, 24, false, &payload[24..]))
                .is_dropped()
        );
        assert_eq!(bed.send(lost).is_dropped(), is_dropped);
        assert!(bed.send(fragment(&attack, 0, true, &payload[..24])).is_dropped());
    }
}

#[test]
fn attacks_inside_gre_vxlan_geneve_and_six_in_four() {
    let packets = [
        gre(&attack()),
        vxlan(&attack()),
        geneve((50_000, 6081), &attack()),
        geneve((6081, 50_000), &attack()),
        six_in_four(b"0123 attack 0123456789"),
    ];
    for packet in packets {
        let mut bed = TestBed::inline();
        assert!(bed.send(packet.clone()).is_dropped());
        assert!(bed.is_attack_found());
        // Fragments of the outer packet, and fragments inside.
        let mut bed = TestBed::inline();
        assert!(bed.send_all(fragments(&packet, 16)));
        assert!(bed.is_attack_found());
    }
    let mut bed = TestBed::inline();
    assert!(bed.send_all(fragments(&attack(), 8).iter().map(|packet| gre(packet))));
    assert!(bed.is_attack_found());
}

#[test]
fn a_low_ttl_and_source_routes_are_dropped_in_line() {
    let settings = Settings {
        mode: Mode::Ips,
        minimum_ttl: 5,
        ..Settings::default()
    };
    let mut bed = TestBed::with(settings, ATTACK);
    let mut low = datagram(b"decoy");
    low[8] = 4;
    assert!(bed.send(low).is_dropped());
    assert!(!bed.send(datagram(b"data")).is_dropped());
    // A loose source route (RFC 791, section 3.1), in a header of 28 bytes.
    let mut routed = datagram(b"data");
    routed.splice(20..20, [131, 7, 4, 10, 0, 0, 9, 0]);
    routed[0] = 0x47;
    let size = routed.len() as u16;
    routed[2..4].copy_from_slice(&size.to_be_bytes());
    assert!(bed.send(routed.clone()).is_dropped());
    assert!(!TestBed::new(Mode::Ids, ATTACK).send(routed).is_dropped());
}
