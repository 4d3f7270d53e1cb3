//! Evasions on TCP: each is detected, and in mode `ips` a packet that the attack needs is dropped or
//! normalised.

use millrace_ips_engine::{Mode, Policies, Settings, Verdict};
use millrace_wire::tcp::flags::{ACK, FIN, PSH, RST, SYN, URG};

use crate::bed::{
    ATTACK, CLIENT, HOST_A, SERVER, Segment, TestBed, acknowledgment, data, fragments, handshake, with_ident,
};

/// Sends the word after decoys. The rule must match, and the segment that completes the word must be dropped.
fn finds_after(mut bed: TestBed, decoys: impl IntoIterator<Item = Vec<u8>>) {
    bed.send_all(decoys);
    let first = bed.send(data(0, b"att"));
    let second = bed.send(data(3, b"ack"));
    assert!(bed.is_attack_found());
    assert!(first.is_dropped() || second.is_dropped());
}

fn established() -> TestBed {
    let mut bed = TestBed::inline();
    bed.handshake();
    bed
}

#[test]
fn segments_of_one_byte_in_any_order() {
    let bytes: Vec<Vec<u8>> = (0..6)
        .map(|at| data(at, &b"attack"[at as usize..][..1]))
        .collect();
    for order in [[0, 1, 2, 3, 4, 5], [5, 4, 3, 2, 1, 0], [3, 0, 5, 1, 4, 2]] {
        let mut bed = established();
        let mut dropped = Vec::new();
        for at in order {
            dropped.push(bed.send(bytes[at].clone()).is_dropped());
        }
        assert!(bed.is_attack_found());
        // The segment that completes the word is the one that is dropped.
        assert_eq!(dropped, [false, false, false, false, false, true]);
    }
}

#[test]
fn a_dropped_segment_does_not_pass_as_a_retransmission() {
    let mut bed = established();
    assert!(bed.send(data(0, b"attack")).is_dropped());
    assert!(bed.send(data(0, b"attack")).is_dropped());
    assert!(bed.send(data(0, b"harmless")).is_dropped());
    assert!(
        bed.send(acknowledgment(0)).is_dropped(),
        "the flow is dropped in both directions"
    );
}

#[test]
fn overlapping_data_old_and_new() {
    // The later copy is rewritten to equal the first copy. The attack is in either of the two.
    let mut bed = established();
    bed.send(data(2, b"XXXX"));
    let sent = bed.send(data(0, b"attack"));
    assert_eq!(
        (sent.verdict, &sent.bytes[40..]),
        (Verdict::Rewritten, &b"atXXXX"[..])
    );
    let mut bed = established();
    bed.send(data(2, b"tack"));
    let sent = bed.send(data(0, b"atXXXX"));
    assert!(sent.is_dropped() && bed.is_attack_found());
}

#[test]
fn a_segment_with_a_wrong_checksum_is_dropped_in_line() {
    let settings = Settings {
        mode: Mode::Ips,
        checks_checksums: true,
        ..Settings::default()
    };
    let mut bed = TestBed::with(settings, ATTACK);
    bed.handshake();
    let mut decoy = data(0, b"XXX");
    decoy[36] ^= 0xff;
    assert!(bed.send(decoy).is_dropped());
    finds_after(bed, []);
}

#[test]
fn decoys_outside_the_window_without_ack_or_with_an_old_timestamp() {
    let far = data(100_000, b"XXX");
    let no_ack = Segment {
        flags: PSH,
        data: b"XXX",
        ..Segment::default()
    };
    let future = Segment {
        ack: SERVER + 1_000_000,
        data: b"XXX",
        ..Segment::default()
    };
    for decoy in [far, no_ack.packet(), future.packet()] {
        let mut bed = established();
        assert!(bed.send(decoy).is_dropped());
        finds_after(bed, []);
    }
}

#[test]
fn a_reset_fin_or_syn_inserted() {
    let reset = |seq| Segment {
        flags: RST,
        seq,
        ..Segment::default()
    };
    let syn = Segment {
        flags: SYN,
        seq: CLIENT + 5000,
        ack: 0,
        ..Segment::default()
    };
    let fin = Segment {
        flags: FIN | ACK,
        seq: CLIENT + 100_000,
        ..Segment::default()
    };
    for decoy in [reset(CLIENT + 5000), reset(CLIENT - 700), syn, fin] {
        let mut bed = established();
        assert!(bed.send(decoy.packet()).is_dropped(), "{decoy:?}");
        finds_after(bed, []);
    }
}

