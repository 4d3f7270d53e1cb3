//! Scenarios of HTTP connections, each in several segmentations.

use std::collections::VecDeque;

use millrace_ips_rules::buffers::Buffer;

mod half_line;
mod responses;
mod segmentation;

use super::{Http, LINE_SIZE};
use crate::app::parser::{Outcome, Parser};
use crate::app::record::Record;
use crate::app::transaction::{Transaction, Transactions};
use crate::app::{AppSettings, Progress};
use crate::flow::Direction;
use crate::tcp::StreamChunk;

const UP: Direction = Direction::ToServer;
const DOWN: Direction = Direction::ToClient;

fn feed(http: &mut Http, out: &mut Transactions, direction: Direction, bytes: &[u8]) -> Outcome {
    http.data(StreamChunk::of(direction, bytes), out)
}

/// Parses messages in turn, each cut into segments of `step` bytes.
fn parsed(messages: &[(Direction, &[u8])], step: usize) -> Transactions {
    parsed_with(AppSettings::default(), messages, step).transactions
}

/// The outcome of messages that were parsed.
struct Parsed {
    transactions: Transactions,
    /// The outcome of the last bytes.
    outcome: Outcome,
    /// True if readings made room for others.
    has_replaced: bool,
}

/// Parses messages as a flow does: until the parser fails, or the flow changes its protocol.
fn parsed_with(settings: AppSettings, messages: &[(Direction, &[u8])], step: usize) -> Parsed {
    let mut http = Http::new(settings);
    let mut out = Transactions::default();
    let segments = |(direction, bytes): &(Direction, &[u8])| -> Vec<(Direction, Vec<u8>)> {
        bytes
            .chunks(step)
            .map(|segment| (*direction, segment.to_vec()))
            .collect()
    };
    let mut queue: VecDeque<_> = messages.iter().flat_map(segments).collect();
    let mut outcome = Outcome::Continue;
    while let Some((direction, bytes)) = queue.pop_front() {
        outcome = feed(&mut http, &mut out, direction, &bytes);
        match &mut outcome {
            Outcome::Continue => {}
            Outcome::Paused { rest } => {
                for (direction, held) in rest.iter_mut().rev() {
                    queue.push_front((*direction, core::mem::take(held)));
                }
            }
            Outcome::Failed | Outcome::Switch { .. } => break,
        }
    }
    http.end(UP, &mut out);
    http.end(DOWN, &mut out);
    Parsed {
        transactions: out,
        outcome,
        has_replaced: http.alternatives.has_replaced,
    }
}

/// Returns the parts of all transactions that must not depend on the segmentation.
fn essence(out: &Transactions) -> String {
    let (own, readings) = essences(out);
    own + &readings
}

/// Returns these parts of the usual transactions, and of those of further readings.
fn essences(out: &Transactions) -> (String, String) {
    let of = |transaction: &Transaction| {
        let mut text = format!(
            "{:?} {:?} {:?}\n",
            transaction.begin, transaction.progress, transaction.events
        );
        for names in millrace_ips_rules::buffers::BUFFERS {
            for direction in [UP, DOWN] {
                for view in transaction.buffers(names.buffer, direction) {
                    text += &format!(
                        "{:?} {direction:?} {:?}\n",
                        names.buffer,
                        view.bytes.escape_ascii().to_string()
                    );
                }
            }
        }
        text
    };
    let all = out.list.iter();
    let (readings, own): (Vec<_>, Vec<_>) = all.partition(|transaction| transaction.is_reading);
    // Further readings are independent of each other: they have no order.
    let mut readings: Vec<String> = readings.into_iter().map(of).collect();
    readings.sort();
    (own.into_iter().map(of).collect(), readings.concat())
}

fn text(out: &Transactions, index: usize, buffer: Buffer, direction: Direction) -> String {
    String::from_utf8_lossy(out.list[index].buffer(buffer, direction).unwrap_or(b"(none)")).into_owned()
}

