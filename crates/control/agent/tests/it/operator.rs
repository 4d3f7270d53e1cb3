//! Flow entries that an operator changes: they take effect at once, all or none, and controllers are notified.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

use crate::harness::{SILENCE, TestSwitch, config, flow, output, packet, patch, wait_for};
use millrace_agent::BridgeControl;
use millrace_agent::control::ChainTraceEnd;
use millrace_datapath::io::HeapBackend;
use millrace_flow::{Field, Instructions, Match};
use millrace_openflow::{FlowRemovedReason, Message};
use millrace_pipeline::{FlowFilter, FlowFlags, FlowMod, FlowModCommand, FlowModError};
use millrace_types::{PortNo, Priority, TableId};

/// Runs a task on the control thread of the bridge.
fn on_bridge<T: Send + 'static>(
    switch: &TestSwitch,
    call: impl FnOnce(&mut BridgeControl<HeapBackend>) -> T + Send + 'static,
) -> T {
    let bridge = switch.switch.bridge("br0").unwrap();
    bridge.call_blocking(call).unwrap()
}

fn add(priority: u16, from: u32, to: u32) -> FlowMod {
    FlowMod {
        instructions: Instructions::apply(&[output(to)][..]),
        ..FlowMod::new(
            FlowModCommand::Add,
            TableId(0),
            Priority(priority),
            Match::exact(&[(Field::InPort, from.into())]).unwrap(),
        )
    }
}

fn delete_all() -> FlowMod {
    FlowMod::new(FlowModCommand::Delete, TableId::ALL, Priority(0), Match::any())
}

#[test]
fn entries_of_an_operator_forward_as_soon_as_the_call_returns_and_outlive_controllers() {
    let switch = TestSwitch::start(&config(2, "fail_mode = \"secure\""));
    let done = on_bridge(&switch, |bridge| bridge.flow_mods(vec![add(5, 1, 2)])).unwrap();
    assert_eq!((done.added, done.modified, done.removed), (1, 0, 0));
    let (one, two) = (switch.peer(1), switch.peer(2));
    assert!(one.send(&packet(64)));
    wait_for("the packet", || two.receive());
    drop(switch.controller());
    drop(switch.controller());
    wait_for("the controllers to be gone", || {
        (!on_bridge(&switch, |bridge| bridge.is_controlled())).then_some(())
    });
    assert_eq!(on_bridge(&switch, |bridge| bridge.tables().entry_len()), 1);
    assert!(one.send(&packet(64)));
    wait_for("the packet", || two.receive());
}

#[test]
fn a_list_with_one_refused_entry_changes_nothing_and_names_it() {
    let settings = "[[bridge.table]]\nnumber = 0\nmax_entries = 2\n";
    let switch = TestSwitch::start(&(config(2, "") + settings));
    let refused = on_bridge(&switch, |bridge| {
        bridge.flow_mods(vec![add(1, 1, 2), add(2, 1, 2), add(3, 1, 2)])
    })
    .unwrap_err();
    assert_eq!(refused.index, 2);
    assert!(
        matches!(refused.error, FlowModError::TableFull { .. }),
        "{}",
        refused.error
    );
    assert_eq!(on_bridge(&switch, |bridge| bridge.tables().entry_len()), 0);
    let wrong = FlowMod {
        table: TableId(255),
        ..add(1, 1, 2)
    };
    let refused = on_bridge(&switch, |bridge| bridge.flow_mods(vec![add(1, 1, 2), wrong])).unwrap_err();
    assert_eq!(refused.index, 1);
    assert_eq!(on_bridge(&switch, |bridge| bridge.tables().entry_len()), 0);
}

#[test]
fn a_controller_is_notified_of_its_entries_that_an_operator_removes() {
    let switch = TestSwitch::start(&config(2, ""));
    let mut controller = switch.controller();
    let mut watched = patch(1, 2);
    watched.flags = millrace_openflow::FlowModFlags::from_raw_truncated(FlowFlags::SEND_FLOW_REM.0);
    controller.add([watched, flow(3, &[(Field::InPort, 2)], &[output(1)])]);
    let done = on_bridge(&switch, |bridge| bridge.flow_mods(vec![delete_all()])).unwrap();
    assert_eq!(done.removed, 2);
    match controller.receive().unwrap().1 {
        Message::FlowRemoved(removed) => assert_eq!(removed.reason, FlowRemovedReason::Delete),
        other => panic!("{other}"),
    }
}

#[test]
fn counters_of_flows_and_ports_start_again_from_zero() {
    let switch = TestSwitch::start(&config(2, "fail_mode = \"secure\""));
    on_bridge(&switch, |bridge| {
        bridge.flow_mods(vec![add(5, 1, 2), add(6, 2, 1)])
    })
    .unwrap();
    let (one, two) = (switch.peer(1), switch.peer(2));
    let counts = |bridge: &mut BridgeControl<HeapBackend>| {
        let mut packets = Vec::new();
        let now = bridge.datapath().now();
        bridge
            .tables()
            .flow_stats(&FlowFilter::all(), Default::default(), usize::MAX, now, |stat| {
                packets.push((stat.entry.priority().0, stat.count.packets));
            });
        packets.sort_unstable();
        let port = bridge.port_stats(PortNo::from_raw(1));
        (packets, port.rx_packets, port.tx_packets)
    };
    let exchange = |switch: &TestSwitch, expected: (Vec<(u16, u64)>, u64, u64)| {
        assert!(one.send(&packet(64)) && two.send(&packet(64)));
        wait_for("the first packet", || two.receive());
        wait_for("the second packet", || one.receive());
        wait_for("the counters", || {
            (on_bridge(switch, counts) == expected).then_some(())
        });
    };
    exchange(&switch, (vec![(5, 1), (6, 1)], 1, 1));
    let only = FlowFilter {
        match_: Match::exact(&[(Field::InPort, 1)]).unwrap(),
        ..FlowFilter::all()
    };
    assert_eq!(
        on_bridge(&switch, move |bridge| bridge.reset_flow_counters(&only)).unwrap(),
        1
    );
    assert_eq!(
        on_bridge(&switch, |bridge| bridge
            .reset_port_counters(Some(PortNo::from_raw(1)))),
        1
    );
    assert_eq!(on_bridge(&switch, counts), (vec![(5, 0), (6, 1)], 0, 0));
    exchange(&switch, (vec![(5, 1), (6, 2)], 1, 1));
}

#[test]
fn a_trace_follows_a_packet_through_a_chain_without_a_trace_in_its_functions() {
    let chain = "[[bridge.chain]]\nname = \"edge\"\nnumber = 100\nfar = 101\n\
        [[bridge.chain.hop]]\nname = \"watch\"\nfunction = \"monitor\"\n";
    let switch = TestSwitch::start(&(config(2, "") + chain));
    let trace = on_bridge(&switch, |bridge| {
        bridge.trace_chain(PortNo::from_raw(100), &packet(64)).unwrap()
    });
    assert_eq!((trace.chain.as_str(), trace.hops.len()), ("edge", 1));
    assert_eq!(trace.hops[0].outcome, "next");
    let far = ChainTraceEnd::Received {
        port: PortNo::from_raw(101),
        frame: packet(64),
    };
    assert_eq!(trace.end, far);
    std::thread::sleep(SILENCE);
    let counted = on_bridge(&switch, |bridge| bridge.chain_stats()[0].hops[0].packets);
    assert_eq!(counted, 0);
    assert!(
        on_bridge(&switch, |bridge| bridge
            .trace_chain(PortNo::from_raw(1), &packet(64)))
        .is_none()
    );
}