#[test]
fn data_in_a_syn() {
    let mut bed = TestBed::inline();
    let [_, syn_ack, ack] = handshake();
    let syn = Segment {
        flags: SYN,
        seq: CLIENT,
        ack: 0,
        data: b"XXX",
        ..Segment::default()
    };
    assert_eq!(bed.send(syn.packet()).verdict, Verdict::Rewritten);
    bed.send_all([syn_ack, ack]);
    finds_after(bed, []);
}

#[test]
fn a_split_handshake_and_a_simultaneous_open() {
    let client = |flags, ack| Segment {
        flags,
        seq: CLIENT,
        ack,
        ..Segment::default()
    };
    let server = |flags, seq, ack| Segment {
        from_client: false,
        flags,
        seq,
        ack,
        ..Segment::default()
    };
    let split = [
        client(SYN, 0),
        server(ACK, SERVER, CLIENT + 1),
        server(SYN, SERVER, 0),
        client(SYN | ACK, SERVER + 1),
        server(ACK, SERVER + 1, CLIENT + 1),
    ];
    let simultaneous = [
        client(SYN, 0),
        server(SYN, SERVER, 0),
        client(SYN | ACK, SERVER + 1),
        server(SYN | ACK, SERVER, CLIENT + 1),
        server(ACK, SERVER + 1, CLIENT + 1),
    ];
    for segments in [split, simultaneous] {
        let packets = segments.iter().map(Segment::packet);
        finds_after(TestBed::inline(), packets);
    }
}

#[test]
fn server_data_before_the_handshake_ends() {
    // CVE-2018-6794: the server answers before the client acknowledged, and then resets.
    let mut bed = TestBed::inline();
    let [syn, syn_ack, ack] = handshake();
    bed.send_all([syn, syn_ack]);
    let early = Segment {
        from_client: false,
        seq: SERVER + 1,
        ack: CLIENT + 1,
        data: b"attack",
        ..Segment::default()
    };
    assert!(bed.send(early.packet()).is_dropped());
    bed.send(ack);
    assert!(bed.send(early.packet()).is_dropped() && bed.is_attack_found());
}

#[test]
fn urgent_bytes_stay_in_line() {
    let mut bed = established();
    let urgent = Segment {
        flags: ACK | URG,
        data: b"at",
        urgent: 1,
        ..Segment::default()
    };
    let sent = bed.send(urgent.packet());
    assert_eq!(sent.verdict, Verdict::Rewritten);
    assert_eq!(
        (sent.bytes[33] & URG as u8, &sent.bytes[38..40]),
        (0, &[0, 0][..])
    );
    assert!(bed.send(data(2, b"tack")).is_dropped() && bed.is_attack_found());
}

#[test]
fn windows_of_zero_and_one() {
    let mut bed = established();
    for (at, window) in [0u16, 1, 0, 1, 1].into_iter().enumerate() {
        let update = Segment {
            from_client: false,
            seq: SERVER + 1,
            ack: CLIENT + 1 + at as u32,
            window,
            ..Segment::default()
        };
        bed.send(update.packet());
        assert!(!bed.send(data(at as u32, &b"attack"[at..=at])).is_dropped());
    }
    bed.send(acknowledgment(5));
    assert!(bed.send(data(5, b"k")).is_dropped() && bed.is_attack_found());
}

#[test]
fn one_sided_routes_are_followed_if_asked() {
    let settings = Settings {
        mode: Mode::Ips,
        accepts_async: true,
        ..Settings::default()
    };
    let mut bed = TestBed::with(settings, ATTACK);
    let [syn, _, ack] = handshake();
    finds_after_one_side(&mut bed, [syn, ack]);
}

#[test]
fn data_are_dropped_if_the_answer_to_the_syn_was_not_seen() {
    let settings = Settings {
        mode: Mode::Ips,
        policies: Policies::closed(),
        ..Settings::default()
    };
    let mut bed = TestBed::with(settings, ATTACK);
    let [syn, _, ack] = handshake();
    assert!(!bed.send(syn).is_dropped() && !bed.send(ack).is_dropped());
    assert!(bed.send(data(0, b"att")).is_dropped());
    assert!(bed.send(data(3, b"ack")).is_dropped());
}

