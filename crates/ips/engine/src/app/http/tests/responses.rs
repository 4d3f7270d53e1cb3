//! Responses without body, interim responses, and the names of files.

use std::io::Write;

use millrace_ips_rules::buffers::Buffer;

use super::{DOWN, UP, feed, parsed, parsed_with, text};
use crate::app::AppSettings;
use crate::app::http::Http;
use crate::app::parser::Outcome;
use crate::app::transaction::Transactions;

#[test]
fn a_response_without_body_ends_with_its_headers_whatever_they_announce() {
    let requests = b"GET /1 HTTP/1.1\r\nHost: a\r\n\r\nGET /2 HTTP/1.1\r\nHost: a\r\n\r\n";
    for head in [
        "304 Not Modified\r\nContent-Length: 5000\r\n\r\n",
        "204 None\r\nTransfer-Encoding: chunked\r\n\r\n",
        "204 None\r\nContent-Length: 0\r\n\r\n\r\n",
    ] {
        let responses = format!("HTTP/1.1 {head}HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nattack");
        for step in [1, 3, 4096] {
            let out = parsed(&[(UP, requests), (DOWN, responses.as_bytes())], step);
            assert_eq!(text(&out, 0, Buffer::HttpStatCode, DOWN), head[..3]);
            assert_eq!(text(&out, 0, Buffer::FileData, DOWN), "(none)");
            assert_eq!(text(&out, 1, Buffer::HttpStatCode, DOWN), "200", "{head}");
            assert_eq!(text(&out, 1, Buffer::FileData, DOWN), "attack", "{head}");
        }
    }
}

#[test]
fn bytes_that_are_no_response_are_the_body_that_headers_announce_in_spite_of_the_status() {
    let request = b"GET /1 HTTP/1.1\r\nHost: a\r\n\r\n";
    for status in ["103", "204", "304"] {
        let response = format!("HTTP/1.1 {status} A\r\nContent-Length: 6\r\n\r\nHTTP-attack");
        for step in [1, 3, 4096] {
            let out = parsed(&[(UP, request), (DOWN, response.as_bytes())], step);
            assert_eq!(text(&out, 0, Buffer::HttpStatCode, DOWN), status);
            assert_eq!(text(&out, 0, Buffer::FileData, DOWN), "HTTP-a", "{status}");
        }
    }
}

#[test]
fn any_interim_response_precedes_the_final_one() {
    let requests = b"HEAD /1 HTTP/1.1\r\nHost: a\r\n\r\nGET /2 HTTP/1.1\r\nHost: a\r\n\r\n";
    let responses = b"HTTP/1.1 102 Processing\r\n\r\n\
        HTTP/1.1 103 Early Hints\r\nServer: early\r\nContent-Length: 9\r\n\r\n\
        HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n\
        HTTP/1.1 404 No\r\nContent-Length: 6\r\n\r\nattack";
    for step in [1, 5, 4096] {
        let out = parsed(&[(UP, requests), (DOWN, responses)], step);
        assert_eq!(out.list.len(), 2);
        assert_eq!(text(&out, 0, Buffer::HttpStatCode, DOWN), "200");
        assert_eq!(text(&out, 0, Buffer::HttpServer, DOWN), "(none)");
        assert_eq!(text(&out, 1, Buffer::HttpStatCode, DOWN), "404");
        assert_eq!(text(&out, 1, Buffer::HttpResponseBody, DOWN), "attack");
    }
}

#[test]
fn an_interim_response_does_not_refuse_a_tunnel() {
    let mut http = Http::new(AppSettings::default());
    let mut out = Transactions::default();
    feed(
        &mut http,
        &mut out,
        UP,
        b"CONNECT a.example:443 HTTP/1.1\r\nHost: a.example\r\n\r\n",
    );
    feed(&mut http, &mut out, DOWN, b"HTTP/1.1 102 Processing\r\n\r\n");
    feed(&mut http, &mut out, DOWN, b"HTTP/1.1 200 OK\r\n\r\n");
    let rest = [b"\x16\x03\x01".to_vec(), Vec::new()];
    assert_eq!(
        feed(&mut http, &mut out, UP, b"\x16\x03\x01"),
        Outcome::Switch { rest }
    );
}

