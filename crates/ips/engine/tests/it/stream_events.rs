//! Each event of the TCP engine and of the packet decoder has packets that raise it, in both modes; usual connections raise none.

use millrace_ips_engine::packet::events::{DECODE_EVENTS, STREAM_EVENTS};
use millrace_ips_engine::{Mode, Settings};
use millrace_wire::tcp::flags::{ACK, FIN, PSH, RST, SYN};

use crate::bed::{CLIENT, SERVER, Segment, TestBed, data, fragment, fragments, handshake};

fn from_client(flags: u16, seq: u32, ack: u32, data: &[u8]) -> Vec<u8> {
    Segment {
        flags,
        seq,
        ack,
        data,
        ..Segment::default()
    }
    .packet()
}

fn from_server(flags: u16, seq: u32, ack: u32, data: &[u8]) -> Vec<u8> {
    Segment {
        from_client: false,
        flags,
        seq,
        ack,
        data,
        ..Segment::default()
    }
    .packet()
}

/// Returns the packets of a connection after its handshake.
fn established(packets: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    handshake().into_iter().chain(packets).collect()
}

/// Returns the SYN, the answers to it, and other packets.
fn answered(packets: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    handshake().into_iter().take(2).chain(packets).collect()
}

/// Returns the packets that raise an event; none if there is no such event.
fn packets(event: &str) -> Vec<Vec<u8>> {
    let [syn, syn_ack, _] = handshake();
    let (c, s) = (CLIENT + 1, SERVER + 1);
    let client_fin = || from_client(FIN | ACK, c, s, &[]);
    let server_fin = || from_server(FIN | ACK, s, c, &[]);
    let stamped = |seq: u32, time: u8, data: &'static [u8]| {
        Segment {
            seq,
            data,
            options: &[1, 1, 8, 10, 0, 0, 0, time, 0, 0, 0, 0],
            ..Segment::default()
        }
        .packet()
    };
    match event {
        "3whs_ack_in_wrong_dir" => answered(vec![from_server(ACK, s, c, &[])]),
        "3whs_ack_data_inject" => answered(vec![from_server(ACK | PSH, s, c, b"x")]),
        "3whs_right_seq_wrong_ack_evasion" => answered(vec![from_client(ACK, c, s + 7, &[])]),
        "3whs_wrong_seq_wrong_ack" => answered(vec![from_client(ACK, c + 7, s + 7, &[])]),
        "3whs_synack_in_wrong_direction" => vec![syn, from_client(SYN | ACK, CLIENT, s, &[])],
        "3whs_synack_resend_with_different_ack" => answered(vec![from_server(SYN | ACK, SERVER, c + 5, &[])]),
        "3whs_synack_resend_with_diff_seq" => answered(vec![from_server(SYN | ACK, SERVER + 5, c, &[])]),
        "3whs_synack_flood" => answered(
            (1..9)
                .map(|at| from_server(SYN | ACK, SERVER + 5 * at, c, &[]))
                .collect(),
        ),
        "3whs_synack_toserver_on_syn_recv" => answered(vec![from_client(SYN | ACK, CLIENT, s, &[])]),
        "3whs_synack_with_wrong_ack" => vec![syn, from_server(SYN | ACK, SERVER, c + 5, &[])],
        "3whs_synack_tfo_data_ignored" => {
            let fast = Segment {
                flags: SYN,
                seq: CLIENT,
                ack: 0,
                data: b"early",
                options: &[34, 6, 1, 2, 3, 4, 1, 1],
                ..Segment::default()
            };
            vec![fast.packet(), syn_ack]
        }
        "3whs_syn_resend_diff_seq_on_syn_recv" => answered(vec![from_client(SYN, CLIENT + 9, 0, &[])]),
        "3whs_syn_toclient_on_syn_recv" => answered(vec![from_server(SYN, SERVER + 9, 0, &[])]),
        "4whs_synack_with_wrong_ack" => {
            vec![
                syn,
                from_server(SYN, SERVER, 0, &[]),
                from_client(SYN | ACK, CLIENT, s + 5, &[]),
            ]
        }
        "4whs_synack_with_wrong_syn" => {
            vec![
                syn,
                from_server(SYN, SERVER, 0, &[]),
                from_client(SYN | ACK, CLIENT + 5, s, &[]),
            ]
        }
        "4whs_wrong_seq" | "4whs_invalid_ack" => {
            let (seq, ack) = if event == "4whs_wrong_seq" {
                (s + 5, c)
            } else {
                (s, c + 5)
            };
            vec![
                syn,
                from_server(SYN, SERVER, 0, &[]),
                from_client(SYN | ACK, CLIENT, s, &[]),
                from_server(ACK, seq, ack, &[]),
            ]
        }
        "est_packet_out_of_window" => established(vec![from_client(ACK, c + 900_000, s, b"x")]),
        "est_pkt_before_last_ack" | "reassembly_segment_before_base_seq" | "pkt_retransmission" => {
            established(vec![
                data(0, b"abc"),
                from_server(ACK, s, c + 3, &[]),
                data(0, b"abc"),
            ])
        }
        "est_synack_resend" => established(vec![syn_ack]),
        "est_synack_resend_with_different_ack" => {
            established(vec![from_server(SYN | ACK, SERVER, c + 5, &[])])
        }
        "est_synack_resend_with_diff_seq" => established(vec![from_server(SYN | ACK, SERVER + 5, c, &[])]),
        "est_synack_toserver" => established(vec![from_client(SYN | ACK, CLIENT, s, &[])]),
        "est_syn_resend" => established(vec![syn]),
        "est_syn_resend_diff_seq" => established(vec![from_client(SYN, CLIENT + 5, 0, &[])]),
        "est_syn_toclient" => established(vec![from_server(SYN, SERVER + 5, 0, &[])]),
        "est_invalid_ack" | "pkt_invalid_ack" => established(vec![from_client(ACK, c, s + 900, b"x")]),
        "fin_invalid_ack" => established(vec![from_client(FIN | ACK, c, s + 900, &[])]),
        "fin_out_of_window" => established(vec![from_client(FIN | ACK, c + 900_000, s, &[])]),
        "fin_syn" => established(vec![from_client(FIN | SYN, c, s, &[])]),
        "fin_but_no_session" => vec![client_fin()],
        "rst_but_no_session" => vec![from_client(RST, c, 0, &[])],
        "rst_invalid_ack" => established(vec![from_client(RST | ACK, c, s + 900, &[])]),
        "closewait_ack_out_of_window" => established(vec![client_fin(), from_client(ACK, c + 900, s, &[])]),
        "closewait_fin_out_of_window" => established(vec![
            client_fin(),
            from_server(FIN | ACK, s + 900_000, c + 1, &[]),
        ]),
        "closewait_invalid_ack" => established(vec![client_fin(), from_server(ACK, s, c + 900, &[])]),
        "closewait_pkt_before_last_ack" => established(vec![
            from_server(ACK | PSH, s, c, b"abc"),
            from_client(FIN | ACK, c, s + 3, &[]),
            from_server(ACK | PSH, s, c + 1, b"abc"),
        ]),
        "fin1_ack_wrong_seq" => established(vec![server_fin(), from_server(ACK, s + 900, c, &[])]),
        "fin1_fin_wrong_seq" => established(vec![
            server_fin(),
            from_client(FIN | ACK, c + 900_000, s + 1, &[]),
        ]),
        "fin1_invalid_ack" => established(vec![server_fin(), from_client(ACK, c, s + 900, &[])]),
        "fin2_ack_wrong_seq" | "fin2_fin_wrong_seq" | "fin2_invalid_ack" => established(vec![
            server_fin(),
            from_client(ACK, c, s + 1, &[]),
            match event {
                "fin2_ack_wrong_seq" => from_server(ACK, s + 900, c, &[]),
                "fin2_fin_wrong_seq" => from_client(FIN | ACK, c + 900_000, s + 1, &[]),
                _ => from_client(ACK, c, s + 900, &[]),
            },
        ]),
        "closing_ack_wrong_seq" | "closing_invalid_ack" => established(vec![
            server_fin(),
            from_client(FIN | ACK, c, s, &[]),
            match event {
                "closing_ack_wrong_seq" => from_client(ACK, c + 900, s, &[]),
                _ => from_client(ACK, c + 1, s + 900, &[]),
            },
        ]),
        "lastack_ack_wrong_seq" | "lastack_invalid_ack" => established(vec![
            client_fin(),
            from_server(FIN | ACK, s, c + 1, &[]),
            match event {
                "lastack_ack_wrong_seq" => from_client(ACK, c + 900, s, &[]),
                _ => from_client(ACK, c + 1, s + 900, &[]),
            },
        ]),
        "shutdown_syn_resend" => established(vec![server_fin(), syn]),
        "timewait_ack_wrong_seq" | "timewait_invalid_ack" => established(vec![
            server_fin(),
            from_client(FIN | ACK, c, s + 1, &[]),
            match event {
                "timewait_ack_wrong_seq" => from_client(ACK, c + 900, s + 1, &[]),
                _ => from_client(ACK, c + 1, s + 900, &[]),
            },
        ]),
        "pkt_invalid_timestamp" => {
            let stamped_syn = |from_client: bool| Segment {
                from_client,
                flags: if from_client { SYN } else { SYN | ACK },
                seq: if from_client { CLIENT } else { SERVER },
                ack: if from_client { 0 } else { c },
                options: &[1, 1, 8, 10, 0, 0, 0, 5, 0, 0, 0, 0],
                ..Segment::default()
            };
            vec![
                stamped_syn(true).packet(),
                stamped_syn(false).packet(),
                stamped(c, 9, b""),
                stamped(c, 3, b"x"),
            ]
        }
        "pkt_broken_ack" => established(vec![from_client(PSH, c, s, b"x")]),
        "suspected_rst_inject" => established(vec![
            from_server(RST | ACK, s, c, &[]),
            from_client(ACK | PSH, c, s, b"x"),
        ]),
        "reassembly_overlap_different_data" => established(vec![data(0, b"abc"), data(0, b"xyz")]),
        "reassembly_seq_gap" => established(vec![
            data(100, b"abc"),
            from_server(ACK, s, c + 103, &[]),
            data(103, b"abc"),
            from_client(FIN | ACK, c + 106, s, &[]),
            from_server(FIN | ACK, s, c + 107, &[]),
        ]),
        _ => Vec::new(),
    }
}