fn finds_after_one_side(bed: &mut TestBed, packets: [Vec<u8>; 2]) {
    bed.send_all(packets);
    bed.send(data(0, b"att"));
    assert!(bed.send(data(3, b"ack")).is_dropped() && bed.is_attack_found());
}

#[test]
fn a_connection_without_handshake_is_dropped_in_line() {
    let mut bed = TestBed::inline();
    assert!(bed.send(data(0, b"att")).is_dropped());
    assert!(bed.send(data(3, b"ack")).is_dropped());
}

#[test]
fn the_client_is_the_end_that_sends_the_syn() {
    // Reordered: the answer to the SYN comes first.
    let rule = r#"alert tcp any any -> any any (msg:"client"; flow:to_server,established; content:"attack"; sid:1;)"#;
    for mode in [Mode::Ids, Mode::Ips] {
        let mut bed = TestBed::new(mode, rule);
        let [syn, syn_ack, ack] = handshake();
        bed.send_all([syn_ack.clone(), syn, syn_ack, ack]);
        bed.send(data(0, b"attack"));
        bed.send(acknowledgment(6));
        bed.finish();
        assert!(bed.is_attack_found());
    }
}

#[test]
fn a_port_that_is_used_again_while_closing() {
    let mut bed = established();
    let fin = |from_client, seq, ack| Segment {
        from_client,
        flags: FIN | ACK,
        seq,
        ack,
        ..Segment::default()
    };
    bed.send(fin(true, CLIENT + 1, SERVER + 1).packet());
    bed.send(fin(false, SERVER + 1, CLIENT + 2).packet());
    // The new connection begins where the old one ended.
    let syn = Segment {
        flags: SYN,
        seq: CLIENT + 50_000,
        ack: 0,
        ..Segment::default()
    };
    let syn_ack = Segment {
        from_client: false,
        flags: SYN | ACK,
        seq: SERVER,
        ack: CLIENT + 50_001,
        ..Segment::default()
    };
    let word = |at: u32, data| Segment {
        seq: CLIENT + 50_001 + at,
        data,
        ..Segment::default()
    };
    bed.send_all([syn.packet(), syn_ack.packet(), word(0, b"").packet()]);
    bed.send(word(0, b"att").packet());
    assert!(bed.send(word(3, b"ack").packet()).is_dropped() && bed.is_attack_found());
}

#[test]
fn segments_in_fragments() {
    let mut bed = established();
    bed.send_all(fragments(&data(0, b"0123456789att"), 24));
    assert!(bed.send_all(fragments(&data(13, b"ack 0123456789 0123456789"), 24)));
    assert!(bed.is_attack_found());
}

#[test]
fn a_segment_in_fragments_that_would_be_changed_is_dropped() {
    let urgent = Segment {
        flags: ACK | URG,
        urgent: 6,
        data: b"GET /eXvil HTTP/1.1\r\nHost: a\r\n\r\n",
        ..Segment::default()
    };
    let mut bed = established();
    let mut packets = fragments(&urgent.packet(), 32);
    let last = packets.pop().unwrap();
    assert!(!bed.send_all(packets));
    assert!(bed.send(last.clone()).is_dropped());
    assert!(bed.send(last).is_dropped(), "the receiver has the first fragment");
    // Data that differ from the first copy.
    let mut bed = established();
    bed.send(data(0, b"harmless 0123456789"));
    let mut packets = fragments(&data(0, b"harmFULL 0123456789"), 24);
    let last = packets.pop().unwrap();
    assert!(!bed.send_all(packets) && bed.send(last).is_dropped());
    let again = with_ident(&data(0, b"harmless 0123456789"), 7);
    assert!(!bed.send_all(fragments(&again, 24)), "the same data pass");
}

