//! Mirror rows as mirrors of the configuration, and their statistics.

use std::collections::BTreeMap;

use millrace_model::Config;
use millrace_ovs::{BridgeState, MirrorState, State, Translation, Written, settle};
use millrace_ovsdb::{Operation, Uuid};
use serde_json::{Value as Json, json};

use crate::database::{Database, uuid};

/// A bridge with the ports p1, p2, a bond of e1 and e2, and snoop0, and a port of a type that the switch lacks.
struct Ports {
    database: Database,
    p1: Uuid,
    p2: Uuid,
    bond: Uuid,
    snoop: Uuid,
    failed: Uuid,
}

fn ports() -> Ports {
    let mut database = Database::default();
    let internal = json!({"type": "internal"});
    let p1 = database.port("p1", &json!({}), &internal);
    let p2 = database.port("p2", &json!({}), &internal);
    let snoop = database.port("snoop0", &json!({}), &internal);
    let failed = database.port("g1", &json!({}), &json!({"type": "geneve"}));
    let members = [("e1", json!({})), ("e2", json!({}))];
    let bond = database.bond("bond0", &json!({"lacp": "active"}), &members);
    Ports {
        database,
        p1,
        p2,
        bond,
        snoop,
        failed,
    }
}

impl Ports {
    /// Returns the translation with these mirrors.
    fn with(&mut self, mirrors: &[Json]) -> Translation {
        let rows: Vec<Json> = mirrors
            .iter()
            .map(|columns| uuid(self.database.row("Mirror", columns)))
            .collect();
        let all = [self.p1, self.p2, self.bond, self.snoop, self.failed];
        self.database
            .bridge("br0", &json!({"mirrors": ["set", rows]}), &all);
        self.database.translated()
    }
}

/// Returns the mirrors of the settled configuration as TOML, one for each, and the faults of rows of mirrors.
fn settled(translation: &mut Translation) -> (Vec<String>, Vec<String>) {
    let config = settle(&Config::new(), translation, |_| String::new()).unwrap();
    let toml = config.to_toml();
    let mirrors = toml.split("[[bridge.mirror]]\n").skip(1);
    let mirrors = mirrors.map(|mirror| mirror.split("\n\n").next().unwrap().trim_end().to_owned());
    let faults = translation.faults.iter().map(ToString::to_string);
    (
        mirrors.collect(),
        faults.filter(|fault| fault.starts_with("Mirror")).collect(),
    )
}

#[test]
fn columns_of_a_mirror_are_keys_of_the_configuration() {
    let mut ports = ports();
    let (p1, p2, bond, snoop) = (ports.p1, ports.p2, ports.bond, ports.snoop);
    let mut translation = ports.with(&[
        json!({"name": "m0", "select_all": true, "select_src_port": uuid(p1), "output_port": uuid(snoop)}),
        json!({"name": "m1", "select_src_port": ["set", [uuid(p1), uuid(bond)]], "select_dst_port": uuid(p2),
               "select_vlan": ["set", [0, 10]], "output_vlan": 900, "snaplen": 64}),
    ]);
    let (mirrors, faults) = settled(&mut translation);
    assert_eq!(
        mirrors,
        [
            "name = \"m0\"\nselect_all = true\noutput_port = \"snoop0\"",
            "name = \"m1\"\nselect_received = [\"bond0\", \"p1\"]\nselect_sent = [\"p2\"]\nselect_vlans = [0, 10]\n\
             output_vlan = 900\nsnaplen = 64",
        ]
    );
    assert!(faults.is_empty(), "{faults:?}");
}

#[test]
fn the_local_port_may_be_the_output() {
    let mut database = Database::default();
    let bridge = database.bridge("br0", &json!({}), &[]);
    let local = Uuid::from_u128(2);
    let mirror = database.row(
        "Mirror",
        &json!({"name": "m0", "select_all": true, "output_port": uuid(local)}),
    );
    database.put(
        "Bridge",
        bridge,
        &json!({"name": "br0", "ports": uuid(local), "mirrors": uuid(mirror)}),
    );
    let (mirrors, faults) = settled(&mut database.translated());
    assert_eq!(
        mirrors,
        ["name = \"m0\"\nselect_all = true\noutput_port = \"br0\""]
    );
    assert!(faults.is_empty(), "{faults:?}");
}

