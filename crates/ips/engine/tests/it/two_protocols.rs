//! Flows of two protocols: a change of protocol, and directions that speak different ones. Rules of both match, and protocol
//! detection raises the events that Suricata documents.

use std::collections::BTreeSet;

use millrace_ips_engine::Mode;

use crate::bed::{HOST_A, HOST_B, TestBed};
use crate::conversation::Conversation;
use crate::synthesis::tls::Handshake;

/// The events of protocol detection, in the order of their rules: sids 101 and following.
const EVENTS: [&str; 6] = [
    "mismatch_protocol_both_directions",
    "wrong_direction_first_data",
    "detect_protocol_only_one_direction",
    "proto_detection_skipped",
    "no_tls_after_starttls",
    "unexpected_protocol",
];
const MISMATCH: u32 = 101;
const WRONG_FIRST: u32 = 102;
const ONE_DIRECTION: u32 = 103;
const SKIPPED: u32 = 104;
const NO_TLS: u32 = 105;
const UNEXPECTED: u32 = 106;

fn rules() -> String {
    let mut text = r#"alert http any any -> any any (http.method; content:"CONNECT"; sid:1;)
alert http any any -> any any (http.uri; content:"/page"; sid:2;)
alert tls any any -> any any (tls.sni; content:"a.example"; sid:3;)
alert smtp any any -> any any (smtp.helo; content:"helo.example"; sid:4;)
alert ssh any any -> any any (ssh.software; content:"OpenSSH"; sid:5;)
alert http2 any any -> any any (sid:6;)
alert websocket any any -> any any (websocket.payload; content:"word"; sid:7;)
alert http any any -> any any (http.stat_code; content:"418"; sid:8;)
alert pop3 any any -> any any (sid:9;)
alert imap any any -> any any (sid:10;)
alert ftp any any -> any any (ftp.command; content:"AUTH"; sid:11;)
"#
    .to_owned();
    for (number, event) in EVENTS.iter().enumerate() {
        let sid = 101 + number;
        text += &format!(
            "alert ip any any -> any any (flow:established; app-layer-event:applayer_{event}; sid:{sid};)\n"
        );
    }
    text
}

fn hello() -> Vec<u8> {
    let handshake = Handshake {
        minor: 3,
        name: Some(b"a.example".to_vec()),
        ..Handshake::default()
    };
    handshake.client()
}

/// Returns the rules that match on a conversation, in pieces of a size.
fn sids(mode: Mode, port: u16, messages: &[(bool, Vec<u8>)], size: usize) -> BTreeSet<u32> {
    let mut bed = TestBed::new(mode, &rules());
    let mut talk = Conversation::open(&mut bed, (HOST_A, 40_000), (HOST_B, port));
    for (is_server, bytes) in messages {
        for part in bytes.chunks(size) {
            match is_server {
                true => talk.server(&mut bed, part),
                false => talk.client(&mut bed, part),
            };
        }
    }
    talk.close(&mut bed);
    bed.finish();
    bed.sids()
}

fn client(bytes: impl Into<Vec<u8>>) -> (bool, Vec<u8>) {
    (false, bytes.into())
}

fn server(bytes: impl Into<Vec<u8>>) -> (bool, Vec<u8>) {
    (true, bytes.into())
}