const REQUEST: &[u8] =
    b"GET http://Www.Example.org:8080/a/../b%20c?q=%41 HTTP/1.1\r\nHost: www.example.org\r\n\
    User-Agent: a\r\n b\r\nCookie: id=1\r\nAccept: */*\r\n\r\n";
const RESPONSE: &[u8] =
    b"HTTP/1.1 200 All Right\r\nServer: x\r\nSet-Cookie: k=v\r\nContent-Length: 5\r\n\r\nhello";

#[test]
fn every_buffer_of_a_request_and_its_response_is_published() {
    for step in [1, 2, 3, 10, 1000] {
        let out = parsed(&[(UP, REQUEST), (DOWN, RESPONSE)], step);
        assert_eq!(out.list.len(), 1);
        assert_eq!(text(&out, 0, Buffer::HttpMethod, UP), "GET");
        assert_eq!(text(&out, 0, Buffer::HttpUri, UP), "/b c?q=A");
        assert_eq!(
            text(&out, 0, Buffer::HttpUriRaw, UP),
            "http://Www.Example.org:8080/a/../b%20c?q=%41"
        );
        assert_eq!(text(&out, 0, Buffer::HttpHost, UP), "www.example.org");
        assert_eq!(text(&out, 0, Buffer::HttpHostRaw, UP), "Www.Example.org");
        assert_eq!(text(&out, 0, Buffer::HttpUserAgent, UP), "a b");
        assert_eq!(text(&out, 0, Buffer::HttpCookie, UP), "id=1");
        assert_eq!(
            text(&out, 0, Buffer::HttpHeader, UP),
            "Host: www.example.org\r\nUser-Agent: a b\r\nAccept: */*\r\n"
        );
        assert_eq!(
            text(&out, 0, Buffer::HttpHeaderNames, UP),
            "\r\nHost\r\nUser-Agent\r\nCookie\r\nAccept\r\n\r\n"
        );
        assert_eq!(text(&out, 0, Buffer::HttpStatCode, DOWN), "200");
        assert_eq!(text(&out, 0, Buffer::HttpStatMsg, DOWN), "All Right");
        assert_eq!(text(&out, 0, Buffer::HttpCookie, DOWN), "k=v");
        assert_eq!(
            text(&out, 0, Buffer::HttpHeader, DOWN),
            "Server: x\r\nContent-Length: 5\r\n"
        );
        assert_eq!(text(&out, 0, Buffer::HttpResponseBody, DOWN), "hello");
        assert_eq!(text(&out, 0, Buffer::FileData, DOWN), "hello");
        assert_eq!(out.list[0].progress, [Progress::Complete; 2]);
        let Record::Http(record) = &out.list[0].record else {
            panic!("an HTTP record")
        };
        assert_eq!(
            (record.status, record.length, record.port),
            (Some(200), 5, Some(8080))
        );
    }
}

#[test]
fn pipelined_requests_meet_their_responses() {
    let requests =
        b"GET /1 HTTP/1.1\r\nHost: a\r\n\r\nPOST /2 HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc\
        GET /3 HTTP/1.1\r\nHost: a\r\n\r\n";
    let responses =
        b"HTTP/1.1 201 A\r\nContent-Length: 0\r\n\r\nHTTP/1.1 202 B\r\nContent-Length: 1\r\n\r\nx\
        HTTP/1.1 204 C\r\n\r\n";
    let out = parsed(&[(UP, requests), (DOWN, responses)], 7);
    let codes: Vec<_> = (0..3)
        .map(|index| text(&out, index, Buffer::HttpStatCode, DOWN))
        .collect();
    assert_eq!(codes, ["201", "202", "204"]);
    assert_eq!(text(&out, 1, Buffer::HttpRequestBody, UP), "abc");
}

