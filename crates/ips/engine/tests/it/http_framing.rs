//! HTTP messages that recipients read in different ways: separators, spaces, folds, repetitions, letters of either case and
//! control bytes at each place of the grammar.
//!
//! Each message carries an attack in its body, either in chunks that cut it, or as it is. In mode `ips` a packet of the attack is
//! dropped, by its rule, or by a policy with an anomaly that names the place. In mode `ids` it raises its alert, whichever reading
//! the receiver has.

use millrace_ips_engine::{Event, Mode, Settings};

use crate::bed::{HOST_A, HOST_B, TestBed};
use crate::conversation::Conversation;

const RULES: &str = r#"
alert http any any -> any any (flow:to_client; file.data; content:"the-needle-of-the-body"; sid:1;)
alert http any any -> any any (flow:to_server; http.request_body; content:"the-needle-of-the-body"; sid:2;)
alert http any any -> any any (http.uri; content:"/smuggled"; sid:3;)
"#;
const NEEDLE: &str = "the-needle-of-the-body";
const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";

/// Bytes that may separate, fold, end or damage what they are inserted into.
const INSERTED: &[&str] = &[
    " ",
    "\t",
    "\x0b",
    "\x0c",
    "\0",
    "\r",
    "\n",
    "\x01",
    "\x7f",
    "\u{80}",
    ",",
    ";",
    "\"",
    "\r\n ",
    "\r\n\t",
    "\n ",
    "\r\r\n ",
    "\r ",
    " \0",
    "\x0b\x0b",
    ", ",
    "\r\n \r\n ",
];

/// Returns a text with each of the bytes at each place.
fn with_inserted(text: &str) -> Vec<Vec<u8>> {
    let mut variants = Vec::new();
    for at in 0..=text.len() {
        for inserted in INSERTED {
            // An empty line ends the headers in every reading, and a line that is no header does not change them.
            let is_end = at == 0 || at == text.len();
            let is_word = inserted
                .bytes()
                .any(|byte| byte.is_ascii_graphic() || byte >= 0x80);
            if is_end && inserted.starts_with("\r\n") || at == text.len() && is_word {
                continue;
            }
            let bytes = match *inserted {
                "\u{80}" => &[0x80][..],
                text => text.as_bytes(),
            };
            variants.push([&text.as_bytes()[..at], bytes, &text.as_bytes()[at..]].concat());
        }
    }
    variants
}

/// Returns a body in chunks of three bytes, so that no chunk has the needle.
fn chunked(body: &str) -> String {
    let chunks = body.as_bytes().chunks(3);
    let text: String = chunks
        .map(|chunk| format!("{:x}\r\n{}\r\n", chunk.len(), String::from_utf8_lossy(chunk)))
        .collect();
    text + "0\r\n\r\n"
}

/// One message: its direction, and its bytes.
struct Message {
    is_response: bool,
    bytes: Vec<u8>,
}

fn response(parts: &[&[u8]]) -> Message {
    Message {
        is_response: true,
        bytes: parts.concat(),
    }
}

fn request(parts: &[&[u8]]) -> Message {
    Message {
        is_response: false,
        bytes: parts.concat(),
    }
}

/// Sends a message in segments, and returns the problem if the attack passes unseen.
fn problem(message: &Message, mode: Mode, segment: usize) -> Option<String> {
    let settings = Settings {
        mode,
        records: true,
        ..Settings::default()
    };
    // In line a packet of the attack must not arrive: an alert at the end of the flow is too late.
    let rules = match mode {
        Mode::Ips => RULES.replace("alert ", "drop "),
        Mode::Ids => RULES.to_owned(),
    };
    let mut bed = TestBed::with(settings, &rules);
    let mut talk = Conversation::open(&mut bed, (HOST_A, 40_000), (HOST_B, 80));
    let mut is_dropped = false;
    if message.is_response {
        talk.client(&mut bed, REQUEST);
    }
    for part in message.bytes.chunks(segment) {
        is_dropped |= match message.is_response {
            true => talk.server(&mut bed, part),
            false => talk.client(&mut bed, part),
        };
    }
    talk.close(&mut bed);
    bed.finish();
    let is_alert = !bed.sids().is_empty();
    let has_name = bed.events().iter().any(|event| match event {
        Event::Transaction(transaction) => !transaction.anomalies.is_empty(),
        Event::Anomaly(_, _, anomalies) => !anomalies.is_empty(),
        _ => false,
    });
    match mode {
        Mode::Ips if is_dropped && (is_alert || has_name) => None,
        Mode::Ips => Some(format!(
            "in line, dropped {is_dropped}, alert {is_alert}, named {has_name}"
        )),
        Mode::Ids if is_alert => None,
        Mode::Ids => Some("beside the path".to_owned()),
    }
}

