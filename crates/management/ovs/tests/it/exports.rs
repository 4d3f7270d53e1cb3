//! IPFIX rows as IPFIX of a bridge.

use millrace_ovs::Translation;
use serde_json::{Value as Json, json};

use crate::database::{Database, uuid};

fn bridge(ipfix: &Json, sflow: Option<&Json>) -> Translation {
    let mut database = Database::default();
    let mut columns = json!({"ipfix": uuid(database.row("IPFIX", ipfix))});
    if let Some(sflow) = sflow {
        columns["sflow"] = uuid(database.row("sFlow", sflow));
    }
    database.bridge("br0", &columns, &[]);
    database.translated()
}

#[test]
fn a_row_is_ipfix_over_udp_with_the_defaults_of_open_vswitch() {
    let translation = bridge(
        &json!({"targets": ["set", ["192.0.2.9:4739", "192.0.2.10:9995"]]}),
        None,
    );
    assert!(translation.faults.is_empty(), "{:?}", translation.faults);
    let ipfix = translation.bridges[0].ipfix.as_ref().unwrap();
    let collectors: Vec<_> = ipfix.collectors.iter().map(ToString::to_string).collect();
    assert_eq!(collectors, ["udp:192.0.2.10:9995", "udp:192.0.2.9:4739"]);
    assert_eq!(
        (
            ipfix.sampling_rate.get(),
            ipfix.domain.unwrap().get(),
            ipfix.point.get(),
            ipfix.active_timeout_s.get()
        ),
        (400, 0, 0, 0),
        "without a cache, each sample is a record"
    );
    let row = json!({"targets": "192.0.2.9:4739", "sampling": 64, "obs_domain_id": 123, "obs_point_id": 456,
        "cache_active_timeout": 60, "cache_max_flows": 13});
    let translation = bridge(&row, None);
    let ipfix = translation.bridges[0].ipfix.as_ref().unwrap();
    assert_eq!(
        (
            ipfix.sampling_rate.get(),
            ipfix.domain.unwrap().get(),
            ipfix.point.get()
        ),
        (64, 123, 456)
    );
    assert_eq!((ipfix.active_timeout_s.get(), ipfix.max_flows.get()), (60, 13));
}

#[test]
fn targets_that_are_none_and_a_second_rate_are_refused_by_name() {
    let translation = bridge(&json!({"targets": "collector.example:4739"}), None);
    assert!(translation.bridges[0].ipfix.is_none());
    let faults: Vec<_> = translation.faults.iter().map(ToString::to_string).collect();
    assert!(faults[0].starts_with("IPFIX br0: targets: "), "{faults:?}");
    let sflow = json!({"agent": "192.0.2.1", "targets": "192.0.2.9:6343", "sampling": 10});
    let translation = bridge(
        &json!({"targets": "192.0.2.9:4739", "sampling": 20}),
        Some(&sflow),
    );
    let ipfix = translation.bridges[0].ipfix.as_ref().unwrap();
    assert_eq!(ipfix.sampling_rate.get(), 10);
    let faults: Vec<_> = translation.faults.iter().map(ToString::to_string).collect();
    assert!(
        faults[0].contains("sampling=20: a port has one sampler"),
        "{faults:?}"
    );
}

#[test]
fn a_set_of_collectors_for_the_action_sample_is_named_with_its_bridge() {
    let mut database = Database::default();
    let bridge = database.bridge("br0", &json!({}), &[]);
    database.row(
        "Flow_Sample_Collector_Set",
        &json!({"id": 7, "bridge": uuid(bridge)}),
    );
    let faults: Vec<_> = database
        .translated()
        .faults
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(
        faults,
        [
            "Flow_Sample_Collector_Set 7 of br0: flow entries have no action sample: expected the column ipfix of the bridge"
        ]
    );
}
