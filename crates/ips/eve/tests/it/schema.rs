//! Every record conforms to docs/eve.schema.json, and the schema refuses records that do not.

use millrace_ips_engine::{Counters, Event};
use millrace_ips_eve::{Layout, RuleTables, Statistics, Version, Writer};
use millrace_testing::Schema;
use millrace_types::Time;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::any;

fn schema() -> Schema {
    Schema::parse(include_str!("../../../../../docs/eve.schema.json"))
}

fn writer(version: Version) -> Writer {
    let layout = Layout {
        version,
        packets: true,
        packet_anomalies: true,
        netflow: true,
        ethernet: true,
        details: true,
    };
    Writer::new(layout, RuleTables::default())
}

/// Returns the lines of an event as JSON.
fn lines(writer: &Writer, event: &Event, frame: &[u8]) -> Vec<Value> {
    let mut out = Vec::new();
    writer.write(event, Some((frame, 1)), &mut out);
    let text = String::from_utf8(out).expect("a record is UTF-8");
    assert!(text.is_empty() || text.ends_with('\n'));
    text.lines()
        .map(|line| serde_json::from_str(line).expect("a line is JSON"))
        .collect()
}

proptest! {
    #[test]
    fn any_event_is_written_as_the_schema_says(event in any::event(), frame in proptest::collection::vec(any::<u8>(), 0..64)) {
        for version in [Version::Seven, Version::Eight] {
            for line in lines(&writer(version), &event, &frame) {
                let errors = schema().errors(&line);
                prop_assert!(errors.is_empty(), "{line}: {errors:#?}");
            }
        }
    }
}

#[test]
fn counters_are_written_as_the_schema_says() {
    let writer = writer(Version::Seven);
    let mut out = Vec::new();
    let statistics = Statistics {
        uptime: 1,
        engine: Counters::default(),
        bytes: 2,
        flows: 3,
        alerts: 4,
        ..Statistics::default()
    };
    writer.write_statistics(Time::from_secs(1), &statistics, &mut out);
    writer.write_counters(Time::from_secs(1), 1, &[("frames", 1)], &mut out);
    for line in String::from_utf8(out).unwrap().lines() {
        let errors = schema().errors(&serde_json::from_str(line).unwrap());
        assert!(errors.is_empty(), "{line}: {errors:#?}");
    }
}

#[test]
fn the_schema_refuses_other_names_and_types() {
    let valid = json!({
        "timestamp": "2026-01-02T03:04:05.000000+0000", "flow_id": 1, "event_type": "http", "src_ip": "10.0.0.1", "src_port": 1,
        "dest_ip": "10.0.0.2", "dest_port": 80, "proto": "TCP", "ip_v": 4, "tx_id": 0, "http": {"length": 5, "status": 200},
    });
    assert_eq!(schema().errors(&valid), [""; 0]);
    let with = |pointer: &str, value: Value| {
        let mut changed = valid.clone();
        let (parent, name) = pointer.rsplit_once('/').unwrap();
        changed.pointer_mut(parent).unwrap()[name] = value;
        changed
    };
    let mut without = valid.clone();
    without.as_object_mut().unwrap().remove("http");
    for invalid in [
        with("/flow_id", json!("1")),
        with("/event_type", json!("web")),
        with("/srcip", json!("10.0.0.1")),
        with("/http/status", json!("200")),
        with("/http/user_agent", json!("curl")),
        without,
    ] {
        assert!(!schema().errors(&invalid).is_empty(), "{invalid}");
    }
}
