//! Ports with several interfaces are LAGs.

use std::collections::BTreeMap;

use millrace_model::{Config, LagFallback, LagMode, LagRate};
use millrace_ovs::{
    BridgeState, LagMemberState, LagState, Numbers, PortState, State, Translation, Written, settle,
};
use millrace_ovsdb::Operation;
use millrace_types::{PortNo, Vid};
use serde_json::{Value as Json, json};

use crate::database::{Database, map};

fn plain() -> [(&'static str, Json); 2] {
    [("e1", json!({})), ("e2", json!({}))]
}

/// Translates a bridge with one bond of e1 and e2.
fn bond(port: &Json) -> Translation {
    let mut database = Database::default();
    let bond = database.bond("bond0", port, &plain());
    database.bridge("br0", &json!({}), &[bond]);
    database.translated()
}

fn errors(translation: &Translation) -> Vec<(String, Option<String>)> {
    let ports = translation.rows[0].ports.iter().filter(|port| port.is_bond);
    let rows = ports.flat_map(|port| &port.interfaces);
    rows.map(|row| (row.name.clone(), row.error.clone())).collect()
}

fn faults(translation: &Translation) -> Vec<String> {
    translation.faults.iter().map(ToString::to_string).collect()
}

#[test]
fn a_bond_is_a_lag_whose_interfaces_are_its_members_and_have_the_number_of_its_port() {
    let mut translation = bond(&json!({"lacp": "active", "tag": 7, "bond_mode": "balance-tcp",
        "other_config": map(&[("lacp-time", "fast"), ("lacp-system-id", "02:00:00:00:00:09"), ("lacp-system-priority", "9")])}));
    assert_eq!(faults(&translation), [""; 0]);
    let bridge = &translation.bridges[0];
    let (port, lag) = (&bridge.ports[0], &bridge.lags[0]);
    assert_eq!(
        (
            port.name.as_str(),
            port.device.to_string().as_str(),
            port.number.raw(),
            port.vlan.map(Vid::raw)
        ),
        ("bond0", "lag:bond0", 1, Some(7))
    );
    assert_eq!(
        (lag.mode, lag.rate, lag.fallback),
        (LagMode::Active, LagRate::Fast, LagFallback::None)
    );
    assert_eq!(lag.system.unwrap().to_string(), "02:00:00:00:00:09");
    assert_eq!(lag.system_priority.get(), 9);
    let devices: Vec<_> = lag
        .members
        .iter()
        .map(|member| member.device.to_string())
        .collect();
    assert_eq!(devices, ["kernel:e1", "kernel:e2"]);
    let rows = &translation.rows[0]
        .ports
        .iter()
        .find(|port| port.is_bond)
        .unwrap()
        .interfaces;
    assert!(
        rows.iter().all(|row| row.number.map(PortNo::raw) == Some(1)),
        "{rows:?}"
    );
    assert!(settle(&Config::new(), &mut translation, |_| String::new()).is_ok());
    assert_eq!(
        errors(&translation),
        [("e1".to_owned(), None), ("e2".to_owned(), None)]
    );
}

#[test]
fn without_lacp_one_interface_carries_packets_and_modes_that_need_more_are_named() {
    for (port, said) in [
        (json!({}), None),
        (json!({"bond_mode": "active-backup", "lacp": "off"}), None),
        (
            json!({"bond_mode": "balance-slb"}),
            Some("Port bond0: bond_mode balance-slb is not available: one interface"),
        ),
    ] {
        let translation = bond(&port);
        let lag = &translation.bridges[0].lags[0];
        assert_eq!(
            (lag.mode, lag.fallback),
            (LagMode::Passive, LagFallback::Individual),
            "{port}"
        );
        let faults = faults(&translation);
        assert_eq!(faults.len(), said.iter().count(), "{faults:?}");
        assert!(said.is_none_or(|said| faults[0].starts_with(said)), "{faults:?}");
    }
    let translation = bond(&json!({"bond_mode": "balance-tcp"}));
    assert!(translation.bridges[0].ports.is_empty() && translation.bridges[0].lags.is_empty());
    for (_, error) in errors(&translation) {
        assert!(
            error.as_ref().unwrap().contains("balance-tcp needs LACP"),
            "{error:?}"
        );
    }
    let translation = bond(&json!({"lacp": "passive", "other_config": map(&[("lacp-fallback-ab", "true")])}));
    let lag = &translation.bridges[0].lags[0];
    assert_eq!(
        (lag.mode, lag.fallback),
        (LagMode::Passive, LagFallback::Individual)
    );
}

#[test]
fn the_primary_interface_is_preferred() {
    let translation = bond(&json!({"other_config": map(&[("bond-primary", "e2")])}));
    let priorities: Vec<_> = translation.bridges[0].lags[0]
        .members
        .iter()
        .map(|member| member.priority.get())
        .collect();
    assert_eq!(priorities, [32_768, 1]);
}

#[test]
fn settings_that_a_bond_or_its_interfaces_cannot_have_are_named() {
    let mut database = Database::default();
    let qos = database.row("QoS", &json!({"type": "linux-htb"}));
    let bond = database.bond(
        "bond0",
        &json!({"lacp": "active", "bond_mode": "active-backup", "bond_updelay": 5, "bond_fake_iface": true, "qos": ["uuid", qos.to_string()],
            "other_config": map(&[("bond-rebalance-interval", "10"), ("bond-detect-mode", "miimon"), ("lacp-time", "never")])}),
        &[
            ("e1", json!({"ingress_policing_rate": 100, "bfd": map(&[("enable", "true")])})),
            ("e2", json!({"cfm_mpid": 3, "other_config": map(&[("lacp-aggregation-key", "3"), ("lacp-port-priority", "x")])})),
        ],
    );
    database.bridge("br0", &json!({}), &[bond]);
    let faults = faults(&database.translated());
    for said in [
        "Port bond0: bond_mode=active-backup has no effect with LACP",
        "Port bond0: bond_updelay=5",
        "Port bond0: bond_fake_iface",
        "Port bond0: qos of a bond",
        "Port bond0: other_config:bond-rebalance-interval=10",
        "Port bond0: other_config:bond-detect-mode=miimon",
        "Port bond0: other_config:lacp-time=never has no effect: expected fast or slow",
        "Interface e1: ingress_policing_rate of an interface of a bond",
        "Interface e1: bfd:enable of an interface of a bond",
        "Interface e2: cfm_mpid of an interface of a bond",
        "Interface e2: other_config:lacp-aggregation-key=3",
        "Interface e2: other_config:lacp-port-priority=x",
    ] {
        assert!(
            faults.iter().any(|fault| fault.starts_with(said)),
            "{said}: {faults:#?}"
        );
    }
    assert_eq!(faults.len(), 12, "{faults:#?}");
}

#[test]
fn a_member_that_cannot_be_had_costs_itself_and_the_last_one_its_bond() {
    let mut database = Database::default();
    let bond = database.bond(
        "bond0",
        &json!({"lacp": "active"}),
        &[("e1", json!({"type": "geneve"})), ("e2", json!({})), ("v1", json!({"type": "vxlan",
            "options": map(&[("remote_ip", "192.0.2.2"), ("local_ip", "192.0.2.1"), ("underlay", "e9"), ("key", "7")])}))],
    );
    let twice = database.bond(
        "bond1",
        &json!({"lacp": "active"}),
        &[("x1", json!({})), ("e2", json!({}))],
    );
    let lone = database.bond(
        "bond2",
        &json!({"lacp": "active"}),
        &[("g1", json!({"type": "stt"})), ("g2", json!({"type": "stt"}))],
    );
    database.bridge("br0", &json!({}), &[bond, twice, lone]);
    let mut translation = database.translated();
    let config = settle(&Config::new(), &mut translation, |_| String::new()).unwrap();
    let lags: BTreeMap<String, usize> = config.bridges[0]
        .lags
        .iter()
        .map(|lag| (lag.name.to_string(), lag.members.len()))
        .collect();
    assert!(
        lags["bond0"] + lags["bond1"] == 2,
        "e2 is a member of one bond: {lags:?}"
    );
    assert!(!lags.contains_key("bond2"));
    let errors: BTreeMap<_, _> = errors(&translation).into_iter().collect();
    assert!(errors["e1"].as_ref().unwrap().contains("geneve"));
    assert!(errors["v1"].as_ref().unwrap().contains("tunnel"), "{errors:?}");
    assert!(errors["g1"].as_ref().unwrap().contains("stt"));
    assert_eq!(errors["x1"], None);
}

#[test]
fn the_number_of_a_bond_survives_a_restart_and_is_asked_for_by_its_interfaces() {
    let mut database = Database::default();
    let first = database.bond(
        "bond0",
        &json!({}),
        &[("e1", json!({"ofport": 9})), ("e2", json!({"ofport": 9}))],
    );
    let second = database.bond(
        "bond1",
        &json!({}),
        &[
            ("e3", json!({"other_config": map(&[("lacp-port-id", "77")])})),
            ("e4", json!({"ofport_request": 30})),
        ],
    );
    database.bridge("br0", &json!({}), &[first, second]);
    database.numbers = Numbers::default();
    let translation = database.translated();
    let bridge = &translation.bridges[0];
    let ports: Vec<_> = bridge.ports.iter().map(|port| port.number.raw()).collect();
    assert_eq!(ports, [9, 30]);
    let members: Vec<_> = bridge
        .lags
        .iter()
        .flat_map(|lag| &lag.members)
        .map(|member| member.number.raw())
        .collect();
    assert!(members.contains(&77), "{members:?}");
    let mut all = [ports, members].concat();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), 6, "each number is given once");
}