#[test]
fn a_reset_that_the_receiver_ignores_and_the_old_syn() {
    // The first reset has a number that the receiver does not expect, the second one expires on its way.
    for reset in [CLIENT + 2, CLIENT + 1] {
        let mut bed = established();
        let segment = |flags, seq| Segment {
            flags,
            seq,
            ack: 0,
            ..Segment::default()
        };
        bed.send(segment(RST, reset).packet());
        bed.send(segment(SYN, CLIENT).packet());
        // The receiver answers with an acknowledgment (RFC 5961, section 4).
        bed.send(acknowledgment(0));
        let is_dropped = bed.send(data(0, b"att")).is_dropped();
        assert!(bed.send(data(3, b"ack")).is_dropped(), "reset {reset}");
        assert_eq!(is_dropped, reset == CLIENT + 1);
    }
}

#[test]
fn data_or_unusual_bits_in_the_old_syn_after_a_reset() {
    const FAST_OPEN: &[u8] = &[34, 6, 1, 2, 3, 4, 1, 1];
    let mut bed = established();
    let segment = |flags, seq| Segment {
        flags,
        seq,
        ack: 0,
        ..Segment::default()
    };
    bed.send(segment(RST, CLIENT + 1).packet());
    let syn = segment(SYN, CLIENT);
    for options in [&[][..], FAST_OPEN] {
        let with_data = Segment {
            options,
            data: b"harmless",
            ..syn.clone()
        };
        assert!(bed.send(with_data.packet()).is_dropped());
    }
    let with_option = Segment {
        options: &[99, 4, 1, 2],
        ..syn.clone()
    };
    let sent = bed.send(with_option.packet());
    assert_eq!(
        (sent.verdict, &sent.bytes[40..]),
        (Verdict::Rewritten, &[1; 4][..])
    );
    assert_eq!(bed.send(syn.packet()).verdict, Verdict::Pass);
}

#[test]
fn a_fin_that_expires_on_its_way_and_the_old_syn() {
    let mut bed = established();
    let fin = Segment {
        flags: FIN | ACK,
        seq: CLIENT + 7,
        ..Segment::default()
    };
    let syn = Segment {
        flags: SYN,
        seq: CLIENT,
        ack: 0,
        ..Segment::default()
    };
    let end = Segment {
        from_client: false,
        flags: FIN | ACK,
        seq: SERVER + 1,
        ack: CLIENT + 4,
        ..Segment::default()
    };
    bed.send(data(0, b"GET"));
    // The receiver, which these two segments do not reach, still waits for the byte at offset 3.
    bed.send_all([data(3, b"xxx"), fin.packet(), end.packet(), syn.packet()]);
    assert!(!bed.send(data(0, b"GET")).is_dropped(), "the receiver has these");
    assert!(bed.send(data(3, b"att")).is_dropped());
    assert!(bed.send(data(6, b"ack")).is_dropped());
}

#[test]
fn padding_past_the_depth_hides_what_follows_from_the_stream_only() {
    let settings = Settings {
        mode: Mode::Ips,
        stream_depth: 100,
        ..Settings::default()
    };
    let packets = r#"drop tcp-pkt any any -> any any (msg:"packet"; content:"attack"; sid:2;)"#;
    let mut bed = TestBed::with(settings, &format!("{ATTACK}\n{packets}"));
    bed.handshake();
    bed.send(data(0, &[b'x'; 100]));
    bed.send(data(100, b"att"));
    assert!(!bed.send(data(103, b"ack")).is_dropped());
    assert!(!bed.is_attack_found());
    // A rule over packets still finds a word inside one packet.
    assert!(bed.send(data(106, b"attack")).is_dropped());
}

#[test]
fn packets_that_are_dropped_first_hide_no_connection_from_rules_over_addresses() {
    let rule = format!("drop tcp {HOST_A} any -> any any (msg:\"listed\"; sid:1;)");
    let [syn, ..] = handshake();
    let mut wrong_checksum = syn.clone();
    wrong_checksum[36] ^= 0xff;
    let midstream = Segment::default().packet();
    for decoy in [wrong_checksum, midstream] {
        let settings = Settings {
            mode: Mode::Ips,
            checks_checksums: true,
            policies: Policies::closed(),
            ..Settings::default()
        };
        let mut bed = TestBed::with(settings, &rule);
        assert!(bed.send(decoy).is_dropped());
        assert!(!bed.is_attack_found(), "the decoy is not inspected");
        assert!(bed.send(syn.clone()).is_dropped());
        assert!(bed.is_attack_found());
    }
}
