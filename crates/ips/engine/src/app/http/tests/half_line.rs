//! Responses that begin before the line of their request is complete.

use millrace_ips_rules::buffers::Buffer;

use super::{DOWN, REQUEST, RESPONSE, UP, parsed_with, text};
use crate::app::AppSettings;
use crate::app::record::Record;
use crate::app::transaction::Transactions;
use crate::flow::Direction;

const UNMATCHED: &str = "http.unable_to_match_response_to_request";

/// Returns the transactions of messages in both modes, each in several segmentations.
fn in_both_modes(messages: &[(Direction, &[u8])], check: impl Fn(&Transactions)) {
    for is_inline in [false, true] {
        for step in [1, 3, 4096] {
            let settings = AppSettings {
                is_inline,
                ..AppSettings::default()
            };
            check(&parsed_with(settings, messages, step).transactions);
        }
    }
}

fn url(out: &Transactions, index: usize) -> String {
    match &out.list[index].record {
        Record::Http(record) => String::from_utf8_lossy(&record.url).into_owned(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_line_without_end_is_the_request_of_the_response_that_follows() {
    in_both_modes(&[(UP, b"GET /"), (DOWN, b"<html>hi</html>")], |out| {
        assert_eq!(out.list.iter().filter(|one| !one.is_reading).count(), 1);
        assert_eq!(text(out, 0, Buffer::HttpUri, UP), "/");
        assert_eq!(text(out, 0, Buffer::HttpResponseBody, DOWN), "<html>hi</html>");
        assert_eq!(url(out, 0), "/");
        assert!(!out.list[0].events.contains(&UNMATCHED));
        assert!(out.list[0].events.contains(&"http.request_line_incomplete"));
        assert!(out.list[0].is_complete());
    });
}

#[test]
fn a_request_that_goes_on_behind_its_response_stays_one_request() {
    let next = b"GET /next HTTP/1.1\r\nHost: a\r\n\r\n";
    for cut in 4..REQUEST.len() {
        let (first, rest) = REQUEST.split_at(cut);
        let messages = [
            (UP, first),
            (DOWN, RESPONSE),
            (UP, rest),
            (UP, next),
            (DOWN, RESPONSE),
        ];
        in_both_modes(&messages, |out| {
            assert_eq!(out.list.len(), 2, "{cut}");
            assert_eq!(text(out, 0, Buffer::HttpUri, UP), "/b c?q=A", "{cut}");
            assert_eq!(text(out, 0, Buffer::HttpUserAgent, UP), "a b", "{cut}");
            assert_eq!(text(out, 0, Buffer::HttpResponseBody, DOWN), "hello", "{cut}");
            assert_eq!(text(out, 1, Buffer::HttpUri, UP), "/next", "{cut}");
            assert_eq!(text(out, 1, Buffer::HttpStatCode, DOWN), "200", "{cut}");
            assert_eq!(out.list[0].begin, [Some(0); 2], "{cut}");
            assert!(
                out.list.iter().all(|one| !one.events.contains(&UNMATCHED)),
                "{cut}"
            );
        });
    }
}

#[test]
fn a_second_response_to_an_incomplete_line_has_a_transaction_of_its_own() {
    let whole: &[u8] = b"GET /1 HTTP/1.1\r\nHost: a\r\n\r\n";
    let messages = [
        (UP, whole),
        (DOWN, RESPONSE),
        (UP, b"GET /2"),
        (DOWN, RESPONSE),
        (DOWN, RESPONSE),
    ];
    in_both_modes(&messages, |out| {
        assert_eq!([url(out, 0), url(out, 1)], ["/1", "/2"]);
        assert_eq!(text(out, 1, Buffer::HttpResponseBody, DOWN), "hello");
        assert_eq!(out.list.len(), 3);
        assert!(out.list[2].events.contains(&UNMATCHED));
        assert_eq!(text(out, 2, Buffer::HttpResponseBody, DOWN), "hello");
    });
}

#[test]
fn the_method_of_an_incomplete_line_decides_about_the_body_of_the_response() {
    let head = [(UP, &b"HEAD /1"[..]), (DOWN, &RESPONSE[..RESPONSE.len() - 5])];
    let rest = [
        (
            UP,
            &b" HTTP/1.1\r\nHost: a\r\n\r\nGET /2 HTTP/1.1\r\nHost: a\r\n\r\n"[..],
        ),
        (DOWN, RESPONSE),
    ];
    in_both_modes(&[head, rest].concat(), |out| {
        assert_eq!([url(out, 0), url(out, 1)], ["/1", "/2"]);
        assert_eq!(text(out, 0, Buffer::HttpResponseBody, DOWN), "(none)");
        assert_eq!(text(out, 1, Buffer::HttpResponseBody, DOWN), "hello");
    });
}

#[test]
fn an_incomplete_line_that_may_begin_no_request_gets_no_response() {
    let whole: &[u8] = b"GET /1 HTTP/1.1\r\nHost: a\r\n\r\n";
    for half in [&b"GE"[..], b"CONNECT a:443"] {
        in_both_modes(&[(UP, half), (DOWN, RESPONSE)], |out| {
            assert_eq!(out.list.len(), 2);
            assert!(out.list[0].events.contains(&UNMATCHED));
            assert_eq!(text(out, 0, Buffer::HttpResponseBody, DOWN), "hello");
        });
    }
    let messages = [
        (UP, whole),
        (DOWN, RESPONSE),
        (UP, &b"noise "[..]),
        (DOWN, RESPONSE),
    ];
    in_both_modes(&messages, |out| assert!(out.list[1].events.contains(&UNMATCHED)));
}