#[test]
fn chunks_with_extensions_and_trailers_are_joined() {
    let response = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4;x=y\r\nWiki\r\n5\r\npedia\r\n0\r\nT: 1\r\n\r\n\
        HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nz";
    let requests = b"GET /1 HTTP/1.1\r\nHost: a\r\n\r\nGET /2 HTTP/1.1\r\nHost: a\r\n\r\n";
    for step in [1, 4, 500] {
        let out = parsed(&[(UP, requests), (DOWN, response)], step);
        assert_eq!(text(&out, 0, Buffer::HttpResponseBody, DOWN), "Wikipedia");
        assert_eq!(text(&out, 1, Buffer::HttpResponseBody, DOWN), "z");
        assert_eq!(out.list[0].events, ["http.response_chunk_extension"]);
    }
}

#[test]
fn a_body_without_length_lasts_until_the_end_of_the_stream() {
    let out = parsed(
        &[
            (UP, b"GET / HTTP/1.0\r\n\r\n"),
            (DOWN, b"HTTP/1.0 200 OK\r\n\r\nHTTP/1.0 is not a line\r\n"),
        ],
        5,
    );
    assert_eq!(
        text(&out, 0, Buffer::HttpResponseBody, DOWN),
        "HTTP/1.0 is not a line\r\n"
    );
}

#[test]
fn http_09_has_no_headers_and_a_body_at_once() {
    let out = parsed(&[(UP, b"GET /old\r\n"), (DOWN, b"<html>x</html>")], 3);
    assert_eq!(text(&out, 0, Buffer::HttpUri, UP), "/old");
    assert_eq!(text(&out, 0, Buffer::HttpResponseBody, DOWN), "<html>x</html>");
}

#[test]
fn a_request_line_without_protocol_may_have_headers() {
    let out = parsed(&[(UP, b"GET /x\r\nHost: a\r\n\r\n")], 2);
    assert_eq!(text(&out, 0, Buffer::HttpHost, UP), "a");
    assert_eq!(
        out.list[0].events,
        ["http.request_line_missing_protocol", "http.ambiguous_start_line"]
    );
}

#[test]
fn an_interim_response_precedes_the_final_one() {
    let request = b"POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n";
    let response = b"HTTP/1.1 100 Continue\r\nX: y\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
    let out = parsed(
        &[
            (UP, request),
            (DOWN, &response[..30]),
            (UP, b"ok"),
            (DOWN, &response[30..]),
        ],
        6,
    );
    assert_eq!(out.list.len(), 1);
    assert_eq!(text(&out, 0, Buffer::HttpStatCode, DOWN), "200");
    assert_eq!(text(&out, 0, Buffer::HttpHeader, DOWN), "Content-Length: 0\r\n");
    assert_eq!(text(&out, 0, Buffer::HttpRequestBody, UP), "ok");
}

#[test]
fn a_refused_body_is_not_waited_for() {
    let request = b"POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n";
    let out = parsed(
        &[
            (UP, request),
            (DOWN, b"HTTP/1.1 417 No\r\nContent-Length: 0\r\n\r\n"),
            (UP, b"GET /next HTTP/1.1\r\nHost: a\r\n\r\n"),
        ],
        9,
    );
    assert_eq!(text(&out, 1, Buffer::HttpUri, UP), "/next");
}

#[test]
fn a_refused_body_is_not_that_of_a_later_request() {
    let requests = b"GET /1 HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\n\r\n\
        POST /2 HTTP/1.1\r\nHost: a\r\nContent-Length: 6\r\n\r\n";
    let refusal = b"HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n";
    let out = parsed(&[(UP, requests), (DOWN, refusal), (UP, b"attack")], 9);
    assert_eq!(text(&out, 1, Buffer::HttpRequestBody, UP), "attack");
}

