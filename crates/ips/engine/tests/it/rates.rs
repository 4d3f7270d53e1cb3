//! Rates of rules (`threshold`, `detection_filter`, rows of the threshold table), and the state that matches change.

use millrace_ips_engine::Mode;
use millrace_ips_engine::detect::CompileSettings;
use millrace_types::Duration;

use crate::bed::{TestBed, datagram};
use crate::frames::{alerts, rules, udp};

/// Returns a rule that drops a datagram with the word.
fn dropping(rate: &str) -> String {
    format!("drop udp any any -> any any (content:\"word\"; {rate} sid:1;)")
}

/// Sends datagrams with the word, and returns for each whether it is dropped and whether it raises an alert.
fn outcomes(bed: &mut TestBed, count: usize) -> Vec<(bool, bool)> {
    let send = |_| {
        let before = bed.alerts();
        let is_dropped = bed.send(datagram(b"word")).is_dropped();
        (is_dropped, bed.alerts() > before)
    };
    (0..count).map(send).collect()
}

#[test]
fn below_its_count_a_rule_neither_drops_nor_alerts_and_beyond_a_limit_it_still_drops() {
    const PASSES: (bool, bool) = (false, false);
    const DROPPED: (bool, bool) = (true, false);
    const ALERTED: (bool, bool) = (true, true);
    for (rate, expected) in [
        (
            "threshold:type both, track by_src, count 3, seconds 60;",
            [PASSES, PASSES, ALERTED, DROPPED, DROPPED, DROPPED],
        ),
        (
            "threshold:type threshold, track by_src, count 3, seconds 60;",
            [PASSES, PASSES, ALERTED, PASSES, PASSES, ALERTED],
        ),
        (
            "threshold:type limit, track by_src, count 2, seconds 60;",
            [ALERTED, ALERTED, DROPPED, DROPPED, DROPPED, DROPPED],
        ),
        (
            "detection_filter:track by_src, count 2, seconds 60;",
            [PASSES, PASSES, ALERTED, ALERTED, ALERTED, ALERTED],
        ),
    ] {
        let mut bed = TestBed::new(Mode::Ips, &dropping(rate));
        assert_eq!(outcomes(&mut bed, 6), expected, "{rate}");
    }
}

#[test]
fn a_rule_over_addresses_sets_bits_and_counters_of_its_flow_and_counts_by_flow() {
    let text = r#"
        alert ip 10.0.0.1 any -> any any (flowbits:set,listed; flowint:seen,+,1; noalert; sid:1;)
        alert udp any any -> any any (flowbits:isset,listed; content:"x"; sid:2;)
        alert udp any any -> any any (flowint:seen,==,1; content:"x"; sid:3;)
        alert udp any any -> any any (flowbits:isnotset,listed; content:"x"; sid:4;)
        alert ip 10.0.0.1 any -> any any (detection_filter:track by_flow, count 1, seconds 60; sid:5;)
    "#;
    let set = rules(text, &CompileSettings::default());
    let frames = [
        udp(4000, false, b"x"),
        udp(4000, false, b"x"),
        udp(4001, false, b"x"),
    ];
    assert_eq!(alerts(&set, &frames, Mode::Ids), [2, 3]);
}

#[test]
fn a_bit_of_an_address_without_expire_lasts_thirty_seconds() {
    let text = "
        alert udp any any -> any any (xbits:set,one,track ip_src; content:\"set\"; noalert; sid:1;)
        alert udp any any -> any any (xbits:isset,one,track ip_src; content:\"ask\"; sid:2;)
        alert udp any any -> any any (xbits:set,two,track ip_src,expire 60; content:\"set\"; noalert; sid:3;)
        alert udp any any -> any any (xbits:isset,two,track ip_src; content:\"ask\"; sid:4;)
    ";
    for (seconds, expected) in [(29, &[2, 4][..]), (31, &[4]), (61, &[])] {
        let mut bed = TestBed::new(Mode::Ids, text);
        bed.send(datagram(b"set"));
        bed.now = bed.now + Duration::from_secs(seconds);
        bed.send(datagram(b"ask"));
        assert_eq!(bed.sids().into_iter().collect::<Vec<_>>(), expected, "{seconds}");
    }
}
