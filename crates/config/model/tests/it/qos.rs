//! Queues, rates and policers of a port: decoding, encoding and rejection of contradictions.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use millrace_model::{ColorVerdict, Config, Policer, PolicerKind, diff};
use millrace_types::{BitRate, QueueId};

const HEAD: &str = r#"[[bridge]]
name = "br0"
[[bridge.port]]
name = "p1"
number = 1
device = "memory"
"#;

fn read(text: &str) -> Config {
    Config::from_toml("m.toml", &format!("{HEAD}{text}")).unwrap()
}

#[track_caller]
fn assert_messages(text: &str, expected: &[&str]) {
    let errors = Config::from_toml("m.toml", &format!("{HEAD}{text}")).unwrap_err();
    let messages: Vec<String> = errors.iter().map(ToString::to_string).collect();
    assert_eq!(messages, expected);
}

const FULL: &str = r#"
rate = "100Mbps"
frame_overhead = 24
[[bridge.port.queue]]
id = 1
min_rate = "10Mbps"
max_rate = "50Mbps"
priority = 7
weight = 3
length = 200
size = 100000
[[bridge.port.queue]]
id = 4000000000
[bridge.port.policer]
kind = "trtcm"
cir = "10Mbps"
pir = "20Mbps"
color_aware = true
yellow = { action = "pass", dscp = 12, pcp = 1, mpls_tc = 1 }
"#;

#[test]
fn queues_and_policers_are_read_and_written_back_the_same() {
    let config = read(FULL);
    let port = &config.bridges[0].ports[0];
    assert_eq!(port.rate.unwrap().get(), BitRate::from_bps(100_000_000));
    let [first, second] = port.egress_queues.as_slice() else {
        panic!()
    };
    assert_eq!(
        (first.id, first.priority.get(), first.weight.get()),
        (QueueId(1), 7, 3)
    );
    assert_eq!((first.length.get(), first.size.unwrap().get()), (200, 100_000));
    assert_eq!(
        (second.id.0, second.min_rate, second.length.get()),
        (4_000_000_000, None, 1_000)
    );
    let policer = port.policer.as_ref().unwrap();
    assert_eq!(policer.kind, PolicerKind::TwoRate);
    assert_eq!(policer.yellow.dscp.unwrap().get(), 12);
    assert_eq!(policer.red.action, ColorVerdict::Drop);
    assert_eq!(Config::from_toml("again", &config.to_toml()).unwrap(), config);
    assert_eq!(Config::from_toml("full", &config.to_toml_full()).unwrap(), config);
    assert_eq!(Config::from_json(&config.to_json()).unwrap(), config);
}

#[test]
fn a_color_may_be_a_bare_word() {
    let text = "policer = { kind = \"srtcm\", cir = \"1Mbps\", yellow = \"drop\" }\n";
    let config = read(text);
    let policer: &Policer = config.bridges[0].ports[0].policer.as_ref().unwrap();
    assert_eq!(policer.yellow.action, ColorVerdict::Drop);
    assert!(
        config.to_toml().contains("yellow = \"drop\""),
        "{}",
        config.to_toml()
    );
}

#[test]
fn queues_differ_by_their_numbers_and_all_of_it_changes_while_the_port_runs() {
    let (old, new) = (
        read(FULL),
        read(
            &FULL
                .replace("\"50Mbps\"", "\"60Mbps\"")
                .replace("4000000000", "2"),
        ),
    );
    let changes: Vec<String> = diff(&old, &new).iter().map(ToString::to_string).collect();
    assert_eq!(
        changes,
        [
            "- bridge br0 port p1 queue 4000000000 { id = 4000000000 }",
            "~ bridge br0 port p1 queue 1 max_rate: \"50Mbps\" -> \"60Mbps\"",
            "+ bridge br0 port p1 queue 2 { id = 2 }",
        ]
    );
    assert!(diff(&old, &new).iter().all(|change| !change.restart));
}

#[test]
fn rates_that_contradict_each_other_are_told() {
    assert_messages(
        r#"rate = "10Mbps"
[[bridge.port.queue]]
id = 1
min_rate = "8Mbps"
max_rate = "7Mbps"
[[bridge.port.queue]]
id = 2
min_rate = "3Mbps"
max_rate = "11Mbps"
[[bridge.port.queue]]
id = 1
"#,
        &[
            "m.toml:7:8: bridge[0].port[0].rate: 10Mbps is less than the `min_rate`s of its queues together, 11Mbps: \
             expected at least that",
            "m.toml:10:12: bridge[0].port[0].queue[0].min_rate: 8Mbps is more than `max_rate`, 7Mbps: expected at most that",
            "m.toml:15:12: bridge[0].port[0].queue[1].max_rate: 11Mbps is more than the `rate` of the port, 10Mbps: \
             expected at most that",
            "m.toml:17:6: bridge[0].port[0].queue[2].id: queue id 1 is already used by bridge[0].port[0].queue[0].id",
        ],
    );
    let many: String = (1..=64)
        .map(|id| format!("[[bridge.port.queue]]\nid = {id}\n"))
        .collect();
    assert_messages(
        &many,
        &[
            "m.toml:7:1: bridge[0].port[0].queue: 65 queues, with queue 0, which is always there: expected at most 64",
        ],
    );
}

#[test]
fn numbers_and_words_out_of_range_are_told() {
    assert_messages(
        r#"rate = "999bps"
[[bridge.port.queue]]
id = 4294967295
priority = 8
weight = 0
[bridge.port.policer]
kind = "tricolor"
cir = "1Mbps"
"#,
        &[
            "m.toml:7:8: bridge[0].port[0].rate: 999bps is out of range: expected 1kbps to 400Gbps",
            "m.toml:9:6: bridge[0].port[0].queue[0].id: 4294967295 is out of range: expected 0 to 4294967294",
            "m.toml:10:12: bridge[0].port[0].queue[0].priority: 8 is out of range: expected 0 to 7",
            "m.toml:11:10: bridge[0].port[0].queue[0].weight: 0 is out of range: expected 1 to 255",
            "m.toml:13:8: bridge[0].port[0].policer.kind: `tricolor` is not a choice: expected \"srtcm\" or \"trtcm\" or \
             \"trtcm-4115\"",
        ],
    );
}

#[test]
fn a_policer_is_told_what_its_kind_needs_and_does_not_know() {
    let policer = |text: &str| format!("[bridge.port.policer]\ncir = \"10Mbps\"\n{text}");
    assert_messages(
        &policer("kind = \"srtcm\"\npir = \"20Mbps\"\npbs = 2000\n"),
        &[
            "m.toml:10:7: bridge[0].port[0].policer.pir: `srtcm` has no `pir`: expected none",
            "m.toml:11:7: bridge[0].port[0].policer.pbs: `srtcm` has no `pbs`: expected none",
        ],
    );
    assert_messages(
        &policer("kind = \"trtcm-4115\"\n"),
        &["m.toml:9:8: bridge[0].port[0].policer.kind: `trtcm-4115` without `eir`: expected both"],
    );
    assert_messages(
        &policer("kind = \"trtcm\"\npir = \"9Mbps\"\nebs = 2000\nred = { action = \"drop\", dscp = 1 }\n"),
        &[
            "m.toml:10:7: bridge[0].port[0].policer.pir: 9Mbps is less than `cir`, 10Mbps: expected at least that",
            "m.toml:11:7: bridge[0].port[0].policer.ebs: `trtcm` has no `ebs`: expected none",
            "m.toml:12:7: bridge[0].port[0].policer.red: marks on packets that are dropped: expected one of the two",
        ],
    );
}
