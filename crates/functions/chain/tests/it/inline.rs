//! Chains of inline functions in a running switch: the route and order of packets, and the effect of failures.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use std::collections::BTreeMap;

use crate::testbed::order::{keep_order, packets};
use crate::testbed::{BOUND, TestBed, flow, frame, hops, marks, no, sequence};
use millrace_chain::{HopPlan, HopState, OnFailure};
use millrace_nf::Settings;
use millrace_pipeline::{DropReason, PortConfig};

#[test]
fn a_packet_goes_through_the_hops_in_order_and_back_in_the_other() {
    let (mut testbed, one, two) = TestBed::new(1, 1, hops(&["one", "two", "three"]));
    assert!(one.send(&frame(0, 1)));
    assert_eq!(marks(&two.receive_within(BOUND).unwrap()), [1, 2, 3]);
    assert!(two.send(&frame(0, 1)));
    assert_eq!(marks(&one.receive_within(BOUND).unwrap()), [103, 102, 101]);
    let stats = testbed.chain.stats();
    assert_eq!(
        stats.hops.iter().map(|hop| hop.next).collect::<Vec<_>>(),
        [2, 2, 2]
    );
    testbed.wait("counted at the ends", |testbed| {
        let end = testbed.bridge.port_stats(no(101)).unwrap();
        (end.rx_packets, end.tx_packets) == (1, 1)
    });
}

#[test]
fn a_chain_without_hops_is_a_cable() {
    let (_rig, one, two) = TestBed::new(1, 1, Vec::new());
    assert!(one.send(&frame(0, 1)));
    assert_eq!(two.receive_within(BOUND).unwrap(), frame(0, 1));
}

#[test]
fn verdicts_drop_skip_and_send_elsewhere_and_the_rest_goes_on_in_order() {
    let (mut testbed, one, two) = TestBed::new(1, 1, hops(&["one", "two", "three"]));
    for number in [1, 666, 2, 667, 3, 668, 4, 669, 5] {
        assert!(one.send(&frame(0, number)));
    }
    let mut came = Vec::new();
    for _ in 0..7 {
        let frame = two.receive_within(BOUND).unwrap();
        came.push((sequence(&frame), marks(&frame)));
    }
    let all = vec![1, 2, 3];
    let wanted = [
        (1, all.clone()),
        (2, all.clone()),
        (667, vec![1, 3]),
        (3, all.clone()),
        (668, vec![1]),
        (4, all.clone()),
        (5, all),
    ];
    assert_eq!(came, wanted);
    let elsewhere = one.receive_within(BOUND).unwrap();
    assert_eq!((sequence(&elsewhere), marks(&elsewhere)), (669, vec![1]));
    testbed.wait("the drop is counted by name", |testbed| {
        testbed.drops(DropReason::FunctionDrop) == 1
    });
    let stats = testbed.chain.stats();
    let hop = &stats.hops[0];
    assert_eq!(
        (hop.packets, hop.next, hop.dropped, hop.skipped, hop.to_port),
        (9, 5, 1, 2, 1)
    );
}

#[test]
fn a_packet_that_is_sent_elsewhere_obeys_the_state_of_its_port() {
    let (mut testbed, one, two) = TestBed::new(1, 1, hops(&["one"]));
    let no_forward = PortConfig::NO_FWD;
    testbed
        .control
        .port_mod(no(1), no_forward, no_forward, &mut testbed.ops)
        .unwrap();
    testbed.bridge.publish(&mut testbed.ops);
    assert!(one.send(&frame(0, 669)) && one.send(&frame(0, 1)));
    assert_eq!(sequence(&two.receive_within(BOUND).unwrap()), 1);
    testbed.wait("the drop is counted by name", |testbed| {
        testbed.drops(DropReason::PortNoForward) == 1
    });
    assert_eq!(one.receive(), None);
}