#[test]
fn the_state_of_a_bond_is_written_to_its_port_and_interfaces() {
    let translation = bond(&json!({"lacp": "active"}));
    let member = |name: &str, mac: &str, is_enabled| LagMemberState {
        name: name.to_owned(),
        mac: mac.to_owned(),
        is_enabled,
        lacp: None,
    };
    let port = |current| PortState {
        lacp_current: Some(current),
        ..PortState::default()
    };
    let lag = LagState {
        members: vec![
            member("e1", "02:00:00:00:00:01", false),
            member("e2", "02:00:00:00:00:02", true),
        ],
        ..LagState::default()
    };
    let bridge = BridgeState {
        ports: BTreeMap::from([("e1".to_owned(), port(false)), ("e2".to_owned(), port(true))]),
        lags: BTreeMap::from([("bond0".to_owned(), lag)]),
        ..BridgeState::default()
    };
    let state = State {
        bridges: BTreeMap::from([("br0".to_owned(), bridge)]),
        ..State::default()
    };
    let operations: Vec<Json> = Written::default()
        .changes(&translation, &state, None, "8.3.1")
        .iter()
        .map(Operation::to_json)
        .collect();
    let of = |table: &str, column: &str| -> Vec<Json> {
        let rows = operations.iter().filter(|operation| operation["table"] == table);
        rows.map(|operation| operation["row"][column].clone()).collect()
    };
    assert!(
        of("Port", "bond_active_slave").contains(&json!("02:00:00:00:00:02")),
        "{operations:?}"
    );
    let current = of("Interface", "lacp_current");
    assert!(
        current.contains(&json!(true)) && current.contains(&json!(false)),
        "{current:?}"
    );
    assert!(
        of("Interface", "ofport")
            .iter()
            .filter(|number| **number == json!(1))
            .count()
            == 2
    );
}
