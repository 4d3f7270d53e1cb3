//! Packets that come again, or not in the order in which they were sent.

use millrace_ips_engine::{Mode, Settings};
use millrace_types::Time;
use millrace_wire::IpProto;
use millrace_wire::tcp::flags::{ACK, FIN, SYN};

use crate::bed::{
    CLIENT, HOST_A, HOST_B, SERVER, Segment, TestBed, acknowledgment, data, datagram, gre, handshake, ip,
};
use crate::frames::udp;
use crate::synthesis::dns::message;

const REQUEST: &[u8] = b"GET /attack HTTP/1.1\r\nHost: a\r\n\r\n";
const HTTP_RULE: &str =
    r#"alert http any any -> any any (msg:"a"; flow:to_server; http.uri; content:"attack"; sid:1;)"#;
const STREAM_RULE: &str = r#"alert tcp-stream any any -> any any (msg:"s"; content:"attack"; sid:2;)"#;

/// Returns the segments of a connection with a request. `server` is the initial sequence number of the
/// server.
fn connection(server: u32) -> Vec<Vec<u8>> {
    let size = REQUEST.len() as u32;
    let client = |flags, seq, data| Segment {
        flags,
        seq,
        ack: if flags == SYN { 0 } else { server + 1 },
        data,
        ..Segment::default()
    };
    let answer = |flags, seq, ack| Segment {
        from_client: false,
        flags,
        seq,
        ack,
        ..Segment::default()
    };
    let segments = [
        client(SYN, CLIENT, &[]),
        answer(SYN | ACK, server, CLIENT + 1),
        client(ACK, CLIENT + 1, &[]),
        client(ACK, CLIENT + 1, REQUEST),
        answer(ACK, server + 1, CLIENT + 1 + size),
        client(FIN | ACK, CLIENT + 1 + size, &[]),
        answer(FIN | ACK, server + 1, CLIENT + 2 + size),
        Segment {
            ack: server + 2,
            ..client(ACK, CLIENT + 2 + size, &[])
        },
    ];
    segments.iter().map(Segment::packet).collect()
}

#[test]
fn a_connection_that_is_sent_again_is_inspected_packet_by_packet() {
    for mode in [Mode::Ids, Mode::Ips] {
        let mut bed = TestBed::new(mode, &format!("{HTTP_RULE}\n{STREAM_RULE}"));
        bed.send_all(connection(SERVER));
        let first = bed.alerts();
        bed.send_all(connection(SERVER));
        assert!(first >= 2, "{mode:?}");
        // The rule over the stream looks at the packet; there is no second request.
        assert_eq!(bed.alerts(), first + 1, "{mode:?}");
    }
}

#[test]
fn a_connection_whose_client_repeats_its_number_is_another_if_the_server_answers_so() {
    for mode in [Mode::Ids, Mode::Ips] {
        let mut bed = TestBed::new(mode, HTTP_RULE);
        bed.send_all(connection(SERVER));
        assert_eq!(bed.alerts(), 1, "{mode:?}");
        assert!(!bed.send_all(connection(SERVER + 77_777)), "{mode:?}");
        assert_eq!(bed.alerts(), 2, "{mode:?}");
    }
}

#[test]
fn in_line_a_segment_that_comes_again_is_inspected_with_the_stream() {
    let mut bed = TestBed::new(Mode::Ips, STREAM_RULE);
    bed.handshake();
    bed.send(data(0, b"att"));
    bed.send(data(3, b"ack"));
    assert_eq!(bed.alerts(), 1);
    bed.send(data(3, b"ack"));
    assert_eq!(bed.alerts(), 2);
}

#[test]
fn beside_the_path_data_are_inspected_with_a_packet_of_their_receiver() {
    let mut bed = TestBed::new(Mode::Ids, HTTP_RULE);
    bed.handshake();
    // The capture has the acknowledgment before the data.
    bed.send(acknowledgment(REQUEST.len() as u32));
    bed.send(data(0, REQUEST));
    assert_eq!(bed.alerts(), 0);
    bed.send(acknowledgment(REQUEST.len() as u32));
    bed.send(data(REQUEST.len() as u32, &[]));
    assert_eq!(bed.alerts(), 1);
}

#[test]
fn a_fin_behind_missing_data_does_not_close_the_connection() {
    let mut bed = TestBed::new(Mode::Ids, STREAM_RULE);
    bed.handshake();
    let fin = Segment {
        flags: FIN | ACK,
        seq: CLIENT + 1 + 2000,
        ..Segment::default()
    };
    bed.send(fin.packet());
    bed.send(data(0, b"att"));
    bed.send(acknowledgment(3));
    // A connection that is being closed would have inspected the first part by itself.
    bed.send(data(3, b"ack"));
    bed.send(acknowledgment(6));
    bed.finish();
    assert!(bed.sids().contains(&2));
}

#[test]
fn in_line_a_message_that_contradicts_its_protocol_is_dropped_before_rules_are_evaluated() {
    let rule = r#"alert tcp any any -> any any (msg:"p"; flags:A+; content:"|16 03|"; sid:3;)"#;
    let mut bed = TestBed::new(Mode::Ips, rule);
    bed.handshake();
    // RFC 8446, section 5.1: a handshake record is not empty.
    assert!(bed.send(data(0, &[0x16, 3, 1, 0, 0])).is_dropped());
    assert_eq!(bed.alerts(), 0);
    assert!(bed.send(data(5, b"more")).is_dropped());
}