#[test]
fn a_hop_with_a_number_is_a_port_and_a_steered_one_comes_back_to_the_tables() {
    let mut plan = hops(&["one", "two", "three"]);
    for (hop, number) in plan.iter_mut().zip(110..) {
        hop.number = Some(no(number));
    }
    plan[1].steer = true;
    let (mut testbed, one, two) = TestBed::new(1, 1, plan);
    // Packets of the last hop leave the chain. Flow tables decide about packets of the second hop, which is
    // steered.
    testbed.output(1, 112);
    assert!(one.send(&frame(0, 1)));
    assert_eq!(marks(&two.receive_within(BOUND).unwrap()), [3]);
    testbed.output(1, 110);
    testbed.output(111, 2);
    assert!(one.send(&frame(0, 2)));
    assert_eq!(marks(&two.receive_within(BOUND).unwrap()), [1, 2]);
    testbed.output(111, 112);
    assert!(one.send(&frame(0, 3)));
    assert_eq!(marks(&two.receive_within(BOUND).unwrap()), [1, 2, 3]);
}

#[test]
fn packets_that_skip_a_steered_hop_with_several_instances_go_on_to_the_next_hop() {
    let mut plan = hops(&["one", "two", "three"]);
    plan[1].instances = 2;
    plan[1].number = Some(no(110));
    plan[1].steer = true;
    let (_testbed, one, two) = TestBed::new(1, 1, plan);
    assert!(one.send(&frame(0, 667)));
    assert_eq!(marks(&two.receive_within(BOUND).unwrap()), [1, 3]);
}

#[test]
fn a_function_that_panics_takes_its_hop_down_and_comes_back() {
    for (policy, marked, name) in [
        (OnFailure::Closed, None, "closed"),
        (OnFailure::Open, Some(vec![2]), "open"),
        (OnFailure::Bypass, Some(vec![]), "bypass"),
    ] {
        let mut plan = hops(&["one", "two"]);
        plan[0].on_failure = policy;
        let (mut testbed, one, two) = TestBed::new(1, 1, plan);
        assert!(one.send(&frame(0, 670)));
        testbed.wait(name, |testbed| {
            testbed.chain.stats().hops[0].state == HopState::Down
        });
        // The policy applies to the packet that caused the panic, with the changes that the function made.
        if marked.is_some() {
            assert_eq!(sequence(&two.receive_within(BOUND).unwrap()), 670);
        }
        assert!(one.send(&frame(0, 1)));
        match &marked {
            Some(marked) => assert_eq!(&marks(&two.receive_within(BOUND).unwrap()), marked),
            None => testbed.wait(name, |testbed| testbed.drops(DropReason::HopDown) == 2),
        }
        testbed.wait(name, |testbed| {
            let now = testbed.bridge.now();
            testbed.chain.tick(now);
            let hop = testbed.chain.stats().hops.remove(0);
            hop.state == HopState::Up && hop.restarts == 1
        });
        testbed.settle();
        assert!(one.send(&frame(0, 2)));
        assert_eq!(marks(&two.receive_within(BOUND).unwrap()), [1, 2], "{name}");
    }
}

#[test]
fn instances_and_lanes_keep_the_order_of_each_flow() {
    const FLOWS: u16 = 40;
    const ROUNDS: u32 = 300;
    let mut plan = hops(&["one", "two", "three"]);
    plan[1].instances = 3;
    let (mut testbed, one, two) = TestBed::new(3, 2, plan);
    let mut next = BTreeMap::new();
    let mut take = |bound: bool| -> bool {
        let came = if bound {
            two.receive_within(BOUND)
        } else {
            two.receive().map(|frame| frame.bytes().to_vec())
        };
        let Some(frame) = came else { return false };
        assert_eq!(marks(&frame), [1, 2, 3]);
        let expected = next.entry(flow(&frame)).or_insert(1);
        assert_eq!(sequence(&frame), *expected, "flow {}", flow(&frame));
        *expected += 1;
        true
    };
    let mut received = 0;
    for round in 1..=ROUNDS {
        for flow in 0..FLOWS {
            assert!(one.send(&frame(flow, round)));
        }
        // No more packets are in flight than the rings hold.
        while received + 400 < round * u32::from(FLOWS) {
            received += u32::from(take(true));
        }
    }
    while received < ROUNDS * u32::from(FLOWS) {
        assert!(take(true), "{received} of all; {:?}", testbed.chain.stats());
        received += 1;
    }
    assert!(!take(false));
    let stats = testbed.chain.stats();
    assert_eq!((stats.lanes, stats.hops[1].instances), (2, 6));
    testbed.settle();
}

