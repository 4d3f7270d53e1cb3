//! The windows in which rules over streams are evaluated.

use millrace_ips_engine::Mode;
use millrace_wire::tcp::flags::ACK;

use crate::bed::{CLIENT, SERVER, Segment, TestBed, acknowledgment, data};

const RESPONSE: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";

/// Returns an answer of the server to a request of this size.
fn response(request: usize) -> Vec<u8> {
    Segment {
        from_client: false,
        seq: SERVER + 1,
        ack: CLIENT + 1 + request as u32,
        data: RESPONSE,
        ..Segment::default()
    }
    .packet()
}

/// Returns the client's acknowledgment of the answer.
fn acknowledged(request: usize) -> Vec<u8> {
    Segment {
        flags: ACK,
        seq: CLIENT + 1 + request as u32,
        ack: SERVER + 1 + RESPONSE.len() as u32,
        ..Segment::default()
    }
    .packet()
}

/// A request whose method does not identify the protocol.
const REQUEST: &[u8] = b"CCM / HTTP/1.1\r\nHost: attack\r\n\r\n";

#[test]
fn a_request_is_inspected_with_the_response_that_tells_its_protocol() {
    let rule =
        r#"alert http any any -> any any (msg:"a"; flow:to_server; http.host; content:"attack"; sid:1;)"#;
    let mut bed = TestBed::new(Mode::Ips, rule);
    bed.handshake();
    bed.send(data(0, REQUEST));
    assert!(!bed.is_attack_found());
    bed.send(response(REQUEST.len()));
    assert!(bed.is_attack_found());
}

#[test]
fn beside_the_path_a_request_is_complete_when_the_response_tells_its_protocol() {
    let rule = r#"alert tcp-stream any any -> any any (msg:"a"; flow:to_server; content:"attack"; sid:1;)"#;
    let mut bed = TestBed::new(Mode::Ids, rule);
    bed.handshake();
    bed.send(data(0, REQUEST));
    bed.send(response(REQUEST.len()));
    assert!(!bed.is_attack_found());
    bed.send(acknowledged(REQUEST.len()));
    assert!(bed.is_attack_found());
}

#[test]
fn beside_the_path_depth_counts_from_the_beginning_of_a_message() {
    let rule = r#"alert tcp-stream any any -> any any (msg:"a"; content:"PUT"; depth:3; sid:1;)"#;
    let first = b"GET / HTTP/1.1\r\n\r\n";
    for (mode, is_found) in [(Mode::Ids, true), (Mode::Ips, false)] {
        let mut bed = TestBed::new(mode, rule);
        bed.handshake();
        let (size, second) = (first.len() as u32, b"PUT / HTTP/1.1\r\n\r\n");
        bed.send(data(0, first));
        bed.send(acknowledgment(size));
        bed.send(data(size, second));
        bed.send(acknowledgment(size + second.len() as u32));
        bed.finish();
        assert_eq!(bed.is_attack_found(), is_found, "{mode:?}");
    }
}

#[test]
fn in_line_a_match_is_repeated_while_it_is_in_the_last_bytes() {
    let rule = r#"alert tcp-stream any any -> any any (msg:"a"; content:"abc"; sid:1;)"#;
    for (size, alerts) in [(100, 2), (2000, 1)] {
        let mut bed = TestBed::new(Mode::Ips, rule);
        bed.handshake();
        let first = [&b"abc"[..], &[b'x'; 1000]].concat();
        bed.send(data(0, &first));
        bed.send(data(first.len() as u32, &vec![b'y'; size]));
        assert_eq!(bed.alerts(), alerts, "{size}");
    }
}

#[test]
fn in_line_a_match_that_begins_long_before_the_last_bytes_is_found() {
    let rule =
        r#"alert tcp-stream any any -> any any (msg:"a"; content:"abc"; content:"def"; within:2500; sid:1;)"#;
    let mut bed = TestBed::new(Mode::Ips, rule);
    bed.handshake();
    let first = [&b"abc"[..], &[b'x'; 1000]].concat();
    bed.send(data(0, &first));
    bed.send(data(first.len() as u32, &[&[b'y'; 1440][..], b"def"].concat()));
    assert_eq!(bed.alerts(), 1);
}