#[test]
fn each_event_of_the_tcp_engine_is_raised_in_both_modes() {
    let mut missing = Vec::new();
    for event in STREAM_EVENTS {
        let text = format!("alert tcp any any -> any any (stream-event:{event}; sid:1;)");
        for mode in [Mode::Ids, Mode::Ips] {
            // Data before the end of the handshake are suspicious in line only.
            let is_inline_only = *event == "3whs_ack_data_inject";
            let mut bed = TestBed::new(mode, &text);
            bed.send_all(packets(event));
            if bed.sids().contains(&1) == (is_inline_only && mode == Mode::Ids) {
                missing.push((*event, mode));
            }
        }
    }
    assert_eq!(missing, []);
}

#[test]
fn a_usual_connection_has_no_events() {
    let rule = |(at, event): (usize, &&str)| {
        format!(
            "alert tcp any any -> any any (stream-event:{event}; sid:{};)\n",
            at + 1
        )
    };
    let mut text: String = STREAM_EVENTS.iter().enumerate().map(rule).collect();
    let rule = |(at, event): (usize, &&str)| {
        format!(
            "alert pkthdr any any -> any any (decode-event:{event}; sid:{};)\n",
            at + 1000
        )
    };
    text += &DECODE_EVENTS.iter().enumerate().map(rule).collect::<String>();
    let (c, s) = (CLIENT + 1, SERVER + 1);
    for mode in [Mode::Ids, Mode::Ips] {
        for ends in [
            [
                from_client(FIN | ACK, c + 3, s + 2, &[]),
                from_server(FIN | ACK, s + 2, c + 4, &[]),
                from_client(ACK, c + 4, s + 3, &[]),
            ],
            [
                from_server(FIN | ACK, s + 2, c + 3, &[]),
                from_client(FIN | ACK, c + 3, s + 3, &[]),
                from_server(ACK, s + 3, c + 4, &[]),
            ],
        ] {
            let mut bed = TestBed::new(mode, &text);
            bed.send_all(established(vec![
                data(0, b"abc"),
                from_server(ACK, s, c + 3, &[]),
                from_server(ACK | PSH, s, c + 3, b"xy"),
                from_client(ACK, c + 3, s + 2, &[]),
            ]));
            bed.send_all(ends);
            assert_eq!(bed.sids().into_iter().collect::<Vec<_>>(), [0; 0], "{mode:?}");
        }
    }
}