#[test]
fn a_chain_is_edited_under_traffic_without_loss_or_reordering() {
    const PACKETS: u32 = 60_000;
    let (mut testbed, one, two) = TestBed::new(1, 1, hops(&["one", "two"]));
    let longer = hops(&["one", "three", "two", "three"]);
    let plans = [hops(&["two"]), longer, Vec::new(), hops(&["three", "one"])];
    let (mut sent, mut received, mut edits) = (0, 0, 0);
    while received < PACKETS {
        while sent < PACKETS && sent - received < 500 {
            sent += u32::from(one.send(&frame(0, sent + 1000)));
        }
        if received / 500 > edits {
            let mut plan = testbed.chain.plan().clone();
            plan.hops = plans[edits as usize % plans.len()].clone();
            testbed.edit(&plan);
            edits += 1;
        }
        let frame = two.receive_within(BOUND).unwrap();
        assert_eq!(sequence(&frame), received + 1000, "after {edits} edits");
        received += 1;
        testbed.chain.tick(testbed.bridge.now());
    }
    assert!(edits > 100);
    testbed.settle();
}

#[test]
fn unchanged_functions_keep_their_state_and_drained_ones_are_bypassed() {
    let (mut testbed, one, two) = TestBed::new(1, 1, hops(&["one", "two"]));
    assert!(one.send(&frame(0, 1)));
    two.receive_within(BOUND).unwrap();
    let mut plan = testbed.chain.plan().clone();
    plan.hops[1].drained = true;
    testbed.edit(&plan);
    testbed.settle();
    assert!(one.send(&frame(0, 2)));
    assert_eq!(marks(&two.receive_within(BOUND).unwrap()), [1]);
    let stats = testbed.chain.stats();
    assert_eq!(stats.hops[0].packets, 2, "counts on");
    assert_eq!(stats.hops[1].state, HopState::Drained);
    assert!(testbed.chain.restart("h0", testbed.bridge.now()).unwrap());
    testbed.settle();
    assert_eq!(testbed.chain.stats().hops[0].packets, 0, "made anew");
    assert_eq!(testbed.chain.restart("nobody", testbed.bridge.now()), Ok(false));
}

#[test]
fn flows_stay_with_their_instances_when_another_hop_needs_packets_spread_by_addresses() {
    const FLOWS: u16 = 32;
    let mut plan = hops(&["instance"]);
    plan[0].instances = 4;
    let (mut testbed, one, two) = TestBed::new(1, 1, plan);
    let instances = || -> Vec<u8> {
        let instance_of = |flow| {
            assert!(one.send(&frame(flow, 1)));
            marks(&two.receive_within(BOUND).unwrap())[0]
        };
        (0..FLOWS).map(instance_of).collect()
    };
    let before = instances();
    assert!(before.iter().any(|instance| *instance != before[0]));
    let mut plan = testbed.chain.plan().clone();
    plan.hops.push(HopPlan::new("new", "pairs"));
    testbed.edit(&plan);
    testbed.settle();
    assert_eq!(instances(), before);
    // A restarted instance uses the spread of the chain. All packets of the test have the same addresses.
    assert!(testbed.chain.restart("h0", testbed.bridge.now()).unwrap());
    testbed.settle();
    let after = instances();
    assert!(after.iter().all(|instance| *instance == after[0]), "{after:?}");
}

#[test]
fn an_edit_that_fails_changes_nothing() {
    let (mut testbed, one, two) = TestBed::new(1, 1, hops(&["one"]));
    let mut plan = testbed.chain.plan().clone();
    plan.hops.push(HopPlan::new("new", "fourteen"));
    let error = testbed
        .chain
        .edit(&plan, testbed.bridge.now())
        .err()
        .unwrap()
        .to_string();
    assert_eq!(
        error,
        "hop new: there is no function `fourteen`: expected numbered, one, two, three, guard, instance, pairs"
    );
    plan.hops[1] = HopPlan {
        settings: Settings::parse(["colour=red"]).unwrap(),
        ..HopPlan::new("new", "two")
    };
    assert!(testbed.chain.edit(&plan, testbed.bridge.now()).is_err());
    assert!(one.send(&frame(0, 1)));
    assert_eq!(marks(&two.receive_within(BOUND).unwrap()), [1]);
}

#[test]
fn order_is_kept_while_hops_are_scaled_drained_moved_and_taken_out() {
    let (mut testbed, one, two) = TestBed::new(2, 2, hops(&["one", "two", "three"]));
    let edits = keep_order(&mut testbed, [&one, &two], packets(200_000), 2_000);
    assert!(edits >= 50);
}
