//! Scripts of ovs-vsctl commands as people have them.

use millrace_import::{Weight, ovs};

use crate::{differences, findings, has, is_valid};

fn read(script: &str) -> millrace_import::Imported {
    let imported = ovs::read("s.sh", script.as_bytes()).unwrap();
    is_valid(&imported);
    imported
}

#[test]
fn a_script_with_bridges_vlans_queues_and_controllers_is_a_configuration() {
    let imported = read(
        "#!/bin/sh -e\n\
         BR=br0\n\
         sudo ovs-vsctl --may-exist add-br $BR -- set-fail-mode $BR secure\n\
         ovs-vsctl add-port br0 eth1 tag=100 -- set Interface eth1 ofport_request=7\n\
         ovs-vsctl add-port br0 eth2 trunks=10,20 \\\n    -- set Port eth2 vlan_mode=trunk\n\
         ovs-vsctl set-controller br0 tcp:192.0.2.1:6653 tcp:192.0.2.2:6653\n\
         ovs-vsctl -- set port eth1 qos=@q -- --id=@q create qos type=linux-htb other-config:max-rate=10000000 queues:1=@q1 \\\n\
           -- --id=@q1 create queue other-config:min-rate=1000000\n\
         ovs-vsctl set bridge br0 other-config:datapath-id=00000000000000aa\n",
    );
    assert_eq!(differences(&imported), "");
    has(
        &imported.config.to_toml(),
        &[
            "name = \"br0\"",
            "dpid = \"00000000000000aa\"",
            "local = \"tap\"",
            "number = 7",
            "vlan = 100",
            "trunks = [10, 20]",
            "tcp:192.0.2.1:6653",
            "tcp:192.0.2.2:6653",
            "rate = \"10Mbps\"",
            "min_rate = \"1Mbps\"",
        ],
    );
}

#[test]
fn what_is_removed_again_is_not_there() {
    let imported = read(
        "ovs-vsctl add-br br0\novs-vsctl add-br br1\novs-vsctl add-port br0 p1\novs-vsctl add-port br0 p2\n\
         ovs-vsctl del-port br0 p1\novs-vsctl del-br br1\novs-vsctl --if-exists del-port p9\n\
         ovs-vsctl set bridge br0 protocols=OpenFlow10,OpenFlow13\novs-vsctl remove bridge br0 protocols OpenFlow10\n\
         ovs-vsctl set-controller br0 tcp:127.0.0.1:6653\novs-vsctl del-controller br0\n",
    );
    let text = imported.config.to_toml();
    assert!(
        !text.contains("p1\"") && !text.contains("br1") && !text.contains("6653"),
        "{text}"
    );
    has(&text, &["kernel:p2"]);
    assert_eq!(differences(&imported), "");
}

#[test]
fn a_fake_bridge_is_a_vlan_of_its_parent() {
    let imported = read("ovs-vsctl add-br br0\novs-vsctl add-br v10 br0 10\novs-vsctl add-port v10 eth1\n");
    has(
        &imported.config.to_toml(),
        &[
            "device = \"kernel:eth1\"\nvlan = 10",
            "device = \"tap:v10\"\nvlan = 10",
        ],
    );
}

#[test]
fn a_mirror_is_a_mirror_of_its_bridge() {
    let imported = read(
        "ovs-vsctl add-br br0 -- add-port br0 eth1 -- add-port br0 snoop0\n\
         ovs-vsctl -- --id=@p get Port snoop0 -- --id=@m create Mirror name=m0 select-all=true output-port=@p -- set Bridge br0 mirrors=@m\n",
    );
    has(
        &imported.config.to_toml(),
        &["[[bridge.mirror]]\nname = \"m0\"\nselect_all = true\noutput_port = \"snoop0\""],
    );
    assert!(differences(&imported).is_empty());
}

#[test]
fn every_line_that_cannot_be_said_is_named_with_its_number() {
    let imported = read(
        "ovs-vsctl add-br br0\n\
         ovs-vsctl add-bond br0 bond0 eth1 eth2 bond_mode=balance-slb\n\
         ovs-vsctl -- --id=@p get Port br0 -- --id=@m create Mirror name=m0 output_port=@p -- set Bridge br0 mirrors=@m\n\
         ovs-ofctl add-flow br0 actions=normal\n\
         ovs-vsctl add-port br0 $NIC\n\
         ovs-vsctl add-port br9 eth3\n\
         ovs-vsctl set Bridge br0 color=red\n\
         ovs-vsctl set-manager ptcp:6640\n\
         ip link set eth1 up\n\
         for i in 1 2; do ovs-vsctl add-port br0 x1; done\n",
    );
    has(
        &differences(&imported),
        &[
            "s.sh:2: Port bond0: bond_mode balance-slb",
            "s.sh:3: Mirror m0: it selects nothing",
            "s.sh:4: ovs-ofctl: flow entries are no configuration; `millrace flow add`",
            "s.sh:5: the command is left out: $NIC has no text",
            "s.sh:6: the command is left out, because ovs-vsctl would refuse it: no bridge named br9",
            "s.sh:7: the command is left out, because ovs-vsctl would refuse it: color: expected a column of table Bridge",
            "Open_vSwitch: manager_options",
            "s.sh:10: `do` of a shell is not executed",
        ],
    );
    has(
        &findings(&imported, Weight::Note),
        &["s.sh:9: `ip` is not executed", "s.sh:10: `for` is not executed"],
    );
    has(&imported.config.to_toml(), &["kernel:x1"]);
    // The file that users keep says the same.
    has(&imported.to_toml("s.sh"), &["# difference: s.sh:4: ovs-ofctl"]);
}

#[test]
fn a_call_takes_effect_as_a_whole_or_not_at_all() {
    let imported = read(
        "ovs-vsctl add-br br0\novs-vsctl add-port br0 p1 -- add-port br9 p2\novs-vsctl --dry-run add-port br0 p3\n",
    );
    let text = imported.config.to_toml();
    assert!(!text.contains("kernel:p"), "{text}");
}

#[test]
fn a_cluster_another_schema_and_another_text_are_refused_by_name() {
    let reason = |bytes: &[u8]| ovs::read("f", bytes).unwrap_err().to_string();
    has(
        &reason(b"OVSDB CLUSTER 10 00\n"),
        &["f: a database of a cluster", "ovsdb-tool cluster-to-standalone"],
    );
    has(&reason(b"OVSDB XML 10 00\n"), &["expected `OVSDB JSON`"]);
    has(&reason(b"\xff\xfe"), &["as UTF-8"]);
    has(&reason(b"\n"), &["expected a conf.db, or a script"]);
    has(&reason(b"OVSDB JSON 2 00\n{}"), &["byte 0", "SHA-1"]);
    // The SHA-1 of `{"name":"OVN_Northbound"}`.
    let other = b"OVSDB JSON 25 7a4d5f9d\n{\"name\":\"OVN_Northbound\"}";
    assert!(reason(other).contains("SHA-1"));
}