#[test]
fn packets_that_are_not_decoded_raise_alerts_and_are_dropped_in_line_by_a_rule() {
    let text = "alert pkthdr any any -> any any (decode-event:ipv4.trunc_pkt; sid:1;)\n\
        drop pkthdr any any -> any any (decode-event:ipv4.opt_malformed; sid:2;)\n\
        alert ip any any -> any any (sid:3;)\n\
        alert pkthdr any any -> any any (decode-event:ipv4.frag_overlap; sid:4;)\n";
    for mode in [Mode::Ids, Mode::Ips] {
        let settings = Settings {
            mode,
            ..Settings::default()
        };
        let mut bed = TestBed::with(settings, text);
        let mut cut = data(0, b"abc");
        cut.truncate(30);
        bed.send(cut);
        // The rule over addresses alone is not evaluated on what is no packet.
        assert_eq!(bed.sids().into_iter().collect::<Vec<_>>(), [1], "{mode:?}");
        let malformed = vec![
            0x46, 0, 0, 24, 0, 1, 0, 0, 64, 250, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, 7, 3, 3, 0,
        ];
        assert_eq!(bed.send(malformed).is_dropped(), mode == Mode::Ips);
        let whole = crate::bed::datagram(&[7; 40]);
        let mut parts = fragments(&whole, 16);
        parts.insert(1, fragment(&whole, 8, true, &[9; 16]));
        bed.send_all(parts);
        let expected = [1, 2, 3, 4];
        assert_eq!(bed.sids().into_iter().collect::<Vec<_>>(), expected, "{mode:?}");
    }
}