/// Returns data of the server at an offset of its stream.
fn server_data(offset: u32, bytes: &[u8]) -> Vec<u8> {
    Segment {
        from_client: false,
        seq: SERVER + 1 + offset,
        ack: CLIENT + 1 + REQUEST.len() as u32,
        data: bytes,
        ..Segment::default()
    }
    .packet()
}

#[test]
fn an_interim_response_hides_no_status_line_behind_it() {
    let rules = r#"
        alert http any any -> any any (msg:"i"; flow:to_client; http.response_line; content:"Continue"; sid:4;)
        alert http any any -> any any (msg:"f"; flow:to_client; http.response_line; content:"attack"; sid:5;)
    "#;
    let (interim, last) = ("HTTP/1.1 100 Continue", "HTTP/1.1 200 attack--");
    assert_eq!(interim.len(), last.len());
    let mut bed = TestBed::new(Mode::Ips, rules);
    bed.handshake();
    bed.send(data(0, REQUEST));
    let interim = format!("{interim}\r\n\r\n");
    bed.send(server_data(0, interim.as_bytes()));
    assert_eq!(bed.sids(), [4].into());
    let last = format!("{last}\r\nContent-Length: 0\r\n\r\n");
    bed.send(server_data(interim.len() as u32, last.as_bytes()));
    assert_eq!(bed.sids(), [4, 5].into());
}

/// Returns an ICMP error of B about a packet of A.
fn unreachable(packet: &[u8]) -> Vec<u8> {
    let error = [&[3, 1, 0, 0, 0, 0, 0, 0], packet].concat();
    ip((HOST_B, HOST_A), IpProto::ICMPV4, &error)
}

#[test]
fn an_icmp_error_does_not_establish_the_flow_that_it_is_about() {
    let rule = r#"alert udp any any -> any any (msg:"u"; flow:established; content:"word"; sid:6;)"#;
    let mut bed = TestBed::new(Mode::Ids, rule);
    bed.send(datagram(b"word"));
    bed.send(unreachable(&datagram(b"word")));
    bed.send(datagram(b"word"));
    assert_eq!(bed.alerts(), 0);
}

#[test]
fn an_icmp_error_hides_no_packet_of_its_sender_from_rules_over_addresses() {
    let rule = format!("drop udp {HOST_B} any -> any any (msg:\"listed\"; sid:8;)");
    let mut bed = TestBed::new(Mode::Ips, &rule);
    let query = udp(9999, false, b"query");
    assert!(!bed.send(query.clone()).is_dropped());
    assert!(!bed.send(unreachable(&query)).is_dropped());
    assert!(bed.send(udp(9999, true, b"answer")).is_dropped());
    assert_eq!(bed.alerts(), 1);
}

#[test]
fn contents_are_looked_for_in_the_packet_that_an_icmp_error_quotes() {
    let rule = r#"alert ip any any -> any any (msg:"q"; content:"attack"; sid:7;)"#;
    let mut bed = TestBed::new(Mode::Ids, rule);
    bed.handshake();
    bed.send(unreachable(&data(0, b"attack")));
    assert_eq!(bed.sids(), [7].into());
}

#[test]
fn thresholds_begin_anew_in_a_capture_that_is_read_behind_a_later_one() {
    let rule = r#"alert udp any any -> any any (msg:"t"; content:"word"; threshold:type limit, track by_src, count 1, seconds 60; sid:8;)"#;
    let mut bed = TestBed::new(Mode::Ids, rule);
    for (now, alerts) in [(1000, 1), (999, 1), (1001, 1), (100, 2), (101, 2)] {
        bed.now = Time::from_secs(now);
        bed.send(datagram(b"word"));
        assert_eq!(bed.alerts(), alerts, "at {now}");
    }
}

#[test]
fn without_a_search_idle_flows_stay_until_they_are_met() {
    for (idle_search, flows) in [(16, 1), (0, 2)] {
        let settings = Settings {
            idle_search,
            ..Settings::default()
        };
        let mut bed = TestBed::with(settings, STREAM_RULE);
        bed.send(datagram(b"word"));
        bed.now = Time::from_secs(100_000);
        bed.send(handshake()[0].clone());
        assert_eq!(bed.engine.flows(), flows);
    }
}

#[test]
fn erspan_of_type_three_is_decoded_if_the_settings_ask_for_it() {
    let ethernet = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0];
    let inner = [&[0u8; 12][..], &ethernet, &datagram(b"attack")].concat();
    let mut packet = gre(&inner);
    // The protocol type of GRE, after 20 bytes of IPv4 and its flags.
    packet[22..24].copy_from_slice(&[0x22, 0xeb]);
    for erspan_iii in [false, true] {
        let mut settings = Settings::default();
        settings.tunnels.erspan_iii = erspan_iii;
        let rule = r#"alert udp any any -> any any (msg:"e"; content:"attack"; sid:9;)"#;
        let mut bed = TestBed::with(settings, rule);
        bed.send(packet.clone());
        assert_eq!(bed.alerts() == 1, erspan_iii);
    }
}

#[test]
fn a_rule_over_the_protocol_of_a_flow_matches_once_also_between_ports_of_one_address() {
    let mut bed = TestBed::new(Mode::Ids, "alert dns any any -> any any (sid:1;)");
    let mut query = udp(53, false, &message(b"a.example", false).unwrap());
    query.copy_within(12..16, 16);
    for _ in 0..3 {
        bed.send(query.clone());
        assert_eq!(bed.alerts(), 1);
    }
}