#[test]
fn contents_beside_stream_size_are_looked_for_in_the_stream_and_in_packets() {
    let rule = r#"alert tcp any any -> any any (msg:"a"; content:"attack"; stream_size:client,>,3; sid:1;)"#;
    let mut bed = TestBed::new(Mode::Ips, rule);
    bed.handshake();
    bed.send(data(0, b"att"));
    bed.send(data(3, b"ack"));
    assert!(bed.is_attack_found());
    // In mode `ids`, the packet is inspected before its data are acknowledged.
    let mut bed = TestBed::new(Mode::Ids, rule);
    bed.handshake();
    bed.send(data(0, b"attack"));
    assert!(bed.is_attack_found());
}

#[test]
fn beside_the_path_messages_of_imap_wait_for_a_chunk_or_the_end() {
    let rule = r#"alert tcp-stream any any -> any any (msg:"a"; flow:to_server; content:"attack"; sid:1;)"#;
    let mut bed = TestBed::new(Mode::Ids, rule);
    bed.handshake();
    let greeting = b"* OK IMAP4rev1 ready\r\n";
    let command = b"a1 LOGIN attack secret\r\n";
    let (sent, asked) = (greeting.len() as u32, command.len() as u32);
    let from_server = |offset: u32, ack: u32, data| {
        Segment {
            from_client: false,
            seq: SERVER + 1 + offset,
            ack: CLIENT + 1 + ack,
            data,
            ..Segment::default()
        }
        .packet()
    };
    let from_client = |offset: u32, ack: u32, data| {
        Segment {
            seq: CLIENT + 1 + offset,
            ack: SERVER + 1 + ack,
            data,
            ..Segment::default()
        }
        .packet()
    };
    bed.send(from_server(0, 0, greeting));
    bed.send(from_client(0, sent, command));
    bed.send(from_server(sent, asked, b"a1 OK done\r\n"));
    bed.send(from_client(asked, sent + 12, &[]));
    assert!(!bed.is_attack_found());
    bed.finish();
    assert!(bed.is_attack_found());
}

#[test]
fn in_line_depth_counts_from_the_beginning_of_the_last_bytes() {
    /// Size in bytes of what is inspected with each packet.
    const WINDOW: usize = 2619;
    let rule = r#"alert tcp-stream any any -> any any (msg:"a"; content:"X"; depth:1; sid:1;)"#;
    for (before, is_found) in [(0, true), (100, true), (101, false)] {
        let mut bed = TestBed::new(Mode::Ips, rule);
        bed.handshake();
        let mut stream = vec![b'x'; WINDOW + 100];
        stream[before] = b'X';
        for (at, part) in stream.chunks(1400).enumerate() {
            bed.send(data(at as u32 * 1400, part));
        }
        assert_eq!(bed.is_attack_found(), is_found, "{before}");
    }
}

#[test]
fn a_trailer_repeats_rules_over_the_headers() {
    let rule = r#"alert http any any -> any any (msg:"a"; http.header; content:"attack"; sid:1;)
        alert http any any -> any any (msg:"b"; http.stat_code; content:"200"; sid:2;)"#;
    let head = "HTTP/1.1 200 OK\r\nX: attack\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n";
    for (rest, alerts) in [("1\r\nb\r\n", 2), ("0\r\n\r\n", 3)] {
        let mut bed = TestBed::new(Mode::Ips, rule);
        bed.handshake();
        let request = b"GET / HTTP/1.1\r\nHost: host\r\n\r\n";
        bed.send(data(0, request));
        let mut sent = 0;
        for part in [head, rest] {
            let segment = Segment {
                from_client: false,
                seq: SERVER + 1 + sent,
                ack: CLIENT + 1 + request.len() as u32,
                data: part.as_bytes(),
                ..Segment::default()
            };
            sent += part.len() as u32;
            bed.send(segment.packet());
        }
        assert_eq!(bed.alerts(), alerts, "{rest:?}");
    }
}
