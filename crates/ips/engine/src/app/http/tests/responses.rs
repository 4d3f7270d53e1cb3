//! Responses without body, interim responses, and the names of files.

use millrace_ips_rules::buffers::Buffer;

use super::{DOWN, UP, feed, parsed, text};
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
