//! Columns of rows and their values in the model.

use millrace_model as model;
use serde_json::{Value as Json, json};

use crate::database::{Database, map, port_of, uuid};

fn interface(columns: &Json) -> (String, Vec<String>) {
    port_of(&json!({}), columns)
}

#[test]
fn every_type_of_interface_has_its_device_or_says_what_is_missing() {
    for (columns, device) in [
        (json!({}), "kernel:p1"),
        (json!({"type": "system"}), "kernel:p1"),
        (json!({"type": "internal"}), "tap:p1"),
        (json!({"type": "tap"}), "tap:p1"),
        (
            json!({"type": "dpdk", "options": map(&[("dpdk-devargs", "0000:01:00.0")])}),
            "0000:01:00.0",
        ),
        (
            json!({"type": "dpdkvhostuserclient", "options": map(&[("vhost-server-path", "/run/v.sock")])}),
            "vhost:/run/v.sock,role=client",
        ),
        (
            json!({"type": "vxlan", "options": map(&[("remote_ip", "192.0.2.2"), ("local_ip", "192.0.2.1"),
                ("underlay", "eth1"), ("key", "7"), ("tos", "0xb8"), ("dst_port", "8472"), ("ttl", "9")])}),
            "vxlan:remote=192.0.2.2,local=192.0.2.1,underlay=eth1,key=7,port=8472,ttl=9,dscp=46",
        ),
        (
            json!({"type": "vxlan", "options": map(&[("remote_ip", "172.31.1.2")])}),
            "vxlan:remote=172.31.1.2,underlay=host",
        ),
        (
            json!({"type": "gre", "options": map(&[("remote_ip", "fd00::2"), ("local_ip", "fd00::1"), ("key", "flow"),
                ("df_default", "true"), ("csum", "true")])}),
            "gre:remote=fd00::2,local=fd00::1,underlay=host,key=flow,csum=true",
        ),
        (
            json!({"type": "patch", "options": map(&[("peer", "nobody")])}),
            "memory",
        ),
    ] {
        let (text, faults) = interface(&columns);
        assert_eq!(text, format!("device = \"{device}\""), "{columns} {faults:?}");
        assert!(faults.is_empty(), "{faults:?}");
    }
    for (columns, said) in [
        (json!({"type": "patch"}), "requires valid 'peer'"),
        (
            json!({"type": "patch", "options": map(&[("peer", "p1")])}),
            "must not be self",
        ),
        (json!({"type": "dpdk"}), "missing 'options:dpdk-devargs'"),
        (
            json!({"type": "geneve"}),
            "type geneve is not available: expected",
        ),
        (json!({"type": "vxlan"}), "requires valid 'remote_ip'"),
        (
            json!({"type": "vxlan", "options": map(&[("remote_ip", "192.0.2.2"), ("underlay", "eth1")])}),
            "`local` is missing",
        ),
        (
            json!({"type": "gre", "options": map(&[("remote_ip", "flow")])}),
            "remote_ip=flow is not available",
        ),
    ] {
        let (text, faults) = interface(&columns);
        assert!(
            text.is_empty() && faults[0].contains(said),
            "{columns}: {text} {faults:?}"
        );
    }
}

