//! Tests of the parser of HTTP/2.

use millrace_ips_rules::buffers::Buffer;

use super::limits::STREAMS;
use super::*;
use crate::app::record::{Fields, HttpRecord, Record, Value};

const CLIENT: Direction = Direction::ToServer;
const SERVER: Direction = Direction::ToClient;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let size = (payload.len() as u32).to_be_bytes();
    [&size[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

fn with_preface(frames: &[Vec<u8>]) -> Vec<u8> {
    [PREFACE, &frames.concat()].concat()
}

/// Parses messages in segments; returns the transactions and the last outcome.
fn run(messages: &[(Direction, Vec<u8>)], step: usize) -> (Transactions, Outcome) {
    run_with(AppSettings::default(), messages, step)
}

fn run_with(
    settings: AppSettings,
    messages: &[(Direction, Vec<u8>)],
    step: usize,
) -> (Transactions, Outcome) {
    let (mut parser, mut out) = (Http2::new(settings), Transactions::default());
    let mut outcome = Outcome::Continue;
    for (direction, bytes) in messages {
        for piece in bytes.chunks(step) {
            if outcome == Outcome::Continue {
                outcome = parser.data(StreamChunk::of(*direction, piece), &mut out);
            }
        }
    }
    (out, outcome)
}

fn record(out: &Transactions, at: usize) -> &HttpRecord {
    match &out.list[at].record {
        Record::Http(record) => record,
        other => panic!("{other:?}"),
    }
}

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    let pair = |pair: &[u8]| u8::from_str_radix(core::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks(2).map(pair).collect()
}

// RFC 7541, appendix C.4 (three requests) and C.6.1 (a response): Huffman codes and one table for the connection.
const REQUESTS: [&str; 3] = [
    "8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff",
    "8286 84be 5886 a8eb 1064 9cbf",
    "8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf",
];
const RESPONSE: &str = "4882 6402 5885 aec3 771a 4b61 96d0 7abe 9410 54d4 44a8 2005 9504 0b81 66e0 82a6 2d1b ff6e 919d 29ad \
    1718 63c7 8f0b 97c8 e9ae 82ae 43d3";

#[test]
fn the_examples_of_the_standard_are_requests_and_a_response_in_any_segmentation() {
    let flags = flag::END_HEADERS | flag::END_STREAM;
    let blocks = REQUESTS.iter().zip([1, 3, 5]);
    let frames: Vec<Vec<u8>> = blocks
        .map(|(block, stream)| frame(kind::HEADERS, flags, stream, &hex(block)))
        .collect();
    let messages = [
        (CLIENT, with_preface(&frames)),
        (SERVER, frame(kind::HEADERS, flags, 1, &hex(RESPONSE))),
    ];
    for step in 1..messages[0].1.len() {
        let (out, outcome) = run(&messages, step);
        assert_eq!(
            (out.list.len(), outcome, &out.events[..]),
            (3, Outcome::Continue, &[][..]),
            "{step}"
        );
        assert_eq!(record(&out, 0).hostname, b"www.example.com");
        assert_eq!(
            (record(&out, 2).url.as_slice(), record(&out, 2).http2_stream),
            (&b"/index.html"[..], Some(5))
        );
        let header = out.list[2].buffer(Buffer::HttpHeader, CLIENT).unwrap();
        assert!(
            header.windows(24).any(|part| part == b"custom-key: custom-value"),
            "{header:?}"
        );
        assert_eq!(record(&out, 0).status, Some(302));
        assert_eq!(
            record(&out, 0).redirect.as_deref(),
            Some(&b"https://www.example.com"[..])
        );
        assert!(out.list[0].is_complete() && !out.list[1].is_complete());
    }
}

#[test]
fn bytes_that_are_no_frames_of_the_protocol_are_refused_with_an_event() {
    let headers = |flags, payload: &[u8]| frame(kind::HEADERS, flags, 1, payload);
    let cases: [(Vec<u8>, &str); 7] = [
        (b"PRI * HTTP/2.0\r\n\r\nXX".to_vec(), "http2.invalid_client_magic"),
        (
            with_preface(&[frame(kind::DATA, 0, 0, b"x")]),
            "http2.data_stream_zero",
        ),
        (
            with_preface(&[frame(kind::CONTINUATION, 0, 1, b"")]),
            "http2.invalid_frame_header",
        ),
        (
            with_preface(&[headers(0, &[0x82]), frame(kind::DATA, 0, 1, b"x")]),
            "http2.invalid_frame_header",
        ),
        (
            with_preface(&[headers(flag::PADDED | flag::END_HEADERS, &[9, 0x82])]),
            "http2.invalid_frame_data",
        ),
        // An index that no table has.
        (
            with_preface(&[headers(flag::END_HEADERS, &[0xff, 0x7f])]),
            "http2.invalid_header",
        ),
        (
            with_preface(&[frame(kind::DATA, flag::PADDED, 1, &[9, 1])]),
            "http2.invalid_frame_data",
        ),
    ];
    for (bytes, event) in cases {
        for step in [1, 1000] {
            let (out, outcome) = run(&[(CLIENT, bytes.clone())], step);
            assert_eq!(
                (outcome, &out.events[..]),
                (Outcome::Failed, &[event][..]),
                "{bytes:?}"
            );
        }
    }
}

#[test]
fn header_blocks_tables_and_streams_have_bounds() {
    // A block in endless frames.
    let mut frames = vec![frame(kind::HEADERS, 0, 1, &[0x82])];
    frames.extend((0..5).map(|_| frame(kind::CONTINUATION, 0, 1, &[0x82; 16 << 10])));
    let (out, outcome) = run(&[(CLIENT, with_preface(&frames))], 5000);
    assert_eq!(
        (outcome, &out.events[..]),
        (Outcome::Failed, &["http2.reassembly_limit_reached"][..])
    );
    // A field of 4,000 bytes in the table, and references of one byte to it: only the first bytes are kept.
    let mut block = vec![
        0x40,
        1,
        b'x',
        0x7f,
        0x80 | (3900 - 127 & 0x7f) as u8,
        (3900 - 127 >> 7) as u8,
    ];
    block.resize(block.len() + 3900, b'v');
    block.resize(block.len() + 1000, 0xbe);
    let headers = frame(kind::HEADERS, flag::END_HEADERS, 1, &block);
    let (out, outcome) = run(&[(CLIENT, with_preface(&[headers]))], 5000);
    assert_eq!(
        (outcome, &out.events[..]),
        (Outcome::Continue, &["http2.reassembly_limit_reached"][..])
    );
    assert!(out.list[0].size() < 8 * HEADERS_SIZE);
    // A table larger than the other end allows, and then one that it allows.
    let update = frame(kind::HEADERS, flag::END_HEADERS, 1, &[0x3f, 0xe1, 0x7f, 0x82]);
    let (_, outcome) = run(&[(CLIENT, with_preface(std::slice::from_ref(&update)))], 7);
    assert_eq!(outcome, Outcome::Failed);
    let allow = frame(kind::SETTINGS, 0, 0, &[0, 1, 0, 0, 0x40, 0]);
    let (_, outcome) = run(&[(SERVER, allow), (CLIENT, with_preface(&[update]))], 7);
    assert_eq!(outcome, Outcome::Continue);
    // Streams that never end.
    let open = |stream: u32| frame(kind::HEADERS, flag::END_HEADERS, 2 * stream + 1, &[0x82, 0x84]);
    let frames: Vec<Vec<u8>> = (0..STREAMS as u32 + 10).map(open).collect();
    let (mut parser, mut out) = (Http2::new(AppSettings::default()), Transactions::default());
    let bytes = with_preface(&frames);
    assert_eq!(
        parser.data(StreamChunk::of(CLIENT, &bytes), &mut out),
        Outcome::Continue
    );
    assert_eq!(out.events, ["http2.too_many_streams"]);
    assert_eq!(
        out.list
            .iter()
            .filter(|transaction| !transaction.is_complete())
            .count(),
        STREAMS
    );
}

#[test]
fn interim_responses_trailers_and_resets_keep_the_transaction() {
    let plain = |fields: &[(&str, &str)]| {
        let mut out = Vec::new();
        for (name, value) in fields {
            out.push(0);
            for text in [name, value] {
                out.push(text.len() as u8);
                out.extend_from_slice(text.as_bytes());
            }
        }
        out
    };
    let headers =
        |flags, fields: &[(&str, &str)]| frame(kind::HEADERS, flag::END_HEADERS | flags, 1, &plain(fields));
    let messages = [
        (
            CLIENT,
            with_preface(&[headers(flag::END_STREAM, &[(":method", "GET"), (":path", "/")])]),
        ),
        (
            SERVER,
            [
                headers(0, &[(":status", "103"), ("link", "early")]),
                headers(0, &[(":status", "200")]),
                frame(kind::DATA, 0, 1, b"body"),
                headers(flag::END_STREAM, &[("x-trailer", "late")]),
            ]
            .concat(),
        ),
    ];
    let (out, _) = run(&messages, 3);
    assert_eq!(out.list.len(), 1);
    let transaction = &out.list[0];
    assert!(transaction.is_complete());
    assert_eq!(
        transaction.buffer(Buffer::HttpStatCode, SERVER),
        Some(&b"200"[..])
    );
    assert_eq!(
        transaction.buffer(Buffer::HttpResponseBody, SERVER),
        Some(&b"body"[..])
    );
    assert_eq!(
        transaction.buffer(Buffer::HttpHeader, SERVER),
        Some(&b"x-trailer: late\r\n"[..])
    );
    let reset = [
        messages[0].clone(),
        (SERVER, frame(kind::RST_STREAM, 0, 1, &[0, 0, 0, 8])),
    ];
    assert!(run(&reset, 100).0.list[0].is_complete());
}

#[test]
fn headers_settings_and_errors_are_in_records_in_any_segmentation() {
    let settings = AppSettings {
        keeps_records: true,
        ..AppSettings::default()
    };
    let priority = [0, 0, 0, 0, 15];
    let block = [&priority[..], &[0x20], &hex(REQUESTS[0])].concat();
    let flags = flag::END_HEADERS | flag::END_STREAM;
    let messages = [
        (
            CLIENT,
            with_preface(&[
                frame(kind::SETTINGS, 0, 0, &[0, 3, 0, 0, 0, 100]),
                frame(kind::HEADERS, flags | flag::PRIORITY, 1, &block),
                frame(kind::PRIORITY, 0, 1, &[0, 0, 0, 0, 16]),
            ]),
        ),
        (SERVER, frame(kind::HEADERS, flags, 1, &hex(RESPONSE))),
        (SERVER, frame(kind::GOAWAY, 0, 0, &[0; 8])),
    ];
    let named = |name: &str, value: &str| {
        let mut fields = Fields::default();
        fields
            .text("name", name.as_bytes())
            .text("value", value.as_bytes());
        fields
    };
    let mut table = Fields::default();
    table.number("table_size_update", 0_u32);
    for step in 1..=messages[0].1.len() {
        let (out, _) = run_with(settings, &messages, step);
        assert_eq!(out.list.len(), 3, "{step}");
        let streams: Vec<Option<u32>> = (0..3).map(|at| record(&out, at).http2_stream).collect();
        assert_eq!(streams, [Some(0), Some(1), Some(0)], "{step}");
        let value = |at: usize, direction: Direction, name: &str| {
            let mut fields = record(&out, at).frames[direction.index()].clone();
            fields.value(name).cloned()
        };
        assert!(value(0, CLIENT, "settings").is_some(), "{step}");
        assert_eq!(value(1, CLIENT, "priority"), Some(Value::Number(15)), "{step}");
        let multiple = Value::Text(b"priority".to_vec());
        assert_eq!(value(1, CLIENT, "has_multiple"), Some(multiple), "{step}");
        let error = Value::Text(b"NOERROR".to_vec());
        assert_eq!(value(2, SERVER, "error_code"), Some(error), "{step}");
        let [request, response] = &record(&out, 1).headers;
        assert_eq!(request[0], table, "{step}");
        assert_eq!(request[1], named(":method", "GET"), "{step}");
        assert_eq!(response[0], named(":status", "302"), "{step}");
        assert_eq!((request.len(), response.len()), (5, 4), "{step}");
    }
    // Without records, only streams are transactions, and they have no headers.
    let (out, _) = run(&messages, 100);
    assert_eq!(out.list.len(), 1);
    assert!(record(&out, 0).headers.iter().all(Vec::is_empty));
}
