//! Rules that change what the engine does (`config`), and rules that name the point of their evaluation.

use millrace_ips_engine::{Event, Mode, Settings};

use crate::bed::TestBed;
use crate::frames::{tcp, udp};

/// Returns a DNS query for a name of two labels.
fn query(id: u8, labels: [&str; 2]) -> Vec<u8> {
    let mut message = vec![0, id, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in labels {
        message.push(label.len() as u8);
        message.extend(label.as_bytes());
    }
    [&message[..], &[0, 0, 1, 0, 1]].concat()
}

fn bed(mode: Mode, rules: &str) -> TestBed {
    let settings = Settings {
        mode,
        records: true,
        ..Settings::default()
    };
    TestBed::with(settings, rules)
}

#[test]
fn a_config_rule_disables_the_records_of_its_transactions_and_raises_no_alert() {
    let rules = "config dns any any -> any any (dns.query; content:\"suricata\"; config: logging disable, type tx, scope tx; sid:1;)\n\
        alert dns any any -> any any (dns.query; content:\"example\"; sid:2;)\n";
    for mode in [Mode::Ids, Mode::Ips] {
        let mut bed = bed(mode, rules);
        for message in [query(1, ["suricata", "example"]), query(2, ["other", "example"])] {
            bed.send_all(vec![udp(53, false, &message)]);
        }
        bed.finish();
        let logged = bed
            .events()
            .iter()
            .filter(|event| matches!(event, Event::Transaction(_)));
        assert_eq!(logged.count(), 1, "{mode:?}");
        assert_eq!(
            (bed.sids().into_iter().collect::<Vec<_>>(), bed.alerts()),
            (vec![2], 2)
        );
    }
}

#[test]
fn a_config_rule_skips_the_tracking_of_flows_for_its_packets() {
    let rules = "config tcp:pre_flow any any <> any 666 (config: tracking disable, type flow, scope packet; sid:1;)\n\
        alert tcp any any -> any any (flow:established; content:\"word\"; sid:2;)\n\
        alert tcp-pkt any any -> any 666 (content:\"word\"; sid:3;)\n";
    let messages = [(false, b"a word".to_vec()), (true, b"the answer".to_vec())];
    for mode in [Mode::Ids, Mode::Ips] {
        let flows = |port| {
            let mut bed = bed(mode, rules);
            bed.send_all(tcp(port, &messages, 1000));
            bed.finish();
            let flows = bed
                .events()
                .iter()
                .filter(|event| matches!(event, Event::Flow(..)))
                .count();
            (flows, bed.sids().into_iter().collect::<Vec<_>>())
        };
        assert_eq!(flows(666), (0, vec![3]), "{mode:?}");
        assert_eq!(flows(667), (1, vec![2]), "{mode:?}");
    }
}

#[test]
fn a_rule_with_a_hook_is_evaluated_at_its_point() {
    let rules = "alert http1:request_headers any any -> any any (http.uri; content:\"/a\"; sid:1;)\n\
        alert http1:request_complete any any -> any any (msg:\"each request\"; sid:2;)\n\
        alert http:response_complete any any -> any any (http.stat_code; content:\"200\"; sid:3;)\n\
        alert http:response_started any any -> any any (http.stat_code; content:\"404\"; sid:4;)\n\
        alert tcp:flow_start any any -> any any (msg:\"each flow\"; sid:5;)\n\
        alert tcp:all any any -> any any (flags:S; sid:6;)\n\
        alert http1:request_complete any any -> any any (http.request_body; content:\"half\"; sid:7;)\n";
    let request = |uri: &str| {
        (
            false,
            format!("GET {uri} HTTP/1.1\r\nHost: a\r\n\r\n").into_bytes(),
        )
    };
    let response = (true, b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok".to_vec());
    let cut = b"POST /c HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nhalf".to_vec();
    let messages = [
        request("/a"),
        response.clone(),
        request("/b"),
        response,
        (false, cut),
    ];
    for mode in [Mode::Ids, Mode::Ips] {
        for size in [1000, 1, 7] {
            let mut bed = bed(mode, rules);
            let packets = tcp(80, &messages, size);
            bed.send_all(packets[..packets.len() - 3].to_vec());
            let mut found: Vec<u32> = bed
                .events()
                .iter()
                .filter_map(|event| match event {
                    Event::Alert(alert) => Some(alert.sid),
                    _ => None,
                })
                .collect();
            found.sort_unstable();
            assert_eq!(found, [1, 2, 2, 3, 3, 5, 6], "{mode:?} {size}");
        }
    }
}

/// Returns the rules that alert over a TCP connection, in order.
fn alerts(mode: Mode, rules: &str, port: u16, messages: &[(bool, Vec<u8>)], size: usize) -> Vec<u32> {
    let mut bed = bed(mode, rules);
    bed.send_all(tcp(port, messages, size));
    bed.finish();
    let alerts = bed.events().iter().filter_map(|event| match event {
        Event::Alert(alert) => Some(alert.sid),
        _ => None,
    });
    let mut found: Vec<u32> = alerts.collect();
    found.sort_unstable();
    found
}

#[test]
fn a_hook_of_ssh_is_a_state_of_the_handshake() {
    let rules = "alert ssh:response_banner_done any any -> any any (ssh.software; content:\"OpenSSH\"; sid:1;)\n\
        alert ssh:request_banner_done any any -> any any (msg:\"each client\"; sid:2;)\n\
        alert ssh:request_banner_done any any -> any any (ssh.software; content:\"OpenSSH\"; sid:3;)\n";
    let messages = [
        (true, b"SSH-2.0-OpenSSH_9\r\n".to_vec()),
        (false, b"SSH-2.0-PuTTY\r\n".to_vec()),
    ];
    for mode in [Mode::Ids, Mode::Ips] {
        for size in [1000, 1, 7] {
            assert_eq!(
                alerts(mode, rules, 22, &messages, size),
                [1, 2],
                "{mode:?} {size}"
            );
        }
    }
}

#[test]
fn a_bit_of_a_transaction_is_not_in_the_next() {
    let rules = "alert http any any -> any any (http.uri; content:\"/a\"; xbits:set,seen,track tx; noalert; sid:1;)\n\
        alert http any any -> any any (flow:to_client; http.stat_code; content:\"200\"; xbits:isset,seen,track tx; sid:2;)\n\
        alert http any any -> any any (flow:to_client; http.stat_code; content:\"200\"; xbits:isnotset,seen,track tx; sid:3;)\n\
        alert tcp any any -> any any (flags:S; xbits:isnotset,seen,track tx; sid:4;)\n";
    let exchange = |uri: &str| {
        [
            (
                false,
                format!("GET {uri} HTTP/1.1\r\nHost: a\r\n\r\n").into_bytes(),
            ),
            (true, b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok".to_vec()),
        ]
    };
    let messages = [exchange("/b"), exchange("/a"), exchange("/b")].concat();
    for mode in [Mode::Ids, Mode::Ips] {
        for size in [1000, 1, 7] {
            assert_eq!(
                alerts(mode, rules, 80, &messages, size),
                [2, 3, 3],
                "{mode:?} {size}"
            );
        }
    }
}

#[test]
fn rules_that_disable_something_without_its_conditions_are_refused() {
    for options in [
        "config tcp any any -> any any (sid:1;)",
        "config tcp any any -> any any (config: logging disable, type tx, scope tx; sid:2;)",
        "config tcp any any -> any 666 (content:\"a\"; config: tracking disable, type flow, scope packet; sid:3;)",
        "config tcp any any -> any 666 (flow:established; config: tracking disable, type flow, scope packet; sid:4;)",
        "config dns any any -> any any (config: tracking disable, type flow, scope packet; sid:5;)",
        "config dns any any -> any any (config: logging enable, type tx, scope tx; sid:6;)",
        "alert http1:pre_flow any any -> any any (sid:7;)",
        "alert tcp:request_line any any -> any any (sid:8;)",
        "alert http1:request_line any any -> any any (flow:to_client; sid:9;)",
        "accept:hook tcp:all any any <> any 80 (sid:10;)",
        "alert http1:client_hello_done any any -> any any (sid:11;)",
    ] {
        let mut set = millrace_ips_rules::RuleSet::default();
        let file = millrace_ips_rules::files::parse(
            millrace_ips_rules::Syntax::Suricata,
            "test",
            options.as_bytes(),
        );
        set.add("test", file, &millrace_ips_rules::Variables::usual());
        let settings = millrace_ips_engine::detect::CompileSettings::default();
        let (compiled, refusals) = millrace_ips_engine::detect::compile(&set, &settings);
        let all = set.refusals().len() + refusals.len();
        assert_eq!((compiled.rules.len(), all), (0, 1), "{options}");
    }
}
