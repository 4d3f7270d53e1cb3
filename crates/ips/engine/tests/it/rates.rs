//! Rates of rules (`threshold`, `detection_filter`, rows of the threshold table), and the state that matches change.

use millrace_ips_engine::detect::{CompileSettings, compile};
use millrace_ips_engine::verdict::{DropReason, Verdict};
use millrace_ips_engine::{Mode, Settings};
use millrace_ips_rules::{RuleSet, Syntax, Variables, files};
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

/// Returns an engine with rules and rows of the threshold table, and the refusals.
fn with_rows(rules: &str, rows: &str) -> (TestBed, Vec<String>) {
    with_rows_in(Settings::default().mode, rules, rows)
}

/// Returns an engine in a mode, and the refusals.
fn with_rows_in(mode: Mode, rules: &str, rows: &str) -> (TestBed, Vec<String>) {
    let mut set = RuleSet::default();
    let file = files::parse(Syntax::Suricata, "a.rules", rules.as_bytes());
    set.add("a.rules", file, &Variables::usual());
    let table = files::parse(Syntax::Suricata, "threshold.config", rows.as_bytes());
    let settings = CompileSettings {
        thresholds: table.thresholds,
        ..CompileSettings::default()
    };
    let (rules, refusals) = compile(&set, &settings);
    let refusals = table.refusals.iter().chain(set.refusals()).chain(&refusals);
    let refusals = refusals.map(ToString::to_string).collect();
    let settings = Settings {
        mode,
        ..Settings::default()
    };
    (TestBed::of(settings, rules), refusals)
}

/// Sends ten datagrams. Returns the positions, from 1, of those that raise alerts.
fn alerted(rate: &str, rows: &str) -> Vec<usize> {
    let rule = format!("alert udp any any -> any any (content:\"word\"; {rate} sid:1;)");
    let (mut bed, refusals) = with_rows(&rule, rows);
    assert!(refusals.is_empty(), "{refusals:?}");
    let outcomes = outcomes(&mut bed, 10);
    let alerts = outcomes.iter().enumerate().filter(|(_, (_, is_alert))| *is_alert);
    alerts.map(|(at, _)| at + 1).collect()
}

#[test]
fn a_threshold_of_the_table_replaces_that_of_the_rule_that_it_names() {
    let own = "threshold:type limit, track by_src, count 1, seconds 3600;";
    let filter = "detection_filter:track by_src, count 8, seconds 3600;";
    let row = |sid: u32, kind: &str, count: u32| {
        format!("threshold gen_id 1, sig_id {sid}, type {kind}, track by_src, count {count}, seconds 3600\n")
    };
    assert_eq!(alerted(own, ""), [1]);
    assert_eq!(alerted(own, &row(1, "limit", 3)), [1, 2, 3]);
    assert_eq!(
        alerted(own, &(row(1, "limit", 3) + &row(1, "threshold", 5))),
        [5, 10]
    );
    assert_eq!(alerted(filter, ""), [9, 10]);
    assert_eq!(alerted(filter, &row(1, "limit", 2)), [1, 2]);
    // A row for all rules applies to those without a rate.
    assert_eq!(alerted(own, &row(0, "limit", 3)), [1]);
    assert_eq!(alerted("", &row(0, "limit", 3)), [1, 2, 3]);
    assert_eq!(alerted("", &(row(0, "limit", 3) + &row(1, "limit", 2))), [1, 2]);
}