#[test]
fn a_body_with_an_unknown_coding_is_as_long_as_its_length_says_and_refused_in_line() {
    let invalid = "http.invalid_transfer_encoding_value_in_request";
    for (coding, is_refused) in [("gzip", true), ("identity", false)] {
        let request = format!(
            "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: {coding}\r\nContent-Length: 6\r\n\r\nattack"
        );
        let out = parsed(&[(UP, request.as_bytes())], 7);
        assert_eq!(text(&out, 0, Buffer::HttpRequestBody, UP), "attack", "{coding}");
        assert!(out.list[0].events.contains(&invalid));
        let (mut http, mut out) = (
            Http::new(AppSettings::default().inline()),
            Transactions::default(),
        );
        let outcome = feed(&mut http, &mut out, UP, request.as_bytes());
        assert_eq!(
            (outcome == Outcome::Failed, http.is_strict()),
            (is_refused, is_refused),
            "{coding}"
        );
    }
}

#[test]
fn a_message_with_too_many_headers_is_refused() {
    let others = |len: usize| {
        (0..len)
            .map(|number| format!("X-{number}: 1\r\n"))
            .collect::<String>()
    };
    for (len, is_refused) in [(1022, false), (1023, true)] {
        let fields = format!("Host: a\r\n{}Content-Length: 6\r\n\r\nattack", others(len));
        for (direction, first, event) in [
            (UP, "POST / HTTP/1.1", "http.request_too_many_headers"),
            (DOWN, "HTTP/1.1 200 OK", "http.response_too_many_headers"),
        ] {
            let (mut http, mut out) = (Http::new(AppSettings::default()), Transactions::default());
            let outcome = feed(
                &mut http,
                &mut out,
                direction,
                format!("{first}\r\n{fields}").as_bytes(),
            );
            assert_eq!(
                (outcome == Outcome::Failed, http.is_strict()),
                (is_refused, is_refused),
                "{len}"
            );
            assert_eq!(out.list[0].events.contains(&event), is_refused, "{len}");
        }
    }
}

#[test]
fn a_response_to_head_has_no_body() {
    let out = parsed(
        &[
            (
                UP,
                b"HEAD / HTTP/1.1\r\nHost: a\r\n\r\nGET /2 HTTP/1.1\r\nHost: a\r\n\r\n",
            ),
            (
                DOWN,
                b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\nHTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n",
            ),
        ],
        11,
    );
    assert_eq!(text(&out, 1, Buffer::HttpStatCode, DOWN), "404");
}

