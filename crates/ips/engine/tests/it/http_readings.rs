//! The alerts and verdicts on HTTP messages with several readings, and on messages that only seem to have them.

use millrace_ips_engine::policy::{Cause, Policies, Policy};
use millrace_ips_engine::{Event, Mode, Settings};

use crate::bed::{HOST_A, HOST_B, TestBed};
use crate::conversation::Conversation;

const MODES: [Mode; 2] = [Mode::Ids, Mode::Ips];
const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";

/// Sends a request and a response in segments; returns the test bed, and true if packets were dropped.
fn exchanged(
    (mode, policies): (Mode, Policies),
    rules: &str,
    (request, response): (&[u8], &[u8]),
    segment: usize,
) -> (TestBed, bool) {
    let settings = Settings {
        mode,
        policies,
        records: true,
        ..Settings::default()
    };
    let mut bed = TestBed::with(settings, rules);
    let mut talk = Conversation::open(&mut bed, (HOST_A, 40_000), (HOST_B, 80));
    let mut is_dropped = false;
    for part in request.chunks(segment) {
        is_dropped |= talk.client(&mut bed, part);
    }
    for part in response.chunks(segment) {
        is_dropped |= talk.server(&mut bed, part);
    }
    talk.close(&mut bed);
    bed.finish();
    (bed, is_dropped)
}

fn anomalies(bed: &TestBed) -> Vec<&'static str> {
    let of = |event: &Event| match event {
        Event::Transaction(transaction) => transaction.anomalies.clone(),
        _ => Vec::new(),
    };
    bed.events().iter().flat_map(of).collect()
}

fn forwarding() -> Policies {
    Policies::default().with(Cause::AmbiguousMessage, Policy::Ignore)
}

#[test]
fn a_rule_raises_one_alert_for_a_message_however_many_readings_match() {
    let requests: [&[u8]; 4] = [
        b"POST /form HTTP/1.1\r\nHost: a\r\nContent-Length: 4, 0\r\n\r\nbody",
        b"POST /form HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
        b"POST /form HTTP/1.1\nHost: a\r\nContent-Length: 4\r\n\r\nbody",
        b"POST /form HTTP/1.0\r\nTransfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n0\r\n\r\n",
    ];
    let rule = "alert http any any -> any any (http.uri; content:\"/form\"; sid:1;)";
    for request in requests {
        for mode in MODES {
            for segment in [1, 7, 1400] {
                let (bed, _) = exchanged((mode, forwarding()), rule, (request, b""), segment);
                assert_eq!(bed.alerts(), 1, "{mode:?} {segment} {}", request.escape_ascii());
            }
        }
    }
}

#[test]
fn hidden_messages_leave_the_alerts_to_those_that_hide_them() {
    let request =
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 99, 0\r\n\r\nGET /hidden HTTP/1.1\r\nHost: a\r\n\r\n";
    let hidden = |sid| format!("alert http any any -> any any (http.uri; content:\"/hidden\"; sid:{sid};)\n");
    let own = |sid| format!("alert http any any -> any any (http.method; content:\"POST\"; sid:{sid};)\n");
    let rules: String = (1..=10).map(hidden).chain((11..=20).map(own)).collect();
    for mode in MODES {
        let (bed, _) = exchanged((mode, forwarding()), &rules, (request, b""), 1400);
        let sids = bed.sids();
        assert!((11..=20).all(|sid| sids.contains(&sid)), "{mode:?} {sids:?}");
        assert!(sids.contains(&1), "{mode:?} {sids:?}");
    }
}

#[test]
fn the_policy_for_ambiguous_messages_decides_about_them() {
    let request = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4, 0\r\n\r\nbody";
    for (policies, drops) in [(Policies::closed(), true), (forwarding(), false)] {
        let (_, is_dropped) = exchanged((Mode::Ips, policies), "", (request, b""), 1400);
        assert_eq!(is_dropped, drops);
    }
}

#[test]
fn a_server_that_does_not_speak_http_has_one_reading_unless_a_status_line_follows() {
    let banners: [&[u8]; 3] = [
        b"SSH-2.0-OpenSSH_8.7\r\n",
        b"0123456789abcdef0123456789abcdef",
        b"<html>\n</html>\n",
    ];
    for banner in banners {
        for segment in [1, 7, 1400] {
            let policies = Policies::closed();
            let (bed, is_dropped) = exchanged((Mode::Ips, policies), "", (REQUEST, banner), segment);
            assert!(!is_dropped && !anomalies(&bed).contains(&"http.ambiguous_start_line"));
            let hidden = [banner, b"\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"].concat();
            let (bed, is_dropped) = exchanged((Mode::Ips, policies), "", (REQUEST, &hidden), segment);
            assert!(is_dropped && anomalies(&bed).contains(&"http.ambiguous_start_line"));
        }
    }
}

