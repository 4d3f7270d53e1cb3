//! Chains of network functions under a controller: their logical ports, steering, and changes of the configuration while
//! packets flow.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

use crate::harness::{PATIENCE, TestSwitch, config, patch, wait_for};
use millrace_agent::BridgeControl;
use millrace_openflow::multipart::{MultipartReply, MultipartRequest, ReplyBody, RequestBody};
use millrace_openflow::*;
use millrace_types::Mac;
use millrace_wire::{Builder, tcp};

const CHAIN: &str = r#"
[[bridge.chain]]
name = "edge"
number = 100
far = 101
[[bridge.chain.hop]]
name = "fw"
function = "firewall"
settings = ["default=allow", "rule=deny tcp port 22"]
[[bridge.chain.hop]]
name = "watch"
function = "monitor"
"#;

fn with(chain: &str) -> String {
    format!("{}{chain}", config(2, ""))
}

fn segment(port: u16, flags: u16, sequence: u32) -> Vec<u8> {
    let ethernet = Builder::ethernet(Mac([2, 0, 0, 0, 0, 2]), Mac([2, 0, 0, 0, 0, 1]));
    let repr = tcp::Repr {
        src: 4000,
        dst: port,
        seq: sequence,
        flags,
        ..tcp::Repr::default()
    };
    ethernet
        .ipv4([10, 0, 0, 1], [10, 0, 0, 2])
        .tcp(repr)
        .pad_to(60)
        .build()
}

fn sequence(frame: &[u8]) -> u32 {
    u32::from_be_bytes(*frame[38..].first_chunk().unwrap())
}

#[test]
fn a_controller_sees_the_ends_of_a_chain_and_sends_through_it() {
    let switch = TestSwitch::start(&with(CHAIN));
    let mut controller = switch.controller();
    let ask = Message::MultipartRequest(MultipartRequest::new(RequestBody::PortDesc));
    let Message::MultipartReply(MultipartReply {
        body: ReplyBody::PortDesc(ports),
        ..
    }) = controller.ask(&ask)
    else {
        panic!("no ports")
    };
    let names: Vec<(u32, String)> = ports
        .iter()
        .map(|port| (port.number.raw(), port.name.to_string()))
        .collect();
    let wanted = [(1, "p1"), (2, "p2"), (100, "edge"), (101, "edge.far")];
    assert_eq!(names, wanted.map(|(number, name)| (number, name.to_owned())));
    controller.add([patch(1, 100), patch(101, 2), patch(2, 101), patch(100, 1)]);
    let (one, two) = (switch.peer(1), switch.peer(2));
    assert!(one.send(&segment(22, tcp::flags::SYN, 1)));
    assert!(one.send(&segment(80, tcp::flags::SYN, 2)));
    assert_eq!(sequence(&two.receive_within(PATIENCE).unwrap()), 2);
    let bridge = switch.switch.bridge("br0").unwrap();
    let stats = bridge.call_blocking(BridgeControl::chain_stats).unwrap();
    let [fw, watch] = &stats[0].hops[..] else { panic!() };
    assert_eq!((fw.packets, fw.dropped, watch.packets), (2, 1, 1));
    assert!(fw.counters.contains(&("denied", 1)));
}

#[test]
fn a_controller_changes_the_path_through_three_functions_under_traffic_without_loss() {
    let mut text = String::from("\n[[bridge.chain]]\nname = \"three\"\nnumber = 100\n");
    for (number, name) in [(111, "a"), (112, "b"), (113, "c")] {
        text += &format!(
            "[[bridge.chain.hop]]\nname = \"{name}\"\nfunction = \"monitor\"\nnumber = {number}\nsteer = true\n"
        );
    }
    let switch = TestSwitch::start(&with(&text));
    let mut controller = switch.controller();
    controller.add([patch(1, 111), patch(111, 112), patch(112, 113), patch(113, 2)]);
    let (one, two) = (switch.peer(1), switch.peer(2));
    const PACKETS: u32 = 40_000;
    let (mut sent, mut received, mut changes) = (0, 0, 0);
    let mut seen = vec![0_u8; PACKETS as usize];
    while received < PACKETS {
        while sent < PACKETS && sent - received < 300 {
            sent += u32::from(one.send(&segment(80, tcp::flags::ACK, sent)));
        }
        if received / 1_000 > changes {
            changes += 1;
            // 1 -> a -> b -> c -> 2, or 1 -> a -> c -> 2.
            let next = if changes % 2 == 0 { 112 } else { 113 };
            controller.add([patch(111, next)]);
            controller.barrier();
        }
        // A packet on the shorter path may overtake another one; none is lost.
        seen[sequence(&two.receive_within(PATIENCE).unwrap()) as usize] += 1;
        received += 1;
    }
    assert!(changes > 20 && seen.iter().all(|times| *times == 1));
    let bridge = switch.switch.bridge("br0").unwrap();
    let stats = bridge.call_blocking(BridgeControl::chain_stats).unwrap();
    let packets: Vec<u64> = stats[0].hops.iter().map(|hop| hop.packets).collect();
    assert_eq!((packets[0], packets[2]), (PACKETS.into(), PACKETS.into()));
    assert!(packets[1] > 0 && packets[1] < PACKETS.into());
}

