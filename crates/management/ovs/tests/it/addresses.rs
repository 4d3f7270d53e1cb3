//! The MAC addresses of bridges and internal ports.

use std::collections::BTreeMap;

use millrace_model::{Config, UnicastMac};
use millrace_ovs::{BridgeState, PortState, State, Translation, settle};
use serde_json::{Value as Json, json};

use crate::database::{Database, map, port_of};

/// Returns the state of a switch with bridge `br0` and ports with these addresses.
fn state(ports: &[(&str, &str)]) -> State {
    let port = |(name, mac): &(&str, &str)| {
        let state = PortState {
            mac: (*mac).to_owned(),
            ..PortState::default()
        };
        ((*name).to_owned(), state)
    };
    let bridge = BridgeState {
        ports: ports.iter().map(port).collect(),
        ..BridgeState::default()
    };
    State {
        bridges: BTreeMap::from([("br0".to_owned(), bridge)]),
        ..State::default()
    }
}

fn translated(bridge: &Json, fake_port: &Json) -> Translation {
    let mut database = Database::default();
    let ports = [
        database.port("eth0", &json!({}), &json!({})),
        database.port("eth1", &json!({"tag": 7}), &json!({})),
        database.port("i1", &json!({}), &json!({"type": "internal"})),
        database.port("fake", fake_port, &json!({"type": "internal"})),
        database.bond("bond", &json!({}), &[("eth3", json!({})), ("eth2", json!({}))]),
    ];
    database.bridge("br0", bridge, &ports);
    let mut translation = database.translated();
    assert_eq!(fake(&translation), None);
    translation.keep_addresses(&Config::new());
    translation
}

fn local(translation: &Translation) -> String {
    translation.bridges[0].local_mac.unwrap().to_string()
}

fn fake(translation: &Translation) -> Option<String> {
    let mac = translation.bridges[0].port("fake").unwrap().mac;
    mac.map(|mac: UnicastMac| mac.to_string())
}

const RUNNING: [(&str, &str); 7] = [
    ("br0", "00:00:00:00:00:01"),
    ("eth0", "00:16:3e:00:00:05"),
    ("eth1", "00:16:3e:00:00:06"),
    ("i1", "02:00:00:00:00:01"),
    ("fake", "00:16:3e:00:00:01"),
    // Of a bond, the first interface by name counts.
    ("eth2", "00:16:3e:00:00:04"),
    ("eth3", "00:16:3e:00:00:02"),
];

#[test]
fn a_bridge_has_the_lowest_universal_address_of_its_ports_and_its_datapath_id_follows() {
    let mut translation = translated(&json!({}), &json!({"tag": 7, "fake_bridge": true}));
    let own = local(&translation);
    assert!(own.starts_with("02:"), "{own}");
    assert_eq!(fake(&translation), Some(own.clone()));
    assert!(translation.wants_other_addresses(&state(&RUNNING)));
    assert!(translation.choose_addresses(&state(&RUNNING)));
    assert!(
        !translation.wants_other_addresses(&state(&RUNNING))
            && !translation.choose_addresses(&state(&RUNNING))
    );
    assert_eq!(local(&translation), "00:16:3e:00:00:04");
    assert_eq!(translation.bridges[0].datapath_id().0, 0x0016_3e00_0004);
    assert_eq!(
        fake(&translation).unwrap(),
        "00:16:3e:00:00:06",
        "that of ports with its tag"
    );
    // The next translation begins with what runs.
    let mut config = Config::new();
    config.bridges.clone_from(&translation.bridges);
    let mut next = translated(&json!({}), &json!({"tag": 7, "fake_bridge": true}));
    next.keep_addresses(&config);
    assert_eq!(
        (local(&next), fake(&next)),
        (local(&translation), fake(&translation))
    );
    // Without such ports, the address is the bridge's own again.
    assert!(next.choose_addresses(&state(&RUNNING[..1])));
    assert_eq!((local(&next), fake(&next)), (own.clone(), Some(own)));
}

#[test]
fn a_fake_bridge_asks_for_another_address_when_only_its_own_ports_move() {
    let hwaddr = json!({"other_config": map(&[("hwaddr", "00:16:3e:00:00:99")])});
    let mut translation = translated(&hwaddr, &json!({"tag": 7, "fake_bridge": true}));
    translation.choose_addresses(&state(&RUNNING));
    assert!(!translation.wants_other_addresses(&state(&RUNNING)));
    let mut moved = RUNNING;
    moved[2].1 = "00:16:3e:00:00:08";
    assert!(translation.wants_other_addresses(&state(&moved)));
    translation.choose_addresses(&state(&moved));
    assert_eq!(fake(&translation).unwrap(), "00:16:3e:00:00:08");
    assert_eq!(local(&translation), "00:16:3e:00:00:99");
}

#[test]
fn an_address_in_a_row_decides() {
    let hwaddr = json!({"other_config": map(&[("hwaddr", "00:16:3e:00:00:99")])});
    let mut translation = translated(&hwaddr, &json!({"fake_bridge": true}));
    assert!(!translation.wants_other_addresses(&state(&RUNNING)));
    translation.choose_addresses(&state(&RUNNING));
    assert_eq!(local(&translation), "00:16:3e:00:00:99");
    assert_eq!(translation.bridges[0].datapath_id().0, 0x0016_3e00_0099);
    assert!(translation.faults.is_empty(), "{:?}", translation.faults);
    for (text, said) in [
        ("01:00:00:00:00:01", "whose first byte is even"),
        ("one", "as in 02:"),
    ] {
        let odd = json!({"other_config": map(&[("hwaddr", text)])});
        let faults = translated(&odd, &json!({})).faults;
        assert!(
            faults.len() == 1 && faults[0].to_string().contains(said),
            "{faults:?}"
        );
    }
    // A port counts with the address of its row.
    let mut translation = translated(&json!({}), &json!({"mac": "00:00:5e:00:00:01"}));
    translation.choose_addresses(&state(&RUNNING));
    assert_eq!(local(&translation), "00:00:5e:00:00:01");
}

#[test]
fn internal_ports_have_the_address_of_their_row_and_others_are_named() {
    let mac = |kind: &str, mac: &str| port_of(&json!({}), &json!({"type": kind, "mac": mac}));
    let (text, faults) = mac("internal", "02:00:00:00:00:77");
    assert!(
        text.contains("mac = \"02:00:00:00:00:77\"") && faults.is_empty(),
        "{text} {faults:?}"
    );
    for (kind, address, said) in [
        ("", "02:00:00:00:00:77", "ip link set p1 address"),
        ("internal", "03:00:00:00:00:77", "whose first byte is even"),
    ] {
        let (text, faults) = mac(kind, address);
        assert!(
            !text.contains("mac =") && faults[0].contains(said),
            "{text} {faults:?}"
        );
    }
}

#[test]
fn two_bridges_with_one_address_have_two_datapath_ids() {
    let hwaddr = json!({"other_config": map(&[("hwaddr", "00:16:3e:00:00:99")])});
    let mut database = Database::default();
    database.bridge("br0", &hwaddr, &[]);
    database.bridge("br1", &hwaddr, &[]);
    let mut translation = database.translated();
    let config = settle(&Config::new(), &mut translation, |_| String::new()).unwrap();
    let [br0, br1] = config.bridges.as_slice() else {
        panic!()
    };
    assert_eq!(
        (br0.local_mac, br0.datapath_id().0),
        (br1.local_mac, 0x0016_3e00_0099)
    );
    assert_eq!(br1.datapath_id(), br1.name.derived_dpid());
}