#[test]
fn rules_of_both_protocols_match_and_detection_raises_the_documented_events() {
    let ehlo = || client("EHLO helo.example\r\n");
    let starttls = |behind: (bool, Vec<u8>)| {
        vec![
            server("220 x\r\n"),
            ehlo(),
            server("250 x\r\n"),
            client("STARTTLS\r\n"),
            server("220 go\r\n"),
            behind,
        ]
    };
    let upgrade = |to: &str, behind: Vec<u8>| {
        let head = format!("Host: a\r\nConnection: Upgrade\r\nUpgrade: {to}\r\n");
        vec![
            client(format!(
                "GET /page HTTP/1.1\r\n{head}Sec-WebSocket-Key: a\r\n\r\n"
            )),
            server(format!(
                "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: {to}\r\n\r\n"
            )),
            (false, behind),
        ]
    };
    let frame = [&[0x81, 0x84, 0, 0, 0, 0][..], b"word"].concat();
    let page = "GET /page HTTP/1.1\r\nHost: a\r\n\r\n";
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0".to_vec();
    let connect = |answer: &str, behind: Vec<u8>| {
        vec![
            client("CONNECT a:443 HTTP/1.1\r\nHost: a\r\n\r\n"),
            server(answer),
            (false, behind),
        ]
    };
    let opened = "HTTP/1.1 200 OK\r\n\r\n";
    let cases: Vec<(&str, u16, Vec<(bool, Vec<u8>)>, Vec<u32>)> = vec![
        ("STARTTLS to TLS", 25, starttls(client(hello())), vec![3, 4]),
        (
            "STARTTLS to plain text",
            25,
            starttls(client("EHLO helo.example\r\nMAIL FROM:<a>\r\n")),
            vec![4, NO_TLS, UNEXPECTED],
        ),
        ("CONNECT to TLS", 8080, connect(opened, hello()), vec![1, 3]),
        ("CONNECT to HTTP", 8080, connect(opened, page.into()), vec![1, 2]),
        (
            "CONNECT to SSH",
            8080,
            connect(opened, b"SSH-2.0-OpenSSH_9\r\n".to_vec()),
            vec![1, 5],
        ),
        (
            "a CONNECT that is refused",
            8080,
            connect("HTTP/1.1 418 No\r\nContent-Length: 0\r\n\r\n", page.into()),
            vec![1, 2, 8],
        ),
        (
            "an upgrade to WebSocket",
            80,
            upgrade("websocket", frame),
            vec![2, 7],
        ),
        (
            "an upgrade to h2c",
            80,
            upgrade("h2c", preface.clone()),
            vec![2, 6],
        ),
        (
            "an upgrade to h2c that is followed by TLS",
            80,
            upgrade("h2c", hello()),
            vec![2, 3, UNEXPECTED],
        ),
        (
            "a client of HTTP and a server of SSH",
            8080,
            vec![client(page), server("SSH-2.0-OpenSSH_9\r\n")],
            vec![2, 5, MISMATCH],
        ),
        (
            "a client of SSH and a server of HTTP",
            2200,
            vec![
                client("SSH-2.0-OpenSSH_9\r\n"),
                server("HTTP/1.1 418 No\r\nContent-Length: 0\r\n\r\n"),
            ],
            vec![5, 8, MISMATCH],
        ),
        (
            "a client of TLS and a server of HTTP",
            443,
            vec![
                client(hello()),
                server("HTTP/1.1 418 No\r\nContent-Length: 0\r\n\r\n"),
            ],
            vec![3, 8, MISMATCH],
        ),
        (
            "a server of HTTP that speaks first",
            80,
            vec![
                server("HTTP/1.1 418 No\r\nContent-Length: 0\r\n\r\n"),
                client(page),
            ],
            vec![2, 8, WRONG_FIRST],
        ),
        (
            "a client of HTTP whose server speaks no protocol",
            80,
            vec![client(page), server("hello\r\n")],
            vec![2, ONE_DIRECTION],
        ),
        (
            "many bytes of no protocol, and no answer",
            9999,
            vec![client(vec![0xee; 9000])],
            vec![SKIPPED],
        ),
        (
            "bytes of no protocol in both directions",
            9999,
            vec![client(vec![0xee; 900]), server(vec![0xee; 900])],
            vec![],
        ),
        (
            "HTTP in both directions",
            80,
            vec![
                client(page),
                server("HTTP/1.1 418 No\r\nContent-Length: 0\r\n\r\n"),
            ],
            vec![2, 8],
        ),
    ];
    for (text, port, messages, expected) in cases {
        for mode in [Mode::Ids, Mode::Ips] {
            for size in [1, 7, 1_400] {
                let expected: BTreeSet<u32> = expected.iter().copied().collect();
                let found = sids(mode, port, &messages, size);
                assert_eq!(found, expected, "{text}, {mode:?}, in pieces of {size}");
            }
        }
    }
}

#[test]
fn a_command_that_starts_tls_is_followed_by_tls_in_each_protocol_or_is_an_event() {
    let conversations = [
        (
            110,
            vec![server("+OK x\r\n"), client("STLS\r\n"), server("+OK go\r\n")],
        ),
        (
            143,
            vec![
                server("* OK x\r\n"),
                client("a STARTTLS\r\n"),
                server("a OK go\r\n"),
            ],
        ),
        (
            21,
            vec![server("220 x\r\n"), client("AUTH TLS\r\n"), server("234 go\r\n")],
        ),
    ];
    for (port, messages) in conversations {
        for mode in [Mode::Ids, Mode::Ips] {
            let tls = [&messages[..], &[client(hello())]].concat();
            let found = sids(mode, port, &tls, 1_400);
            assert!(
                found.contains(&3) && !found.contains(&NO_TLS),
                "{port}, {found:?}"
            );
            let plain = [&messages[..], &[client("GET /page HTTP/1.1\r\nHost: a\r\n\r\n")]].concat();
            let found = sids(mode, port, &plain, 1_400);
            assert!(
                found.is_superset(&[2, NO_TLS, UNEXPECTED].into()),
                "{port}, {found:?}"
            );
        }
    }
}