#[test]
fn white_space_before_a_method_is_an_anomaly_with_one_reading() {
    let request = b" GET /txt HTTP/1.1\r\nHost: a\r\n\r\n";
    let (bed, is_dropped) = exchanged((Mode::Ips, Policies::closed()), "", (request, b""), 1400);
    assert!(!is_dropped && anomalies(&bed).contains(&"http.request_line_leading_whitespace"));
}

#[test]
fn a_request_without_protocol_ends_with_its_line_or_with_headers() {
    let rules = "alert http any any -> any any (http.uri; content:\"/second\"; sid:1;)\n\
        alert http any any -> any any (http.uri; content:\"/first\"; sid:2;)\n";
    let firsts = [
        "GET /first",
        "GET  /first",
        "GET\t/first",
        "get /first",
        "GET /first\t",
        "POST /first",
    ];
    let ends = ["\r\n", "\n"];
    let seconds = [
        "GET /second",
        "GET /second HTTP/1.1",
        "GET /second HTTP/1.0",
        "POST /second HTTP/1.1",
        "HEAD /second",
    ];
    let behind = [
        "\r\n\r\n",
        "\n\n",
        "\r\nHost: a\r\n\r\n",
        "\r\nContent-Length: 0\r\n\r\n",
    ];
    let mut variants = 0;
    for (first, end) in firsts.iter().flat_map(|first| ends.map(|end| (first, end))) {
        for (second, behind) in seconds
            .iter()
            .flat_map(|second| behind.map(|behind| (second, behind)))
        {
            let request = format!("{first}{end}{second}{behind}");
            variants += 1;
            for segment in [3, 1400] {
                let (bed, is_dropped) = exchanged(
                    (Mode::Ips, Policies::closed()),
                    rules,
                    (request.as_bytes(), b""),
                    segment,
                );
                assert!(
                    is_dropped || bed.sids().contains(&1),
                    "in line, {segment}: {request:?}"
                );
                let (bed, _) = exchanged(
                    (Mode::Ids, Policies::closed()),
                    rules,
                    (request.as_bytes(), b""),
                    segment,
                );
                assert_eq!(
                    bed.sids(),
                    [1, 2].into(),
                    "beside the path, {segment}: {request:?}"
                );
            }
        }
    }
    assert!(variants >= 200, "{variants}");
    // Without bytes behind the line, all recipients read the same.
    let (bed, is_dropped) = exchanged(
        (Mode::Ips, Policies::closed()),
        rules,
        (b"GET /first\r\n", b""),
        1400,
    );
    assert!(!is_dropped && bed.sids() == [2].into());
}

#[test]
fn a_uri_with_white_space_is_inspected_as_a_whole_and_up_to_the_space() {
    let rules = "alert http any any -> any any (http.uri; content:\"needle\"; sid:1;)\n\
        alert http any any -> any any (http.uri; content:\"/a?q=1\"; endswith; sid:2;)\n";
    let separators = [" ", "\t", "\x0b", "\x0c", "  ", " \t", "\t "];
    let mut variants = 0;
    for (one, two, three) in separators.iter().flat_map(|one| {
        separators
            .iter()
            .flat_map(move |two| separators.map(|three| (one, two, three)))
    }) {
        let request = format!("GET /a?q=1{one}needle{two}2{three}HTTP/1.1\r\nHost: h\r\n\r\n");
        variants += 1;
        for segment in [5, 1400] {
            let (bed, is_dropped) = exchanged(
                (Mode::Ips, Policies::closed()),
                rules,
                (request.as_bytes(), b""),
                segment,
            );
            assert!(
                is_dropped || bed.sids().contains(&1),
                "in line, {segment}: {request:?}"
            );
            let (bed, _) = exchanged(
                (Mode::Ids, Policies::closed()),
                rules,
                (request.as_bytes(), b""),
                segment,
            );
            assert_eq!(
                bed.sids(),
                [1, 2].into(),
                "beside the path, {segment}: {request:?}"
            );
        }
    }
    assert!(variants >= 200, "{variants}");
}