#[test]
fn the_vlan_modes_of_open_vswitch_are_those_of_normal() {
    for (port, settings) in [
        (json!({"tag": 5}), "vlan = 5"),
        (json!({"tag": 5, "vlan_mode": "access", "trunks": 6}), "vlan = 5"),
        (json!({"trunks": ["set", [5, 6]]}), "trunks = [5, 6]"),
        (json!({"trunks": 6, "vlan_mode": "trunk"}), "trunks = [6]"),
        (
            json!({"tag": 5, "trunks": ["set", [5, 6]], "vlan_mode": "native-untagged"}),
            "vlan = 5\ntrunks = [6]",
        ),
        (
            json!({"tag": 5, "trunks": ["set", [5, 6]], "vlan_mode": "native-tagged"}),
            "vlan = 5\ntrunks = [6]\nvlan_tagged = true",
        ),
        (
            json!({"tag": 5, "vlan_mode": "native-tagged"}),
            "vlan = 5\nvlan_tagged = true",
        ),
        (
            json!({"tag": 5, "vlan_mode": "dot1q-tunnel", "cvlans": ["set", [7, 8]],
                   "other_config": map(&[("qinq-ethtype", "802.1q")])}),
            "vlan = 5\n\n[bridge.port.dot1q_tunnel]\ncustomer_vlans = [7, 8]\nservice_tag = \"802.1q\"",
        ),
        (json!({"protected": true}), "protected = true"),
        (json!({"tag": 4095}), "no_recv = true\nno_fwd = true"),
    ] {
        let (text, faults) = port_of(&port, &json!({}));
        assert_eq!(text, format!("device = \"kernel:p1\"\n{settings}"), "{port}");
        assert!(faults.is_empty(), "{faults:?}");
    }
    let (text, _) = port_of(&json!({"tag": 5, "vlan_mode": "native-untagged"}), &json!({}));
    assert!(
        text.contains("trunks = [1, 2, 3, 4, 6,") && text.contains("4094]"),
        "{text}"
    );
    for (port, said) in [
        (json!({"tag": 5, "trunks": 6}), "trunks has no effect beside tag"),
        (json!({"tag": 0}), "tag=0"),
        (
            json!({"vlan_mode": "dot1q-tunnel"}),
            "vlan_mode=dot1q-tunnel without a service VLAN",
        ),
        (
            json!({"tag": 5, "vlan_mode": "dot1q-tunnel", "cvlans": 0}),
            "cvlans: 0 has no effect",
        ),
        (
            json!({"tag": 5, "vlan_mode": "dot1q-tunnel", "trunks": 6}),
            "expected cvlans",
        ),
        (json!({"tag": 5, "cvlans": 6}), "cvlans has no effect"),
        (
            json!({"other_config": map(&[("qinq-ethtype", "802.1q")])}),
            "only vlan_mode=dot1q-tunnel",
        ),
        (
            json!({"other_config": map(&[("priority-tags", "always")])}),
            "priority-tags=always has no effect",
        ),
    ] {
        let (_, faults) = port_of(&port, &json!({}));
        assert!(faults.len() == 1 && faults[0].contains(said), "{faults:?}");
    }
}

#[test]
fn rates_are_bits_in_a_qos_row_and_kilobits_in_policing() {
    let (text, faults) = interface(&json!({"ingress_policing_rate": 10_000, "ingress_policing_burst": 800}));
    assert!(faults.is_empty(), "{faults:?}");
    for part in ["cir = \"10Mbps\"", "cbs = 100000", "yellow = \"drop\""] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let mut database = Database::default();
    let queue = database.row(
        "Queue",
        &json!({"other_config": map(&[("min-rate", "1000000"), ("priority", "0")])}),
    );
    let other = database.row(
        "Queue",
        &json!({"other_config": map(&[("max-rate", "2000000"), ("priority", "9")])}),
    );
    let queues = json!(["map", [[1, uuid(queue)], [2, uuid(other)]]]);
    let other_config = map(&[("max-rate", "50000000")]);
    let qos = database.row(
        "QoS",
        &json!({"type": "linux-htb", "queues": queues, "other_config": other_config}),
    );
    let p1 = database.port("p1", &json!({"qos": uuid(qos)}), &json!({}));
    database.bridge("br0", &json!({}), &[p1]);
    let translation = database.translated();
    let port = &translation.bridges[0].ports[0];
    assert_eq!(port.rate.unwrap().to_string(), "50Mbps");
    let shown: Vec<_> = port
        .egress_queues
        .iter()
        .map(|queue| (queue.id.0, queue.priority.get()))
        .collect();
    assert_eq!(shown, [(1, 7), (2, 0)], "0 is the highest priority of linux-htb");
}

#[test]
fn a_bridge_without_fail_mode_is_standalone_and_has_a_management_socket() {
    let mut database = Database::default();
    let other = map(&[
        ("datapath-id", "00000000000000b1"),
        ("mac-aging-time", "5"),
        ("hwaddr", "00:00:00:00:00:01"),
        ("forward-bpdu", "true"),
    ]);
    let flooded = json!({"other_config": other, "flood_vlans": ["set", [0, 7]]});
    database.bridge("br0", &flooded, &[]);
    database.bridge(
        "br1",
        &json!({"fail_mode": "secure", "rstp_enable": true, "mcast_snooping_enable": true}),
        &[],
    );
    let translation = database.translated();
    let [br0, br1] = translation.bridges.as_slice() else {
        panic!()
    };
    assert_eq!(
        (br0.fail_mode, br1.fail_mode),
        (model::FailMode::Standalone, model::FailMode::Secure)
    );
    assert_eq!(br0.listen[0].target.to_string(), "punix:/run/ovs/br0.mgmt");
    assert_eq!(
        (br0.datapath_id().0, br0.mac_ageing_s.get(), br0.local),
        (0xb1, 15, model::LocalPort::Tap)
    );
    assert!(br1.rstp.is_some() && !translation.rows[1].has_stp && br0.rstp.is_none());
    let faults: Vec<_> = translation.faults.iter().map(ToString::to_string).collect();
    assert_eq!(faults.len(), 2, "{faults:?}");
    assert!(
        faults[0].starts_with("Bridge br0: flood_vlans: 0 has no effect"),
        "{faults:?}"
    );
    assert!(
        br0.forward_bpdu && br0.flood_vlans == [millrace_types::Vid::new(7).unwrap()],
        "{br0:?}"
    );
    assert!(
        faults[1].starts_with("Bridge br1: mcast_snooping_enable"),
        "{faults:?}"
    );
}