/// Tests that no message of a kind passes unseen.
fn check(kind: &str, messages: Vec<Message>) {
    assert!(messages.len() >= 200, "{kind}: {} variants", messages.len());
    let mut problems = Vec::new();
    for message in &messages {
        for (mode, segment) in [
            (Mode::Ips, 1400),
            (Mode::Ids, 1400),
            (Mode::Ips, 61),
            (Mode::Ids, 61),
        ] {
            if let Some(problem) = problem(message, mode, segment) {
                problems.push(format!(
                    "{problem}, {segment}: {:?}",
                    message.bytes.escape_ascii().to_string()
                ));
            }
        }
    }
    println!("{kind}: {} variants, {} problems", messages.len(), problems.len());
    assert!(
        problems.is_empty(),
        "{kind}: {} problems\n{}",
        problems.len(),
        problems[..problems.len().min(25)].join("\n")
    );
}

#[test]
fn transfer_encoding_of_responses() {
    let mut messages = Vec::new();
    let heads = with_inserted("Transfer-Encoding: chunked\r\n");
    let named = [
        "Transfer-Encoding: xchunked",
        "Transfer-Encoding: chunked, identity",
        "Transfer-Encoding: identity, chunked",
        "Transfer-Encoding: gzip, chunked",
        "Transfer-Encoding: identity",
        "Transfer-Encoding: CHUNKED",
        "transfer-encoding:chunked",
        "TRANSFER_ENCODING: chunked",
        "Transfer Encoding: chunked",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity",
        "Transfer-Encoding: identity\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked\r\nContent-Length: 5",
        "Content-Length: 0\r\nTransfer-Encoding: chunked",
    ];
    let named = named.iter().map(|line| format!("{line}\r\n").into_bytes());
    for (line, version) in heads
        .into_iter()
        .map(|line| (line, &b"HTTP/1.1 200 OK\r\n"[..]))
        .chain(named.map(|line| (line, &b"HTTP/1.1 200 OK\r\n"[..])))
        .chain([(
            b"Transfer-Encoding: chunked\r\n".to_vec(),
            &b"HTTP/1.0 200 OK\r\n"[..],
        )])
    {
        for body in [chunked(NEEDLE), NEEDLE.to_owned()] {
            messages.push(response(&[
                version,
                b"Server: x\r\n",
                &line,
                b"\r\n",
                body.as_bytes(),
            ]));
        }
    }
    check("Transfer-Encoding of responses", messages);
}

#[test]
fn content_length_of_responses() {
    let mut messages = Vec::new();
    let size = NEEDLE.len();
    let mut heads = with_inserted(&format!("Content-Length: {size}\r\n"));
    for other in [
        "0",
        "1",
        "34 68",
        "22, 0",
        "0, 22",
        "+22",
        "-1",
        "0x16",
        "22.0",
        "",
        "99999999999999999999",
    ] {
        for line in [
            format!("Content-Length: {other}\r\n"),
            format!("Content-Length: {other}\r\nContent-Length: {size}\r\n"),
            format!("Content-Length: {size}\r\nContent-Length: {other}\r\n"),
            format!("Content-Length: {size}\r\nContent-length : {other}\r\n"),
        ] {
            // A length of 0 or 1 alone is read in one way: the attack is not part of the message.
            if !matches!((other, line.matches("ength").count()), ("0" | "1", 1)) {
                heads.push(line.into_bytes());
            }
        }
    }
    for line in heads {
        messages.push(response(&[
            b"HTTP/1.1 200 OK\r\nServer: x\r\n",
            &line,
            b"\r\n",
            NEEDLE.as_bytes(),
        ]));
    }
    check("Content-Length of responses", messages);
}

