//! ovs-ofctl, an independent controller, against the whole switch. The tests are skipped, with one line, where it is not
//! installed.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

use std::process::Command;

use crate::harness::{TestSwitch, config, packet, wait_for};

pub(crate) struct Ofctl {
    target: String,
}

impl Ofctl {
    pub(crate) fn on(switch: &TestSwitch) -> Option<Ofctl> {
        if Command::new("ovs-ofctl").arg("--version").output().is_err() {
            eprintln!("skipped: ovs-ofctl is not installed (apt-get install openvswitch-common)");
            return None;
        }
        let target = format!("tcp:{}", switch.address());
        Some(Ofctl { target })
    }

    /// Runs a command and returns its output, errors included.
    fn run(&self, command: &str, args: &[&str]) -> (bool, String) {
        let output = Command::new("timeout")
            .args([
                "20",
                "ovs-ofctl",
                "--names",
                "-O",
                "OpenFlow13",
                command,
                &self.target,
            ])
            .args(args)
            .output()
            .unwrap();
        let text =
            String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        (output.status.success(), text)
    }

    pub(crate) fn ok(&self, command: &str, args: &[&str]) -> String {
        let (is_ok, text) = self.run(command, args);
        assert!(is_ok, "{command} {args:?}: {text}");
        text
    }
}

#[test]
fn ovs_ofctl_shows_and_changes_everything() {
    let switch = TestSwitch::start(&config(3, "tables = 20"));
    let Some(ofctl) = Ofctl::on(&switch) else {
        return;
    };
    let show = ofctl.ok("show", &[]);
    assert!(show.contains("n_tables:20, n_buffers:256"), "{show}");
    assert!(show.contains("1(p1): addr:02:00:00:00:00:00"), "{show}");
    ofctl.ok(
        "add-flow",
        &["table=0,priority=7,ip,in_port=1,actions=dec_ttl,output:2"],
    );
    ofctl.ok("add-flow", &["table=3,cookie=0x12,tcp,nw_dst=10.0.0.0/8,tp_dst=80,idle_timeout=60,actions=push_vlan:0x8100,set_field:4196->vlan_vid,output:3,goto_table:4"]);
    ofctl.ok("add-flow", &["table=1,ipv6,ipv6_dst=2001:db8::/32,actions=drop"]);
    let flows = ofctl.ok("dump-flows", &[]);
    assert!(
        flows.contains("table=0, n_packets=0, n_bytes=0, priority=7,ip,in_port=p1 actions=dec_ttl,output:p2"),
        "{flows}"
    );
    assert!(
        flows.contains("cookie=0x12, ") && flows.contains("idle_timeout=60, tcp,nw_dst=10.0.0.0/8,tp_dst=80 actions=push_vlan:0x8100,set_field:4196->vlan_vid,output:p3,goto_table:4"),
        "{flows}"
    );
    let one = ofctl.ok("dump-flows", &["table=1"]);
    assert_eq!(
        one.lines().filter(|line| line.contains("table=")).count(),
        1,
        "{one}"
    );
    switch.peer(1).send(&packet(100));
    assert!(switch.peer(2).receive_within(crate::harness::PATIENCE).is_some());
    wait_for("the packet to be counted", || {
        let flows = ofctl.ok("dump-flows", &["table=0"]);
        flows.contains("n_packets=1, n_bytes=100").then_some(())
    });
    let aggregate = ofctl.ok("dump-aggregate", &[]);
    assert!(
        aggregate.contains("packet_count=1 byte_count=100 flow_count=3"),
        "{aggregate}"
    );
    let tables = ofctl.ok("dump-tables", &[]);
    assert!(tables.contains("active=1, lookup=1, matched=1"), "{tables}");
    let features = ofctl.ok("dump-table-features", &[]);
    assert!(
        features.contains("table 19") && features.contains("max_entries"),
        "{features}"
    );
    let ports = ofctl.ok("dump-ports", &[]);
    assert!(ports.contains("rx pkts=1, bytes=100"), "{ports}");
    ofctl.ok("dump-ports", &["p2"]);
    ofctl.ok("dump-ports-desc", &[]);
    ofctl.ok("dump-desc", &[]);
    ofctl.ok("dump-groups", &[]);
    ofctl.ok("dump-group-features", &[]);
    ofctl.ok("dump-group-stats", &[]);
    ofctl.ok("dump-meters", &[]);
    ofctl.ok("meter-features", &[]);
    ofctl.ok("meter-stats", &[]);
    ofctl.ok("queue-stats", &[]);
    ofctl.ok("queue-get-config", &["p1"]);
    ofctl.ok("get-frags", &[]);
    ofctl.ok("mod-port", &["p2", "no-forward"]);
    let show = ofctl.ok("show", &[]);
    assert!(show.contains("config:     NO_FWD"), "{show}");
    ofctl.ok("mod-port", &["p2", "forward"]);
    ofctl.ok("mod-flows", &["table=0,ip,in_port=1,actions=output:3"]);
    let flows = ofctl.ok("dump-flows", &["table=0"]);
    assert!(
        flows.contains("n_packets=1") && flows.contains("actions=output:p3"),
        "{flows}"
    );
    let frame: String = packet(80).iter().map(|byte| format!("{byte:02x}")).collect();
    let packet_out = format!("in_port=controller,packet={frame},actions=output:2");
    ofctl.ok("packet-out", &[&packet_out]);
    assert_eq!(
        switch.peer(2).receive_within(crate::harness::PATIENCE),
        Some(packet(80))
    );
}

#[test]
fn invalid_requests_of_ovs_ofctl_are_refused() {
    let switch = TestSwitch::start(&config(1, "tables = 2"));
    let Some(ofctl) = Ofctl::on(&switch) else {
        return;
    };
    for (command, args, error) in [
        ("add-flow", "table=5,actions=drop", "OFPFMFC_BAD_TABLE_ID"),
        ("add-flow", "actions=group:7", "OFPBAC_BAD_OUT_GROUP"),
        (
            "add-group",
            "group_id=1,type=all,bucket=group:2",
            "OFPBAC_BAD_OUT_GROUP",
        ),
        (
            "mod-meter",
            "meter=1,kbps,band=type=drop,rate=1",
            "OFPMMFC_UNKNOWN_METER",
        ),
    ] {
        let (is_ok, text) = ofctl.run(command, &[args]);
        assert!(text.contains(error), "{command} {args} (ok: {is_ok}): {text}");
    }
    ofctl.ok("del-groups", &[]);
    ofctl.ok("del-meters", &[]);
    ofctl.ok("del-flows", &[]);
}