#[test]
fn a_drop_by_a_rate_filter_has_a_reason_of_its_own() {
    let rows =
        "rate_filter gen_id 1, sig_id 1, track by_rule, count 2, seconds 60, new_action drop, timeout 10\n";
    let text = "alert udp any any -> any any (content:\"word\"; sid:1;)\n\
        drop udp any any -> any any (content:\"other\"; sid:2;)\n";
    let (mut bed, refusals) = with_rows_in(Mode::Ips, text, rows);
    assert!(refusals.is_empty(), "{refusals:?}");
    let mut verdict = |port, payload: &[u8]| bed.send(udp(port, false, payload)).verdict;
    let (by_rule, filtered) = (DropReason::Rule, DropReason::RateFilter);
    assert_eq!(verdict(4001, b"word"), Verdict::Pass);
    assert_eq!(verdict(4002, b"other"), Verdict::Drop(by_rule));
    assert_eq!(verdict(4003, b"word"), Verdict::Pass);
    assert_eq!(verdict(4004, b"word"), Verdict::Drop(filtered));
    assert_eq!(verdict(4005, b"word"), Verdict::Drop(filtered));
    assert_eq!(verdict(4006, b"other"), Verdict::Drop(by_rule));
}

#[test]
fn a_rule_has_one_rate() {
    let limit = "threshold:type limit, track by_src, count 1, seconds 600;";
    let second = "threshold:type threshold, track by_src, count 2, seconds 60;";
    let filter = "detection_filter:track by_src, count 2, seconds 60;";
    for rates in [
        [second, limit],
        [filter, limit],
        [limit, filter],
        [filter, filter],
    ] {
        let rule = format!("alert udp any any -> any any ({} sid:1;)", rates.concat());
        let (_, refusals) = with_rows(&rule, "");
        assert!(refusals[0].contains("the rule has another rate"), "{refusals:?}");
    }
}

#[test]
fn a_detection_filter_withholds_no_change_of_state() {
    let text = "
        alert udp any any -> any any (content:\"word\"; flowbits:set,seen; detection_filter:track by_src, count 5, seconds 60; sid:1;)
        alert udp any any -> any any (content:\"word\"; flowbits:isset,seen; sid:2;)
    ";
    let mut bed = TestBed::new(Mode::Ids, text);
    outcomes(&mut bed, 2);
    assert_eq!((bed.sids(), bed.alerts()), ([2].into(), 2));
}

#[test]
fn suppressions_name_either_address_and_come_before_all_rates() {
    let suppress =
        |track: &str, address: &str| format!("suppress gen_id 1, sig_id 1, track {track}, ip {address}\n");
    for (track, address, expected) in [
        ("by_src", "10.0.0.1", 0),
        ("by_dst", "10.0.0.1", 10),
        ("by_dst", "10.0.0.2", 0),
        ("by_either", "10.0.0.1", 0),
        ("by_either", "10.0.0.2", 0),
        ("by_either", "10.0.0.3", 10),
    ] {
        let alerts = alerted("", &suppress(track, address));
        assert_eq!(alerts.len(), expected, "{track} {address}");
    }
    // Matches of a suppressed host do not use up the limit of the others.
    let rule =
        "alert udp any any -> any any (threshold:type limit, track by_rule, count 1, seconds 60; sid:1;)";
    let (mut bed, _) = with_rows(rule, &suppress("by_src", "10.0.0.1"));
    bed.send(udp(4000, false, b"word"));
    assert_eq!(bed.alerts(), 0);
    bed.send(udp(4000, true, b"word"));
    assert_eq!(bed.alerts(), 1);
}

#[test]
fn a_row_that_cannot_be_resolved_is_refused_by_itself() {
    let rule = "alert udp any any -> any any (content:\"word\"; sid:1;)";
    let rows = "suppress gen_id 0, sig_id 0, track by_src, ip $NOWHERE\n\
        threshold gen_id 1, sig_id 1, type limit, track by_src, count 0, seconds 60\n";
    let (mut bed, refusals) = with_rows(rule, rows);
    assert_eq!(refusals.len(), 2, "{refusals:?}");
    assert!(
        refusals[0].starts_with("threshold.config:2:1: threshold: count or seconds is zero"),
        "{refusals:?}"
    );
    assert!(
        refusals[1].starts_with("threshold.config:1:1: suppress: the variable $NOWHERE is not set"),
        "{refusals:?}"
    );
    bed.send(datagram(b"word"));
    assert_eq!(bed.alerts(), 1);
}