#[test]
fn framing_of_requests() {
    let mut messages = Vec::new();
    let start = b"POST /form HTTP/1.1\r\nHost: a\r\n";
    let smuggled = "GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n";
    for line in with_inserted("Transfer-Encoding: chunked\r\n") {
        // One recipient reads chunks, another the length.
        let body = chunked(NEEDLE);
        let length = format!("Content-Length: {}\r\n", body.len());
        messages.push(request(&[
            start,
            length.as_bytes(),
            &line,
            b"\r\n",
            body.as_bytes(),
        ]));
        // One recipient ends the request after its chunks, another after the length, which hides a request.
        let body = format!("0\r\n\r\n{smuggled}");
        let length = format!("Content-Length: {}\r\n", body.len());
        messages.push(request(&[
            start,
            &line,
            length.as_bytes(),
            b"\r\n",
            body.as_bytes(),
        ]));
        let body = format!("{:x}\r\n{smuggled}\r\n0\r\n\r\n", smuggled.len());
        messages.push(request(&[
            start,
            b"Content-Length: 4\r\n",
            &line,
            b"\r\n",
            body.as_bytes(),
        ]));
    }
    for (first, second) in [("0", "22"), ("22", "0"), ("1", "22"), ("22", "22"), ("22", "5")] {
        for line in [
            format!("Content-Length: {first}\r\nContent-Length: {second}\r\n"),
            format!("Content-Length: {first}, {second}\r\n"),
            format!("Content-Length: {first} {second}\r\n"),
            format!("Content-Length: {first}\r\nContent_Length: {second}\r\n"),
        ] {
            messages.push(request(&[start, line.as_bytes(), b"\r\n", NEEDLE.as_bytes()]));
        }
    }
    for line in with_inserted("Content-Length: 22\r\n") {
        messages.push(request(&[start, &line, b"\r\n", NEEDLE.as_bytes()]));
    }
    check("framing of requests", messages);
}

#[test]
fn chunks() {
    let mut messages = Vec::new();
    let size = format!("{:x}\r\n", NEEDLE.len());
    let mut lines = with_inserted(&size);
    // In the others, every recipient reads another size, or bytes of the line as data.
    lines.retain(|line| line.windows(2).any(|digits| digits == b"16") && line.ends_with(b"\r\n"));
    lines.retain(|line| line.windows(2).filter(|end| end == b"\r\n").count() == 1);
    for text in [
        "+16",
        "016",
        "16;a=b",
        "16;a=\"b\"",
        "16 ;a",
        " 16",
        "16 ",
        "-16",
        "16,",
        "16 x",
        "16;",
        "g",
        "00000000016",
        "16\x0b",
        "16\0",
        "16;\0",
        "16;\x0b=1",
        "\t16",
        "16\t",
        "16:",
        "16/",
    ] {
        lines.push(format!("{text}\r\n").into_bytes());
        lines.push(format!("{text}\n").into_bytes());
        lines.push(format!("{text}\r").into_bytes());
        lines.push(format!("{text}\r\r\n").into_bytes());
    }
    // Without any line feed after the data, no tolerant recipient finds the next chunk.
    let ends = ["\r\n", "\n", "\r\r\n", " \r\n", "x\r\n", "\n\r"];
    for line in lines {
        for (is_response, end) in [(true, "\r\n"), (false, "\r\n")] {
            let head: &[u8] = match is_response {
                true => b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
                false => b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n",
            };
            let parts = [head, &line, NEEDLE.as_bytes(), end.as_bytes(), b"0\r\n\r\n"];
            messages.push(match is_response {
                true => response(&parts),
                false => request(&parts),
            });
        }
    }
    for end in ends {
        let body = chunked(NEEDLE);
        let (first, rest) = body.split_at(6);
        let head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        messages.push(response(&[
            head,
            first.as_bytes(),
            end.as_bytes(),
            &rest.as_bytes()[2..],
        ]));
    }
    check("chunks", messages);
}

