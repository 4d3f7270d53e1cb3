//! The actions of a rule and of its packet in alerts, as the engine decides them in each mode.

use millrace_ips_engine::detect::{CompileSettings, compile};
use millrace_ips_engine::{Engine, Events, Frame, LinkType, Mode, Settings};
use millrace_ips_eve::{Layout, RuleTables, Version, Writer};
use millrace_ips_rules::{RuleSet, Syntax, Variables, files};
use millrace_types::Time;
use serde_json::Value;

/// Returns `alert.action`, `verdict.action` and the number of the rule of each alert on a datagram with "ab".
fn actions(rules: &str, mode: Mode) -> Vec<(u64, String, String)> {
    let mut set = RuleSet::default();
    let file = files::parse(Syntax::Suricata, "test", rules.as_bytes());
    set.add("test", file, &Variables::usual());
    let (rules, refusals) = compile(&set, &CompileSettings::default());
    assert!(refusals.is_empty(), "{refusals:?}");
    let settings = Settings {
        mode,
        ..Settings::default()
    };
    let mut engine = Engine::new(settings, [1, 2]);
    let mut bytes = vec![
        0x45, 0, 0, 30, 0, 1, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, 0, 9, 0, 9, 0, 10, 0, 0, b'a',
        b'b',
    ];
    let frame = Frame {
        bytes: &mut bytes,
        link: LinkType(101),
        time: Time::from_secs(1),
        number: 1,
    };
    let mut events = Events::default();
    engine.frame(&rules, frame, &mut events);
    let layout = Layout {
        version: Version::Seven,
        packets: false,
        packet_anomalies: true,
        netflow: true,
        ..Layout::default()
    };
    let writer = Writer::new(layout, RuleTables::default());
    let mut out = Vec::new();
    for event in &events.list {
        writer.write(event, None, &mut out);
    }
    let text = String::from_utf8(out).unwrap();
    let lines = text
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    let alerts = lines.filter(|line| line["event_type"] == "alert");
    let word = |value: &Value| value.as_str().unwrap().to_owned();
    let action = |line: Value| {
        let sid = line["alert"]["signature_id"].as_u64().unwrap();
        (
            sid,
            word(&line["alert"]["action"]),
            word(&line["verdict"]["action"]),
        )
    };
    alerts.map(action).collect()
}

#[test]
fn an_alert_tells_the_action_of_its_rule_and_that_of_its_packet() {
    let rules = "drop udp any any -> any any (content:\"a\"; sid:1;)\n\
        alert udp any any -> any any (content:\"b\"; sid:2;)\n";
    let expected = |first: [&str; 2], second: [&str; 2]| {
        [(1, first), (2, second)].map(|(sid, [rule, packet])| (sid, rule.to_owned(), packet.to_owned()))
    };
    assert_eq!(
        actions(rules, Mode::Ips),
        expected(["blocked", "drop"], ["allowed", "drop"])
    );
    // Nothing is dropped in mode `ids`.
    assert_eq!(
        actions(rules, Mode::Ids),
        expected(["allowed", "alert"], ["allowed", "alert"])
    );
}

#[test]
fn an_alert_of_a_rule_that_rejects_is_blocked_in_both_modes_as_documented() {
    let rules = "reject udp any any -> any any (content:\"a\"; sid:1;)\n";
    for (mode, packet) in [(Mode::Ips, "drop"), (Mode::Ids, "alert")] {
        assert_eq!(
            actions(rules, mode),
            [(1, "blocked".to_owned(), packet.to_owned())],
            "{mode:?}"
        );
    }
}
