//! The columns that the switch writes.

use std::collections::BTreeMap;

use millrace_ovs::{BridgeState, ChannelState, PortState, State, TunnelEgress, TunnelState, Written};
use millrace_ovsdb::Operation;
use serde_json::{Value as Json, json};

use crate::database::{Database, map, uuid};

fn json_of(operations: &[Operation]) -> Vec<Json> {
    operations.iter().map(Operation::to_json).collect()
}

fn rows(operations: &[Json], table: &str) -> Vec<Json> {
    operations
        .iter()
        .filter(|operation| operation["table"] == table)
        .map(|operation| operation["row"].clone())
        .collect()
}

fn running(names: &[&str]) -> State {
    let port = PortState {
        mac: "02:00:00:00:00:01".to_owned(),
        is_up: true,
        has_link: true,
        mtu: 1500,
        speed: Some(10_000_000_000),
        statistics: BTreeMap::from([("rx_packets", 5)]),
        ..PortState::default()
    };
    let bridge = BridgeState {
        dpid: "0000000000000001".to_owned(),
        ports: names
            .iter()
            .map(|name| ((*name).to_owned(), port.clone()))
            .collect(),
        problems: BTreeMap::from([("eth9".to_owned(), "no such interface".to_owned())]),
        channels: vec![ChannelState {
            target: "tcp:127.0.0.1:6653".to_owned(),
            is_connected: true,
            role: Some("master"),
            state: "ACTIVE",
            since_s: 3,
            last_error: None,
        }],
        ..BridgeState::default()
    };
    State {
        version: "0.1.0".to_owned(),
        bridges: BTreeMap::from([("br0".to_owned(), bridge)]),
        ..State::default()
    }
}

fn database() -> Database {
    let mut database = Database::default();
    let eth1 = database.port("eth1", &json!({}), &json!({}));
    let eth9 = database.port("eth9", &json!({}), &json!({}));
    let controller = uuid(database.row("Controller", &json!({"target": "tcp:127.0.0.1:6653"})));
    database.bridge("br0", &json!({"controller": controller}), &[eth1, eth9]);
    database
}

#[test]
fn the_state_of_every_row_is_written_with_cur_cfg_at_the_end() {
    let translation = database().translated();
    let operations =
        json_of(&Written::default().changes(&translation, &running(&["br0", "eth1"]), None, "8.3.1"));
    let root = &operations.last().unwrap()["row"];
    assert_eq!(
        (&root["cur_cfg"], &root["db_version"], &root["ovs_version"]),
        (&json!(7), &json!("8.3.1"), &json!("0.1.0"))
    );
    let interfaces = rows(&operations, "Interface");
    let mut ports: Vec<_> = interfaces.iter().map(|row| row["ofport"].clone()).collect();
    ports.sort_by_key(Json::as_i64);
    assert_eq!(ports, [json!(-1), json!(1), json!(65_534)]);
    let failed = interfaces.iter().find(|row| row["ofport"] == -1).unwrap();
    assert_eq!(
        failed["error"],
        "could not open network device eth9 (no such interface)"
    );
    let good = interfaces.iter().find(|row| row["ofport"] == 1).unwrap();
    assert_eq!(
        (&good["error"], &good["link_state"]),
        (&json!(["set", []]), &json!("up")),
        "an old error is cleared"
    );
    assert_eq!(good["statistics"], json!(["map", [["rx_packets", 5]]]));
    assert_eq!(rows(&operations, "Controller")[0]["role"], "master");
    assert_eq!(rows(&operations, "Bridge")[0]["datapath_id"], "0000000000000001");
}

#[test]
fn only_what_changed_is_written_again() {
    let mut database = database();
    let translation = database.translated();
    let (mut written, mut state) = (Written::default(), running(&["br0", "eth1"]));
    written.changes(&translation, &state, None, "8.3.1");
    assert!(written.changes(&translation, &state, None, "8.3.1").is_empty());
    let port = state
        .bridges
        .get_mut("br0")
        .unwrap()
        .ports
        .get_mut("eth1")
        .unwrap();
    port.statistics.insert("rx_packets", 6);
    let operations = json_of(&written.changes(&translation, &state, None, "8.3.1"));
    assert_eq!(operations.len(), 1);
    assert_eq!(
        operations[0]["row"],
        json!({"statistics": ["map", [["rx_packets", 6]]]})
    );
    let before = state.clone();
    let br0 = state.bridges.get_mut("br0").unwrap();
    br0.ports.get_mut("eth1").unwrap().has_link = false;
    br0.problems
        .insert("eth9".to_owned(), "another reason".to_owned());
    let since = json_of(&written.changes(&translation, &state, Some(&before), "8.3.1"));
    let mut changed: Vec<_> = since.iter().map(|operation| operation["row"].clone()).collect();
    changed.sort_by_key(Json::to_string);
    let error = "could not open network device eth9 (another reason)";
    assert_eq!(changed, [json!({"error": error}), json!({"link_state": "down"})]);
    assert!(
        written.changes(&translation, &state, None, "8.3.1").is_empty(),
        "rows that were left alone are known as written"
    );
    written.forget();
    assert!(
        written.changes(&translation, &state, None, "8.3.1").len() > 3,
        "a new session writes everything"
    );
}

#[test]
fn a_tunnel_that_the_machine_routes_shows_its_way_or_why_there_is_none() {
    let mut database = Database::default();
    let vx1 = database.port(
        "vx1",
        &json!({}),
        &json!({"type": "vxlan", "options": map(&[("remote_ip", "172.31.1.2")])}),
    );
    database.bridge("br0", &json!({}), &[vx1]);
    let translation = database.translated();
    let mut state = running(&["br0", "vx1"]);
    for (egress, problem, shown) in [
        (
            Some(TunnelEgress {
                interface: "br-phy".to_owned(),
                has_carrier: true,
            }),
            None,
            json!([
                ["tunnel_egress_iface", "br-phy"],
                ["tunnel_egress_iface_carrier", "up"]
            ]),
        ),
        (
            Some(TunnelEgress {
                interface: "eth9".to_owned(),
                has_carrier: false,
            }),
            Some("eth9 is no port".to_owned()),
            json!([
                ["tunnel_egress_iface", "eth9"],
                ["tunnel_egress_iface_carrier", "down"],
                ["tunnel_problem", "eth9 is no port"]
            ]),
        ),
        (None, None, json!([])),
    ] {
        let bridge = state.bridges.get_mut("br0").unwrap();
        bridge.ports.get_mut("vx1").unwrap().tunnel = Some(TunnelState {
            egress,
            problem,
            ..TunnelState::default()
        });
        let operations = json_of(&Written::default().changes(&translation, &state, None, "8.3.1"));
        let mut interfaces = rows(&operations, "Interface").into_iter();
        let row = interfaces.find(|row| row["ofport"] == 1).unwrap();
        assert_eq!(row["status"], json!(["map", shown]));
    }
}