#[test]
fn controllers_connect_or_say_why_they_do_not() {
    let mut database = Database::default();
    let mut add = |columns: Json| uuid(database.row("Controller", &columns));
    let controllers = vec![
        add(json!({"target": "tcp:127.0.0.1:6653", "max_backoff": 1000, "inactivity_probe": 500})),
        add(json!({"target": "ptcp:6634"})),
        add(json!({"target": "ssl:127.0.0.1:6654"})),
        add(json!({"target": "bogus"})),
    ];
    database.bridge("br0", &json!({"controller": ["set", controllers]}), &[]);
    let translation = database.translated();
    let bridge = &translation.bridges[0];
    assert_eq!(bridge.controllers.len(), 1);
    let first = &bridge.controllers[0];
    assert_eq!(
        (first.max_backoff_s.get(), first.echo_interval_s.get()),
        (1, 1),
        "half a second is not none"
    );
    assert_eq!(bridge.listen[0].target.to_string(), "ptcp:6634:127.0.0.1");
    let rows = &translation.rows[0].controllers;
    let failed: Vec<_> = rows
        .iter()
        .filter(|row| row.error.is_some())
        .map(|row| row.target.as_str())
        .collect();
    assert_eq!(failed, ["bogus", "ssl:127.0.0.1:6654"]);
}

#[test]
fn a_bridge_that_speaks_only_other_versions_connects_to_nobody() {
    let mut database = Database::default();
    let controller = uuid(database.row("Controller", &json!({"target": "tcp:127.0.0.1:6653"})));
    database.bridge(
        "br0",
        &json!({"controller": controller, "protocols": "OpenFlow10"}),
        &[],
    );
    let translation = database.translated();
    assert!(translation.bridges[0].controllers.is_empty());
    let error = translation.rows[0].controllers[0].error.as_deref().unwrap();
    assert!(error.contains("OpenFlow13"), "{error}");
}

#[test]
fn patch_ports_that_name_each_other_are_one_link() {
    let mut database = Database::default();
    let patch = |peer| json!({"type": "patch", "options": map(&[("peer", peer)])});
    let to1 = database.port("to-br1", &json!({}), &patch("to-br0"));
    let to0 = database.port("to-br0", &json!({}), &patch("to-br1"));
    let lost = database.port("lost", &json!({}), &patch("to-br0"));
    database.bridge("br0", &json!({}), &[to1, lost]);
    database.bridge("br1", &json!({}), &[to0]);
    let translation = database.translated();
    let devices: Vec<_> = translation
        .bridges
        .iter()
        .flat_map(|bridge| &bridge.ports)
        .map(|port| port.device.to_string())
        .collect();
    assert_eq!(devices, ["memory", "link:to-br0", "link:to-br0"]);
}

#[test]
fn names_that_the_switch_cannot_have_are_errors_of_their_rows() {
    let mut database = Database::default();
    let bad = database.port("1", &json!({}), &json!({}));
    let good = database.port("eth1", &json!({}), &json!({}));
    database.bridge("br0", &json!({}), &[bad, good]);
    database.bridge("a-name-of-a-bridge-that-is-long", &json!({}), &[]);
    let translation = database.translated();
    assert_eq!(translation.bridges.len(), 1);
    assert_eq!(
        translation.bridges[0].ports.len(),
        1,
        "one row does not prevent another"
    );
    assert!(
        translation.rows[0].error.as_deref().unwrap().contains("1 to 15"),
        "{:?}",
        translation.rows[0]
    );
    let port = translation.rows[1]
        .ports
        .iter()
        .find(|port| port.name == "1")
        .unwrap();
    assert!(port.interfaces[0].error.is_some() && port.interfaces[0].number.is_none());
}