#[test]
fn a_response_that_only_its_boundaries_end_is_refused() {
    let response_with = |status: &str, headers: &str| {
        let mut http = Http::new(AppSettings::default());
        let mut out = Transactions::default();
        feed(&mut http, &mut out, UP, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        let head =
            format!("HTTP/1.1 {status}\r\nContent-Type: multipart/byteranges; boundary=b\r\n{headers}\r\n");
        (feed(&mut http, &mut out, DOWN, head.as_bytes()), http.is_strict())
    };
    let response = |headers| response_with("206 Partial Content", headers);
    assert_eq!(
        response_with("304 Not Modified", ""),
        (Outcome::Continue, false),
        "it has no body"
    );
    assert_eq!(response(""), (Outcome::Failed, true));
    assert_eq!(response("Content-Length: 9\r\n"), (Outcome::Continue, false));
    assert_eq!(
        response("Transfer-Encoding: chunked\r\n"),
        (Outcome::Continue, false)
    );
}

#[test]
fn an_accepted_connect_changes_the_protocol_and_a_refused_one_does_not() {
    let mut http = Http::new(AppSettings::default());
    let mut out = Transactions::default();
    let connect = b"CONNECT a.example:443 HTTP/1.1\r\nHost: a.example\r\n\r\n";
    assert_eq!(feed(&mut http, &mut out, UP, connect), Outcome::Continue);
    assert_eq!(
        feed(&mut http, &mut out, DOWN, b"HTTP/1.1 200 OK\r\n\r\n"),
        Outcome::Continue
    );
    let hello = b"\x16\x03\x01\x00\x05hello";
    let rest = [hello.to_vec(), Vec::new()];
    assert_eq!(feed(&mut http, &mut out, UP, hello), Outcome::Switch { rest });

    let out = parsed(
        &[
            (UP, connect),
            (DOWN, b"HTTP/1.1 403 No\r\nContent-Length: 0\r\n\r\n"),
            (UP, b"GET /direct HTTP/1.1\r\nHost: a\r\n\r\n"),
        ],
        8,
    );
    assert_eq!(text(&out, 1, Buffer::HttpUri, UP), "/direct");
}

#[test]
fn headers_of_connect_count_with_the_response_beside_the_path_and_before_it_in_line() {
    let connect = b"CONNECT a.example:443 HTTP/1.1\r\nHost: a.example\r\n\r\n";
    for is_inline in [false, true] {
        let settings = AppSettings {
            is_inline,
            ..AppSettings::default()
        };
        let (mut http, mut out) = (Http::new(settings), Transactions::default());
        let has_headers = |out: &Transactions| out.list[0].buffer(Buffer::HttpHeaderNames, UP).is_some();
        feed(&mut http, &mut out, UP, connect);
        assert_eq!(has_headers(&out), is_inline);
        feed(
            &mut http,
            &mut out,
            DOWN,
            b"HTTP/1.1 403 No\r\nContent-Length: 0\r\n\r\n",
        );
        assert_eq!(
            has_headers(&out),
            is_inline,
            "a refused tunnel waits for the client"
        );
        feed(
            &mut http,
            &mut out,
            UP,
            b"GET /direct HTTP/1.1\r\nHost: a\r\n\r\n",
        );
        assert!(has_headers(&out));
        assert_eq!(text(&out, 1, Buffer::HttpUri, UP), "/direct");
    }
}

#[test]
fn a_server_that_sends_on_while_the_client_is_in_its_first_word_ends_http() {
    let mut http = Http::new(AppSettings::default());
    let mut out = Transactions::default();
    feed(&mut http, &mut out, UP, b"CONNECT a:80 HTTP/1.1\r\n\r\n");
    feed(&mut http, &mut out, DOWN, b"HTTP/1.1 200 OK\r\n\r\n");
    feed(&mut http, &mut out, UP, b"GE");
    let is_switch = |outcome: Outcome| matches!(outcome, Outcome::Switch { .. });
    assert!((0..100).any(|_| is_switch(feed(&mut http, &mut out, DOWN, &[7; 1000]))));
}

#[test]
fn an_early_interim_response_takes_no_byte_of_the_request_body() {
    let out = parsed(
        &[
            (UP, b"POST / HTTP/1.1\r\nHost: a\r\n"),
            (DOWN, b"HTTP/1.1 100 Continue\r\n"),
            (UP, b"Content-Length: 6\r\n\r\n"),
            (DOWN, b"\r\n"),
            (UP, b"secret"),
        ],
        1000,
    );
    assert_eq!(text(&out, 0, Buffer::HttpRequestBody, UP), "secret");
}

#[test]
fn http_inside_a_tunnel_is_followed() {
    let out = parsed(
        &[
            (UP, b"CONNECT a:80 HTTP/1.1\r\nHost: a\r\n\r\n"),
            (DOWN, b"HTTP/1.1 200 OK\r\n\r\n"),
            (UP, b"GET /inner HTTP/1.1\r\nHost: a\r\n\r\n"),
            (DOWN, b"HTTP/1.1 302 Found\r\nContent-Length: 0\r\n\r\n"),
        ],
        4,
    );
    assert_eq!(text(&out, 1, Buffer::HttpUri, UP), "/inner");
    assert_eq!(text(&out, 1, Buffer::HttpStatCode, DOWN), "302");
}

#[test]
fn an_upgrade_ends_http() {
    let mut http = Http::new(AppSettings::default());
    let mut out = Transactions::default();
    feed(
        &mut http,
        &mut out,
        UP,
        b"GET / HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\n\r\n",
    );
    let outcome = feed(
        &mut http,
        &mut out,
        DOWN,
        b"HTTP/1.1 101 Switching\r\nUpgrade: websocket\r\nContent-Length: 0\r\n\r\n\x81\x05",
    );
    assert_eq!(
        outcome,
        Outcome::Switch {
            rest: [Vec::new(), b"\x81\x05".to_vec()]
        }
    );
}

#[test]
fn length_against_coding_and_two_lengths_are_events() {
    let smuggled =
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n";
    let out = parsed(&[(UP, smuggled)], 5);
    assert!(
        out.list[0]
            .events
            .contains(&"http.invalid_transfer_encoding_value_in_request")
    );
    let twice = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nContent-Length: 5\r\n\r\nabcd";
    let out = parsed(&[(UP, twice)], 5);
    assert!(
        out.list[0]
            .events
            .contains(&"http.duplicate_content_length_field_in_request")
    );
    assert_eq!(text(&out, 0, Buffer::HttpRequestBody, UP), "abcd");
}

#[test]
fn a_compressed_body_is_inspected_plain() {
    use std::io::Write;
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(b"attack at dawn").unwrap();
    let body = encoder.finish().unwrap();
    let mut response = format!(
        "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: {}\r\n\r\n",
        body.len() + 9
    );
    response.push_str("");
    let mut bytes = response.into_bytes();
    bytes.extend_from_slice(&body);
    bytes.extend_from_slice(b"<garbage>");
    let out = parsed(&[(UP, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"), (DOWN, &bytes)], 3);
    assert_eq!(text(&out, 0, Buffer::HttpResponseBody, DOWN), "attack at dawn");
}

#[test]
fn a_response_without_request_has_a_transaction() {
    let out = parsed(&[(DOWN, RESPONSE)], 10);
    assert_eq!(
        text(&out, 0, Buffer::HttpUriRaw, UP),
        "/libhtp::request_uri_not_seen"
    );
    assert_eq!(out.list[0].events, ["http.unable_to_match_response_to_request"]);
    assert_eq!(text(&out, 0, Buffer::HttpStatCode, DOWN), "200");
}

#[test]
fn a_body_is_kept_up_to_its_limit() {
    let mut response = b"HTTP/1.1 200 OK\r\nContent-Length: 300000\r\n\r\n".to_vec();
    response.resize(response.len() + 300_000, b'x');
    let out = parsed(
        &[(UP, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"), (DOWN, &response)],
        1460,
    );
    assert_eq!(
        out.list[0].buffer(Buffer::HttpResponseBody, DOWN).unwrap().len(),
        100 << 10
    );
    assert_eq!(out.list[0].files[0].size, 300_000);
}

#[test]
fn a_gap_in_a_body_leaves_the_connection_in_step() {
    let mut http = Http::new(AppSettings::default());
    let mut out = Transactions::default();
    feed(
        &mut http,
        &mut out,
        UP,
        b"GET /1 HTTP/1.1\r\nHost: a\r\n\r\nGET /2 HTTP/1.1\r\nHost: a\r\n\r\n",
    );
    feed(
        &mut http,
        &mut out,
        DOWN,
        b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc",
    );
    let bytes = b"xyzHTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n";
    http.data(
        StreamChunk {
            direction: DOWN,
            offset: 0,
            bytes,
            gap_before: 4,
            is_end: false,
        },
        &mut out,
    );
    assert_eq!(text(&out, 1, Buffer::HttpStatCode, DOWN), "404");
    assert!(out.list[0].files[0].has_gaps);
}

#[test]
fn a_line_that_never_ends_stops_the_parser() {
    let mut http = Http::new(AppSettings::default());
    let mut out = Transactions::default();
    for _ in 0..100 {
        feed(&mut http, &mut out, UP, &[b'A'; 1000]);
    }
    assert!(out.events.contains(&"http.request_field_too_long"));
    assert!(http.request.pending.len() <= super::LINE_SIZE);
}