#[test]
fn a_configuration_changes_hops_under_traffic_in_order_and_reports_its_problems() {
    let mut switch = TestSwitch::start(&with(CHAIN));
    let mut controller = switch.controller();
    controller.add([patch(1, 100), patch(101, 2)]);
    let (one, two) = (switch.peer(1), switch.peer(2));
    let settings = [
        CHAIN.replace(
            "[[bridge.chain.hop]]\nname = \"watch\"\nfunction = \"monitor\"\n",
            "",
        ),
        CHAIN.replace("function = \"monitor\"", "function = \"macswap\"\ninstances = 2"),
        CHAIN.replace("default=allow", "default=deny\", \"rule=allow tcp"),
        CHAIN.to_owned(),
    ];
    let (mut sent, mut received) = (0, 0);
    assert!(one.send(&segment(80, tcp::flags::SYN, 0)));
    two.receive_within(PATIENCE).unwrap();
    for round in 0..40 {
        for _ in 0..200 {
            // The firewall allows a SYN in every state.
            assert!(one.send(&segment(80, tcp::flags::SYN, sent)));
            sent += 1;
        }
        let status = switch.apply(&with(&settings[round % settings.len()]));
        assert_eq!(status.problems, []);
        while received < sent {
            assert_eq!(sequence(&two.receive_within(PATIENCE).unwrap()), received);
            received += 1;
        }
    }
    let wrong = CHAIN.replace("\"monitor\"", "\"wasm:/nonexistent.wasm\"");
    let status = switch.apply(&with(&wrong));
    assert_eq!(status.problems.len(), 1);
    let reported = &status.problems[0];
    assert_eq!(reported.object, "bridge br0, chain edge");
    for part in [
        "hop watch: function wasm:/nonexistent.wasm: ",
        ". To fix it: put a file there",
    ] {
        assert!(reported.reason.contains(part), "{reported:?}");
    }
    let problem = |switch: &TestSwitch| {
        let bridge = switch.switch.bridge("br0").unwrap();
        bridge
            .call_blocking(|control| control.chain_problem("edge").map(str::to_owned))
            .unwrap()
    };
    assert_eq!(problem(&switch).as_deref(), Some(reported.reason.as_str()));
    assert!(
        one.send(&segment(80, tcp::flags::SYN, sent)),
        "the chain continues with its former configuration"
    );
    assert_eq!(sequence(&two.receive_within(PATIENCE).unwrap()), sent);
    switch.apply(&with(CHAIN));
    assert_eq!(problem(&switch), None);
}

#[test]
fn a_chain_that_is_no_longer_configured_is_removed_with_its_ports() {
    let mut switch = TestSwitch::start(&with(CHAIN));
    let numbers = |switch: &TestSwitch| {
        let bridge = switch.switch.bridge("br0").unwrap();
        let ports = bridge.call_blocking(|control| control.ports().keys().map(|port| port.raw()).collect());
        let ports: Vec<u32> = ports.unwrap();
        ports
    };
    assert_eq!(numbers(&switch), [1, 2, 100, 101]);
    switch.apply(&with(&CHAIN.replace("far = 101\n", "")));
    assert_eq!(numbers(&switch), [1, 2, 100]);
    switch.apply(&with(&CHAIN.replace("name = \"edge\"", "name = \"rim\"")));
    assert_eq!(numbers(&switch), [1, 2, 100, 101]);
    switch.apply(&with(""));
    wait_for("the ports to go", || (numbers(&switch) == [1, 2]).then_some(()));
}

/// Returns a module whose function traps on every packet.
fn failing_module() -> Vec<u8> {
    let description = "millrace-nf 1\\0aname fails\\0a";
    let text = format!(
        r#"(module (memory (export "memory") 4) (data (i32.const 1024) "{description}")
        (func (export "millrace_nf_describe") (result i64) (i64.const {}))
        (func (export "millrace_nf_text") (param i32) (result i32) (i32.const 4096))
        (func (export "millrace_nf_make") (param i32 i64 i64) (result i64) (i64.const 0))
        (func (export "millrace_nf_room") (param i32) (result i32) (i32.const 65536))
        (func (export "millrace_nf_counters") (result i32) (i32.const 8192))
        (func (export "millrace_nf_process") (param i32 i64 i32) unreachable))"#,
        1024 | (description.replace("\\0a", "\n").len() as u64) << 32
    );
    wat::parse_str(text).unwrap()
}

#[test]
fn a_hop_that_is_down_is_a_problem_of_the_switch_with_its_reason_until_it_is_back() {
    let file = tempfile::NamedTempFile::with_suffix(".wasm").unwrap();
    std::fs::write(file.path(), failing_module()).unwrap();
    let module = format!("wasm:{}", file.path().display());
    let switch = TestSwitch::start(&with(&CHAIN.replace("monitor", &module)));
    let mut controller = switch.controller();
    controller.add([patch(1, 100), patch(101, 2)]);
    assert_eq!(switch.switch.status().problems, []);
    let one = switch.peer(1);
    let problem = wait_for("the problem", || {
        // The function is started again, and fails on the next packet.
        one.send(&segment(80, tcp::flags::SYN, 1));
        switch.switch.status().problems.pop()
    });
    assert_eq!(problem.object, "bridge br0, chain edge, hop watch");
    for part in ["wasm `unreachable`", ". To fix it: it is started again"] {
        assert!(problem.reason.contains(part), "{problem:?}");
    }
    wait_for("the hop to be back", || {
        switch.switch.status().problems.is_empty().then_some(())
    });
}