#[test]
fn a_row_that_cannot_be_had_is_named_and_the_others_stay() {
    let mut ports = ports();
    let (p1, snoop, failed) = (ports.p1, ports.snoop, ports.failed);
    let mut translation = ports.with(&[
        json!({"name": "a-none", "select_all": true}),
        json!({"name": "b-nothing", "output_port": uuid(snoop)}),
        json!({"name": "c-failed", "select_all": true, "output_port": uuid(failed)}),
        json!({"name": "d-half", "select_src_port": ["set", [uuid(p1), uuid(failed)]], "output_port": uuid(snoop)}),
        json!({"name": "e-vlan", "select_all": true, "output_vlan": 4095}),
        json!({"name": "f-both", "select_all": true, "output_port": uuid(snoop), "output_vlan": 9}),
        json!({"name": "g-itself", "select_dst_port": uuid(snoop), "output_port": uuid(snoop)}),
        json!({"name": "h-copies", "select_src_port": ["set", [uuid(p1), uuid(snoop)]], "output_vlan": 9}),
        json!({"name": "i-copies", "select_dst_port": uuid(snoop), "output_vlan": 9}),
    ]);
    let (mirrors, faults) = settled(&mut translation);
    let names: Vec<&str> = mirrors
        .iter()
        .map(|mirror| mirror.lines().next().unwrap())
        .collect();
    assert_eq!(
        names,
        ["name = \"d-half\"", "name = \"f-both\"", "name = \"h-copies\""]
    );
    assert!(mirrors[0].contains("select_received = [\"p1\"]"));
    assert!(mirrors[2].contains("select_received = [\"p1\"]"));
    let expected = [
        "Mirror a-none: no output: expected output_port or output_vlan",
        "Mirror b-nothing: it selects nothing",
        "Mirror c-failed: output_port g1: the bridge has no such port",
        "Mirror d-half: select_src_port g1: the bridge has no such port",
        "Mirror e-vlan: output_vlan=4095: expected 1 to 4094",
        "Mirror f-both: output_vlan=9 has no effect",
        "Mirror g-itself: it selects nothing",
        "Mirror h-copies: `snoop0` is the output port of mirror",
        "Mirror i-copies: `snoop0` is the output port of mirror",
    ];
    for expected in expected {
        assert!(
            faults.iter().any(|fault| fault.starts_with(expected)),
            "{expected}: {faults:?}"
        );
    }
    assert_eq!(faults.len(), expected.len(), "{faults:?}");
}

#[test]
fn a_name_that_the_model_lacks_becomes_one_of_the_uuid_and_statistics_find_their_row() {
    let mut ports = ports();
    let snoop = ports.snoop;
    let mirror = |name: &str| json!({"name": name, "select_all": true, "output_port": uuid(snoop)});
    let translation = ports.with(&[
        mirror("my favourite mirror"),
        mirror("m0"),
        mirror("m0"),
        json!({"name": "none"}),
    ]);
    let names: Vec<_> = translation.rows[0]
        .mirrors
        .iter()
        .map(|row| (row.name.as_str(), row.model_name.as_deref()))
        .collect();
    let (first, second, third) = (names[0], names[1], names[2]);
    assert_eq!((first, names[3]), (("m0", Some("m0")), ("none", None)));
    assert!(
        second.0 == "m0" && second.1.is_some_and(|name| name.starts_with("mirror-")),
        "{names:?}"
    );
    assert!(
        third.0 == "my favourite mirror" && third.1.is_some_and(|name| name.starts_with("mirror-")),
        "{names:?}"
    );
    assert_ne!(second.1, third.1);
    let count = MirrorState {
        packets: 3,
        bytes: 200,
    };
    let bridge = BridgeState {
        mirrors: BTreeMap::from([("m0".to_owned(), count)]),
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
        .filter(|operation| operation["table"] == "Mirror")
        .map(|operation| operation["row"]["statistics"].clone())
        .collect();
    assert_eq!(operations.len(), 4);
    let written = json!(["map", [["tx_bytes", 200], ["tx_packets", 3]]]);
    assert_eq!(operations.iter().filter(|row| **row == written).count(), 1);
    assert_eq!(
        operations
            .iter()
            .filter(|row| **row == json!(["map", []]))
            .count(),
        3
    );
}