#[test]
fn starts_and_ends_of_headers() {
    let mut messages = Vec::new();
    for line in with_inserted("HTTP/1.1 200 OK\r\n") {
        let head = b"Content-Length: 22\r\n\r\n";
        messages.push(response(&[&line, head, NEEDLE.as_bytes()]));
    }
    for line in [
        "junk\r\n",
        "\0\r\n",
        " \r\n",
        "\x0b\n",
        "junk\n",
        "\r\n",
        "\n",
        "ICY 200 OK\r\n",
        "junk\r",
    ] {
        for body in [chunked(NEEDLE), NEEDLE.to_owned()] {
            let head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
            messages.push(response(&[line.as_bytes(), head, body.as_bytes()]));
        }
    }
    // Each text of line ends and white space that has two line ends at least.
    let bytes = [b'\r', b'\n', b' ', 0];
    for len in 2..=4 {
        for number in 0..4_usize.pow(len) {
            let end: Vec<u8> = (0..len).map(|at| bytes[number / 4_usize.pow(at) % 4]).collect();
            let feeds = end.iter().filter(|byte| **byte == b'\n').count();
            if feeds < 2 || end.starts_with(b" ") || end.starts_with(b"\0") {
                continue;
            }
            let head = b"HTTP/1.1 200 OK\r\nServer: x";
            messages.push(response(&[head, &end, NEEDLE.as_bytes()]));
        }
    }
    check("starts and ends of headers", messages);
}

#[test]
fn content_encoding_of_responses() {
    let mut messages = Vec::new();
    let gzip = |data: &[u8]| {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        std::io::Write::write_all(&mut encoder, data).unwrap();
        encoder.finish().unwrap()
    };
    let zlib = |data: &[u8]| {
        let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::default());
        std::io::Write::write_all(&mut encoder, data).unwrap();
        encoder.finish().unwrap()
    };
    let raw = |data: &[u8]| {
        let mut encoder = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::default());
        std::io::Write::write_all(&mut encoder, data).unwrap();
        encoder.finish().unwrap()
    };
    let plain = NEEDLE.as_bytes();
    let bodies = [
        plain.to_vec(),
        gzip(plain),
        zlib(plain),
        raw(plain),
        gzip(&gzip(plain)),
        zlib(&gzip(plain)),
        gzip(&zlib(plain)),
    ];
    let mut lines = with_inserted("Content-Encoding: gzip\r\n");
    // Recipients agree that these are not the header, or that the coding is unknown.
    lines.retain(|line| !line.windows(3).any(|part| part == b"\r\n\r"));
    for line in &lines {
        for body in &bodies[..2] {
            messages.push(response(&[b"HTTP/1.1 200 OK\r\n", line, b"\r\n", body]));
        }
    }
    // The bodies that some order of the declared codings has, or fewer of them.
    for (value, bodies) in [
        ("gzip", &bodies[..2]),
        ("x-gzip", &bodies[..2]),
        ("deflate", &[plain.to_vec(), zlib(plain), raw(plain)][..]),
        (
            "gzip, deflate",
            &[plain.to_vec(), gzip(plain), zlib(plain), zlib(&gzip(plain))][..],
        ),
        (
            "deflate, gzip",
            &[plain.to_vec(), gzip(plain), zlib(plain), gzip(&zlib(plain))][..],
        ),
        (
            "gzip, gzip",
            &[plain.to_vec(), gzip(plain), gzip(&gzip(plain))][..],
        ),
        (
            "gzip\r\nContent-Encoding: deflate",
            &[plain.to_vec(), gzip(plain), zlib(&gzip(plain))][..],
        ),
        ("GZIP", &bodies[..2]),
        ("identity", &bodies[..1]),
    ] {
        for body in bodies {
            let line = format!("Content-Encoding: {value}\r\n\r\n");
            messages.push(response(&[b"HTTP/1.1 200 OK\r\n", line.as_bytes(), body]));
        }
    }
    check("Content-Encoding of responses", messages);
}
