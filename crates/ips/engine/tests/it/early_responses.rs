//! Responses of HTTP that begin before the line of their request is complete.

use millrace_ips_engine::app::record::Record;
use millrace_ips_engine::{Event, Mode, Settings};
use millrace_wire::tcp::flags::{ACK, RST};

use crate::bed::{HOST_A, HOST_B, TestBed};
use crate::conversation::Conversation;

const MODES: [Mode; 2] = [Mode::Ids, Mode::Ips];

fn open(mode: Mode, rules: &str) -> (TestBed, Conversation) {
    let settings = Settings {
        mode,
        records: true,
        ..Settings::default()
    };
    let mut bed = TestBed::with(settings, rules);
    let talk = Conversation::open(&mut bed, (HOST_A, 40_000), (HOST_B, 80));
    (bed, talk)
}

/// Returns the URLs of the records of HTTP.
fn urls(bed: &TestBed) -> Vec<String> {
    let url = |event: &Event| match event {
        Event::Transaction(transaction) => match &transaction.record {
            Record::Http(record) => Some(String::from_utf8_lossy(&record.url).into_owned()),
            _ => None,
        },
        _ => None,
    };
    bed.events().iter().filter_map(url).collect()
}

#[test]
fn a_line_that_a_reset_cuts_and_its_response_are_one_record_and_match_a_rule_over_both() {
    let rules = "alert http any any => any any (http.uri; content:\"/\"; http.response_body; content:\"hi\"; sid:1;)\n\
        alert http any any -> any any (http.uri; content:\"/\"; bsize:1; sid:2;)\n\
        alert http any any -> any any (http.response_body; content:\"<html>hi</html>\"; sid:3;)\n";
    for mode in MODES {
        for step in [1, 4, 100] {
            let (mut bed, mut talk) = open(mode, rules);
            for part in b"GET /".chunks(step) {
                talk.client(&mut bed, part);
            }
            for part in b"<html>hi</html>".chunks(step) {
                talk.server(&mut bed, part);
            }
            talk.send(&mut bed, 0, RST | ACK, &[]);
            bed.finish();
            assert_eq!(urls(&bed), ["/"], "{mode:?} {step}");
            assert_eq!(
                bed.sids().into_iter().collect::<Vec<_>>(),
                [1, 2, 3],
                "{mode:?} {step}"
            );
        }
    }
}

#[test]
fn in_line_a_request_that_goes_on_behind_its_response_is_inspected_before_it_is_forwarded() {
    const REQUEST: &[u8] = b"GET /evil HTTP/1.1\r\nHost: a\r\nUser-Agent: bad\r\n\r\n";
    const RESPONSE: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi";
    for (rule, end) in [
        (
            "drop http any any -> any any (http.uri; content:\"/evil\"; sid:1;)",
            b"1.1\r\n".as_slice(),
        ),
        (
            "drop http any any -> any any (http.user_agent; content:\"bad\"; sid:1;)",
            b"bad\r\n\r\n",
        ),
    ] {
        let last = REQUEST
            .windows(end.len())
            .position(|window| window == end)
            .unwrap()
            + end.len()
            - 1;
        for cut in 4..last {
            let (mut bed, mut talk) = open(Mode::Ips, rule);
            assert!(!talk.client(&mut bed, &REQUEST[..cut]), "{cut}");
            assert!(!talk.server(&mut bed, RESPONSE), "{cut}");
            assert!(!talk.client(&mut bed, &REQUEST[cut..last]), "{cut}");
            assert!(talk.client(&mut bed, &REQUEST[last..]), "{cut}");
            bed.finish();
            assert_eq!(urls(&bed), ["/evil"], "{cut}");
        }
    }
}