#[test]
fn a_rule_over_events_of_a_cut_transport_header_may_ask_for_its_protocol_and_addresses() {
    let text = "alert tcp 10.0.0.1 any -> any any (decode-event:tcp.pkt_too_small; sid:1;)\n\
        alert udp any any -> 10.0.0.2 any (decode-event:udp.hlen_too_small; sid:2;)\n\
        alert udp any any -> any any (decode-event:tcp.pkt_too_small; sid:3;)\n\
        alert tcp 10.0.0.9 any -> any any (decode-event:tcp.pkt_too_small; sid:4;)\n\
        alert tcp any any -> any 80 (decode-event:tcp.pkt_too_small; sid:5;)\n\
        alert udp [2001:db8::1] any -> any any (decode-event:udp.hlen_too_small; sid:6;)\n";
    let v4 = |protocol: u8, size: u8| {
        let header = [
            0x45,
            0,
            0,
            20 + size,
            0,
            1,
            0,
            0,
            64,
            protocol,
            0,
            0,
            10,
            0,
            0,
            1,
            10,
            0,
            0,
            2,
        ];
        [&header[..], &vec![0; usize::from(size)]].concat()
    };
    let mut v6 = vec![0x60, 0, 0, 0, 0, 5, 17, 64];
    for last in [1, 2] {
        v6.extend([0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last]);
    }
    v6.extend([0; 5]);
    for mode in [Mode::Ids, Mode::Ips] {
        let settings = Settings {
            mode,
            ..Settings::default()
        };
        let mut bed = TestBed::with(settings, text);
        bed.send_all([v4(6, 10), v4(17, 7), v6.clone()]);
        assert_eq!(bed.sids().into_iter().collect::<Vec<_>>(), [1, 2, 6], "{mode:?}");
    }
}

#[test]
fn a_connection_is_established_behind_the_acknowledgment_that_ends_its_handshake() {
    // The numbers of the packets that a rule matches; a rule over packets matches each.
    let matched = |rule: &str, packets: Vec<Vec<u8>>| {
        let mut bed = TestBed::new(Mode::Ids, rule);
        let count = |packet| {
            let before = bed.alerts();
            bed.send(packet);
            bed.alerts() - before
        };
        packets.into_iter().map(count).collect::<Vec<_>>()
    };
    let established_rule = "alert tcp any any -> any any (flow:established; ttl:>0; sid:1;)";
    let new = "alert tcp any any -> any any (flow:not_established; ttl:>0; sid:1;)";
    let (c, s) = (CLIENT + 1, SERVER + 1);
    let usual = established(vec![from_server(ACK, s, c, &[]), data(0, b"abc")]);
    assert_eq!(matched(established_rule, usual.clone()), [0, 0, 0, 1, 1]);
    assert_eq!(matched(new, usual), [1, 1, 1, 0, 0]);
    // Data that end the handshake, because the acknowledgment before them was lost, are of an established connection.
    let [syn, syn_ack, _] = handshake();
    let lost = vec![syn, syn_ack, data(0, b"abc")];
    assert_eq!(matched(established_rule, lost.clone()), [0, 0, 1]);
    assert_eq!(matched(new, lost), [1, 1, 0]);
}