#[test]
fn both_forms_of_a_file_name_are_published() {
    let response = b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\
        Content-Disposition: attachment; filename=a.txt; filename*=UTF-8''a.exe\r\n\r\nx";
    let out = parsed(
        &[(UP, b"GET /1 HTTP/1.1\r\nHost: a\r\n\r\n"), (DOWN, response)],
        4096,
    );
    let names: Vec<_> = out.list[0]
        .buffers(Buffer::FileName, DOWN)
        .map(|view| view.bytes)
        .collect();
    assert_eq!(names, [&b"a.exe"[..], b"a.txt"]);
    assert_eq!(out.list[0].files[0].name, b"a.exe");
}

#[test]
fn a_file_without_a_name_has_the_path_of_the_uri_and_rules_find_its_last_segment() {
    let response = b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx";
    for (target, expected) in [
        ("/a/b.exe?c=/d", &[&b"/a/b.exe"[..], b"b.exe"][..]),
        ("http://a/a/%62.exe", &[b"/a/b.exe", b"b.exe"]),
        ("/a/", &[b"/a/"]),
        ("/", &[b"/"]),
    ] {
        for (method, side) in [("GET", DOWN), ("PUT", UP)] {
            let body = if side == UP {
                "Content-Length: 1\r\n\r\nx"
            } else {
                "\r\n"
            };
            let request = format!("{method} {target} HTTP/1.1\r\nHost: a\r\n{body}");
            let out = parsed(&[(UP, request.as_bytes()), (DOWN, response)], 4096);
            let names: Vec<_> = out.list[0]
                .buffers(Buffer::FileName, side)
                .map(|view| view.bytes)
                .collect();
            assert_eq!(names, expected, "{method} {target}");
            let file = out.list[0].files.iter().find(|file| file.direction == side);
            assert_eq!(file.unwrap().name, expected[0]);
        }
    }
}

fn compressed(text: &[u8], layers: usize) -> Vec<u8> {
    (0..layers).fold(text.to_vec(), |data, _| {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        encoder.write_all(&data).unwrap();
        encoder.finish().unwrap()
    })
}

/// Returns a response with a coded body to a request.
fn coded(coding: &str, body: &[u8], settings: AppSettings, step: usize) -> Transactions {
    let size = body.len();
    let head = format!("HTTP/1.1 200 OK\r\nContent-Encoding: {coding}\r\nContent-Length: {size}\r\n\r\n");
    let response = [head.as_bytes(), body].concat();
    let request = (UP, &b"GET /1 HTTP/1.1\r\nHost: a\r\n\r\n"[..]);
    parsed_with(settings, &[request, (DOWN, &response)], step).transactions
}

#[test]
fn as_many_content_codings_are_undone_as_are_set() {
    const TOO_MANY: &str = "http.too_many_encoding_layers";
    for (layers, limit) in [(2, 2), (3, 2), (3, 3), (2, 1), (5, 5)] {
        let settings = AppSettings {
            content_codings: limit,
            ..AppSettings::default()
        };
        for step in [1, 7, 4096] {
            let coding = vec!["gzip"; layers].join(", ");
            let out = coded(&coding, &compressed(b"attack", layers), settings, step);
            let is_plain = text(&out, 0, Buffer::FileData, DOWN) == "attack";
            let is_noted = out.list[0].events.contains(&TOO_MANY);
            assert_eq!(
                (is_plain, is_noted),
                (layers <= limit, layers > limit),
                "{layers}, {limit}"
            );
            assert_eq!(out.list[0].is_ambiguous, layers > limit);
        }
    }
}

#[test]
fn deflate_behind_deflate_is_inspected_and_ambiguous() {
    let deflate = |text: &[u8]| {
        let mut encoder = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::default());
        encoder.write_all(text).unwrap();
        encoder.finish().unwrap()
    };
    for is_inline in [false, true] {
        let settings = AppSettings {
            is_inline,
            ..AppSettings::default()
        };
        for step in [1, 7, 4096] {
            let twice = [deflate(b"att"), deflate(b"ack")].concat();
            let out = coded("deflate", &twice, settings, step);
            assert_eq!(text(&out, 0, Buffer::FileData, DOWN), "attack");
            assert_eq!(out.list[0].events, ["http.ambiguous_content_encoding"]);
            assert!(out.list[0].is_ambiguous);
            let once = coded("deflate", &deflate(b"att"), settings, step);
            assert!(once.list[0].events.is_empty() && !once.list[0].is_ambiguous);
        }
    }
}
