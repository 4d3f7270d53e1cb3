//! Groups of expressions in records: of a rule, of a packet and of a flow.

use millrace_ips_engine::event::Alert;
use millrace_ips_engine::verdict::DropReason;
use millrace_ips_engine::{Event, Mode, Settings};

use crate::bed::TestBed;
use crate::frames::tcp;

type Pairs = Vec<(String, String)>;

fn text(pairs: &[(Vec<u8>, Vec<u8>)]) -> Pairs {
    let text = |bytes: &Vec<u8>| String::from_utf8(bytes.clone()).unwrap();
    pairs
        .iter()
        .map(|(name, value)| (text(name), text(value)))
        .collect()
}

fn pairs(list: &[(&str, &str)]) -> Pairs {
    list.iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect()
}

fn recording(mode: Mode, rules: &str) -> TestBed {
    let settings = Settings {
        mode,
        records: true,
        ..Settings::default()
    };
    TestBed::with(settings, rules)
}

/// Returns the first alert of a rule.
fn alert(bed: &TestBed, sid: u32) -> Alert {
    let of = |event: &Event| match event {
        Event::Alert(alert) if alert.sid == sid => Some(alert.clone()),
        _ => None,
    };
    bed.events().iter().find_map(of).unwrap()
}

fn request() -> (bool, Vec<u8>) {
    let uri = "/fr/x/curl/2.2.1/changelog";
    (
        false,
        format!("GET {uri} HTTP/1.1\r\nHost: a\r\nX-Odd: yes\r\nUser-Agent: b\r\n\r\n").into_bytes(),
    )
}

fn response() -> (bool, Vec<u8>) {
    (true, b"HTTP/1.1 203 No\r\nContent-Length: 0\r\n\r\n".to_vec())
}

const EXPRESSION: &str = "/([a-z]+)\\/[a-z]+\\/(.+)\\/(.+)\\/changelog$/U";

#[test]
fn groups_are_in_the_records_of_their_scope_in_any_segmentation() {
    let names = ["ua/ubuntu/repo", "ua/ubuntu/pkg/base", "ua/ubuntu/pkg/version"];
    let listed = |scope: &str| names.map(|name| format!("{scope}:{name}")).join(",");
    let rules = [
        format!("alert http any any -> any any (pcre:\"{EXPRESSION}, {}\"; sid:1;)\n", listed("flow")),
        format!("alert http any any -> any any (pcre:\"{EXPRESSION},{}\"; sid:2;)\n", listed("alert")),
        // The third name has no group.
        "alert http any any -> any any (pcre:\"/^\\/(..)\\/(.)/U,pkt:key,pkt:value,pkt:other\"; sid:3;)\n".to_owned(),
        "alert http any any -> any any (http.user_agent; pcre:\"/(?P<alert_agent>b)|(?P<flow_none>c)/\"; sid:4;)\n".to_owned(),
        "alert http any any -> any any (http.stat_code; content:\"203\"; sid:5;)\n".to_owned(),
    ];
    let values = pairs(&[(names[0], "fr"), (names[1], "curl"), (names[2], "2.2.1")]);
    for mode in [Mode::Ids, Mode::Ips] {
        for size in [1, 7, 1000] {
            let mut bed = recording(mode, &rules.concat());
            bed.send_all(tcp(80, &[request(), response()], size));
            bed.finish();
            let what = format!("{mode:?} {size}");
            let variables = |sid| text(&alert(&bed, sid).context.unwrap().variables);
            assert_eq!(text(&alert(&bed, 2).captured), values, "{what}");
            assert_eq!(text(&alert(&bed, 4).captured), pairs(&[("agent", "b")]), "{what}");
            assert_eq!(text(&alert(&bed, 1).captured), [], "{what}");
            // All alerts of the packet have the variable of the packet, and those of the flow the other ones.
            assert_eq!(
                text(&alert(&bed, 3).packet_variables),
                pairs(&[("fr", "x")]),
                "{what}"
            );
            assert_eq!(text(&alert(&bed, 5).packet_variables), [], "{what}");
            assert_eq!(
                (variables(1), variables(5)),
                (values.clone(), values.clone()),
                "{what}"
            );
            let of = |event: &Event| match event {
                Event::Flow(_, _, variables) => Some(text(&variables.variables)),
                _ => None,
            };
            let flows: Vec<Pairs> = bed.events().iter().filter_map(of).collect();
            assert_eq!(flows, [values.clone()], "{what}");
        }
    }
}

#[test]
fn groups_are_those_of_the_match_that_satisfies_the_rule() {
    let rules = "alert http any any -> any any (http.request_header; pcre:\"/^(.)/,alert:first\"; content:\"yes\"; sid:1;)\n\
        alert http any any -> any any (http.uri; pcre:\"/([a-z]+)\\//,alert:part\"; content:\"2.2\"; distance:0; within:3; sid:2;)\n\
        alert http any any -> any any (http.uri; pcre:!\"/(zz)/,alert:none\"; sid:3;)\n\
        alert http any any => any any (http.uri; pcre:\"/(2.2)/,alert:request\"; http.stat_code; pcre:\"/(2..)/,alert:response\"; sid:4;)\n";
    for mode in [Mode::Ids, Mode::Ips] {
        for size in [1, 1000] {
            let mut bed = recording(mode, rules);
            bed.send_all(tcp(80, &[request(), response()], size));
            bed.finish();
            let captured = |sid| text(&alert(&bed, sid).captured);
            // Of the headers, and of the parts of the path, the first one that matches the expression does not match the rule.
            assert_eq!(captured(1), pairs(&[("first", "X")]), "{mode:?} {size}");
            assert_eq!(captured(2), pairs(&[("part", "curl")]), "{mode:?} {size}");
            assert_eq!(captured(3), [], "{mode:?} {size}");
            // The request and the response match with different packets.
            assert_eq!(
                captured(4),
                pairs(&[("request", "2.2"), ("response", "203")]),
                "{mode:?} {size}"
            );
        }
    }
}

#[test]
fn a_dropped_packet_has_the_alert_of_the_rule_that_dropped_it() {
    let rules = "drop http any any -> any any (http.uri; content:\"changelog\"; sid:7; rev:3;)\n\
        reject http any any -> any any (http.user_agent; content:\"b\"; sid:8;)\n\
        alert http any any -> any any (http.host; content:\"a\"; sid:9;)\n";
    let drops = |mode, rules: &str| {
        let mut bed = recording(mode, rules);
        bed.send_all(tcp(80, &[request(), response()], 1000));
        bed.finish();
        let of = |event: &Event| match event {
            Event::Drop(_, reason, rule) => Some((*reason, rule.as_ref().map(|rule| (rule.sid, rule.rev)))),
            _ => None,
        };
        bed.events().iter().filter_map(of).collect::<Vec<_>>()
    };
    let found = drops(Mode::Ips, rules);
    assert_eq!(found[0], (DropReason::Rule, Some((7, 3))));
    // Later packets are dropped with their flow.
    assert!(found.len() > 1, "{found:?}");
    assert!(
        found[1..].iter().all(|drop| *drop == (DropReason::Flow, None)),
        "{found:?}"
    );
    assert_eq!(drops(Mode::Ids, rules), []);
    // A rule that raises no alert drops, too.
    let silent = "drop http any any -> any any (http.uri; content:\"changelog\"; noalert; sid:10;)\n";
    assert_eq!(drops(Mode::Ips, silent)[0], (DropReason::Rule, Some((10, 0))));
}
