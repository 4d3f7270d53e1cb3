//! Effects of functions: packets that they send, and flows that they shun.

use millrace_pipeline::DropReason;

use crate::testbed::{BOUND, TestBed, answer, flow, frame, hops, marks, sequence};

/// Sequence numbers at which the function `guard` acts.
const REJECT: u32 = 700;
const SHUN_PASS: u32 = 701;
const SHUN_DROP: u32 = 702;
const SHUN_SHORT: u32 = 703;

#[test]
fn packets_that_a_function_sends_traverse_the_hops_behind_it_in_their_direction() {
    let (mut testbed, one, two) = TestBed::new(1, 1, hops(&["one", "guard", "three"]));
    assert!(one.send(&frame(0, REJECT)));
    let there = two.receive_within(BOUND).unwrap();
    assert_eq!((flow(&there), marks(&there)), (8, vec![3]));
    let back = one.receive_within(BOUND).unwrap();
    assert_eq!((flow(&back), marks(&back)), (9, vec![101]));
    testbed.wait("both are counted", |testbed| {
        let stats = testbed.chain.stats();
        (stats.hops[1].sent, stats.hops[1].dropped, stats.hops[1].not_sent) == (2, 1, 0)
    });
}

#[test]
fn packets_of_a_shunned_flow_pass_without_a_call_in_both_directions() {
    let (mut testbed, one, two) = TestBed::new(1, 1, hops(&["one", "guard"]));
    assert!(one.send(&frame(1, SHUN_PASS)));
    assert_eq!(marks(&two.receive_within(BOUND).unwrap()), [1, 50]);
    assert!(one.send(&frame(1, 2)));
    assert_eq!(marks(&two.receive_within(BOUND).unwrap()), [1]);
    // The other direction is the same flow, and another port is another flow.
    assert!(two.send(&answer(&frame(1, 3))));
    assert_eq!(marks(&one.receive_within(BOUND).unwrap()), [101]);
    assert!(one.send(&frame(2, 4)));
    assert_eq!(marks(&two.receive_within(BOUND).unwrap()), [1, 50]);
    testbed.wait("the packets are counted", |testbed| {
        let stats = testbed.chain.stats();
        (stats.hops[1].shunned_flows, stats.hops[1].shunned_passed) == (1, 2)
    });
}

#[test]
fn a_function_receives_the_counters_of_a_flow_that_was_idle() {
    let (mut testbed, one, two) = TestBed::new(1, 1, hops(&["guard"]));
    assert!(one.send(&frame(1, SHUN_SHORT)));
    assert_eq!(marks(&two.receive_within(BOUND).unwrap()), [50]);
    testbed.wait("the flow is forgotten", |testbed| {
        let stats = testbed.chain.stats();
        stats.hops[0].shunned_flows == 0 && stats.hops[0].counters == [("ended", 1), ("packets", 0)]
    });
    assert!(one.send(&frame(1, 5)));
    assert_eq!(marks(&two.receive_within(BOUND).unwrap()), [50]);
}

#[test]
fn packets_of_a_flow_that_is_shunned_to_be_dropped_do_not_hinder_others() {
    let (mut testbed, one, two) = TestBed::new(1, 1, hops(&["guard", "two"]));
    assert!(one.send(&frame(1, SHUN_DROP)));
    testbed.wait("the flow is shunned", |testbed| {
        testbed.chain.stats().hops[0].shunned_flows == 1
    });
    for (number, sequence) in [(1, 2), (2, 3), (1, 4), (3, 5), (1, 6)] {
        assert!(one.send(&frame(number, sequence)));
    }
    for wanted in [3, 5] {
        let frame = two.receive_within(BOUND).unwrap();
        assert_eq!((sequence(&frame), marks(&frame)), (wanted, vec![50, 2]));
    }
    testbed.wait("the others are dropped without a call", |testbed| {
        let stats = testbed.chain.stats();
        (stats.hops[0].shunned_dropped, stats.hops[0].packets) == (3, 3)
            && testbed.drops(DropReason::FunctionDrop) == 4
    });
}
