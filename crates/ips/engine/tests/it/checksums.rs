//! Rules over checksums.

use millrace_ips_engine::{Mode, Settings};
use millrace_wire::ip::Pseudo;
use millrace_wire::{IpProto, checksum};

use crate::bed::{HOST_A, HOST_B, Segment, TestBed, datagram, fragments, ip, six_in_four};

/// Size of the header of IPv4.
const IP: usize = 20;

/// Returns an echo request.
fn echo() -> Vec<u8> {
    let mut message = vec![8, 0, 0, 0, 0, 1, 0, 1];
    let sum = checksum::internet(&message);
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    ip((HOST_A, HOST_B), IpProto::ICMPV4, &message)
}

/// Returns a packet of IPv6 with a right checksum at `at` of its payload.
fn six(protocol: IpProto, mut payload: Vec<u8>, at: usize) -> Vec<u8> {
    let inner = &six_in_four(b"x")[IP..];
    let mut header = inner[..40].to_vec();
    let pseudo = Pseudo::V6 {
        src: "2001:db8::1".parse().unwrap(),
        dst: "2001:db8::2".parse().unwrap(),
    };
    let sum = pseudo.sum(protocol, payload.len()).add_bytes(&payload).checksum();
    payload[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    header[4..6].copy_from_slice(&(payload.len() as u16).to_be_bytes());
    header[6] = protocol.0;
    [header, payload].concat()
}

#[test]
fn a_rule_over_a_checksum_holds_on_its_protocol_where_checksums_are_compared() {
    let mut syn = vec![0; 20];
    (syn[1], syn[3], syn[12], syn[13]) = (1, 80, 0x50, 2);
    let cases = [
        ("ipv4", datagram(b"x"), 10),
        ("tcpv4", Segment::default().packet(), IP + 16),
        ("udpv4", datagram(b"x"), IP + 6),
        ("icmpv4", echo(), IP + 2),
        ("tcpv6", six(IpProto::TCP, syn, 16), 40 + 16),
        ("udpv6", six_in_four(b"x")[IP..].to_vec(), 40 + 6),
        (
            "icmpv6",
            six(IpProto::ICMPV6, vec![128, 0, 0, 0, 0, 1, 0, 1], 2),
            40 + 2,
        ),
    ];
    let rule = |(at, (name, ..)): (usize, &(&str, Vec<u8>, usize))| {
        let sid = 2 * at;
        format!(
            "alert ip any any -> any any ({name}-csum:valid; sid:{};)\n\
             alert ip any any -> any any ({name}-csum:\"invalid\"; sid:{};)\n",
            sid + 1,
            sid + 2
        )
    };
    let text: String = cases.iter().enumerate().map(rule).collect();
    for (at, (name, packet, place)) in cases.iter().enumerate() {
        for (compares, is_wrong) in [(true, false), (true, true), (false, true)] {
            let settings = Settings {
                mode: Mode::Ids,
                checks_checksums: compares,
                ..Settings::default()
            };
            let mut bed = TestBed::with(settings, &text);
            let mut packet = packet.clone();
            packet[*place] ^= u8::from(is_wrong);
            bed.send(packet);
            let is_found_wrong = compares && is_wrong;
            let mut expected = vec![2 * at as u32 + 1 + u32::from(is_found_wrong)];
            // Each packet of IPv4 has a header with a checksum, too.
            if name.ends_with('4') && *name != "ipv4" {
                expected.insert(0, 1);
            } else if *name == "ipv4" {
                expected.push(5);
            }
            let found: Vec<u32> = bed.sids().into_iter().collect();
            assert_eq!(found, expected, "{name}, compared: {compares}, wrong: {is_wrong}");
        }
    }
}

#[test]
fn fragments_have_no_checksum_of_their_transport_protocol_before_they_are_whole() {
    let text = "alert ip any any -> any any (udpv4-csum:invalid; sid:1;)\n\
        alert ip any any -> any any (udpv4-csum:valid; sid:2;)\n";
    let settings = Settings {
        mode: Mode::Ids,
        checks_checksums: true,
        ..Settings::default()
    };
    let mut bed = TestBed::with(settings, text);
    let parts = fragments(&datagram(b"a datagram of two fragments"), 16);
    for part in &parts[..parts.len() - 1] {
        bed.send(part.clone());
        assert_eq!(bed.alerts(), 0);
    }
    bed.send(parts[parts.len() - 1].clone());
    assert_eq!(bed.sids().into_iter().collect::<Vec<_>>(), [2]);
}
