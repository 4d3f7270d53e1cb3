//! Eviction from full tables.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::harness::{Bridge, add, frame, matching, out};
use millrace_flow::Instructions;
use millrace_pipeline::{
    FlowFlags, FlowMod, FlowModCommand, FlowModError, RemovedReason, TableLimit, WhenFull,
};
use millrace_types::{Cookie, Duration, Priority, TableId};

/// Returns a bridge whose table 0 holds this number of entries and evicts.
fn evicting(max_entries: u32) -> Bridge {
    let mut bridge = Bridge::new(2);
    let limit = TableLimit {
        max_entries,
        when_full: WhenFull::Evict,
    };
    bridge.control.set_limits([(TableId(0), limit)].into());
    bridge
}

/// Returns an entry for a UDP port, which is also its cookie, with `OFPFF_SEND_FLOW_REM`.
fn entry(port: u16, idle_timeout: u16, hard_timeout: u16) -> FlowMod {
    FlowMod {
        cookie: Cookie(port.into()),
        idle_timeout,
        hard_timeout,
        flags: FlowFlags::SEND_FLOW_REM,
        ..add(
            0,
            10,
            &format!("udp,tp_dst={port}"),
            Instructions::apply([out(2)]),
        )
    }
}

fn cookies(bridge: &Bridge) -> Vec<u64> {
    bridge.counts().into_iter().map(|(cookie, ..)| cookie).collect()
}

fn wait(bridge: &mut Bridge, seconds: u64) {
    bridge.now = bridge.now + Duration::from_secs(seconds);
}

#[test]
fn the_entry_that_would_go_first_makes_room_and_is_reported() {
    let mut bridge = evicting(3);
    bridge.flow_mod(entry(1, 0, 0)).unwrap();
    bridge.flow_mod(entry(2, 0, 60)).unwrap();
    bridge.flow_mod(entry(3, 20, 0)).unwrap();
    let outcome = bridge.flow_mod(entry(4, 30, 0)).unwrap();
    assert_eq!((outcome.added, outcome.removed), (1, 1));
    assert_eq!(cookies(&bridge), [1, 2, 4]);
    let reports: Vec<_> = bridge
        .removed
        .iter()
        .map(|gone| (gone.entry.cookie().0, gone.reason))
        .collect();
    assert_eq!(reports, [(3, RemovedReason::Delete)]);
    // Entries without a time-out stay, and so do entries that are only replaced.
    bridge.flow_mod(entry(4, 30, 0)).unwrap();
    bridge.flow_mod(entry(5, 0, 0)).unwrap();
    bridge.flow_mod(entry(6, 0, 0)).unwrap();
    assert_eq!(cookies(&bridge), [1, 5, 6]);
    let refused = bridge.flow_mod(entry(7, 5, 5)).unwrap_err();
    assert!(
        matches!(refused, FlowModError::TableFull { max_entries: 3, .. }),
        "{refused}"
    );
    assert_eq!(cookies(&bridge), [1, 5, 6]);
}

#[test]
fn an_entry_that_was_used_stays_before_one_that_was_not() {
    let mut bridge = evicting(2);
    bridge.flow_mod(entry(1, 20, 0)).unwrap();
    wait(&mut bridge, 1);
    bridge.flow_mod(entry(2, 20, 0)).unwrap();
    wait(&mut bridge, 5);
    bridge.one(1, &frame("udp,tp_dst=1"));
    bridge.flow_mod(entry(3, 20, 0)).unwrap();
    assert_eq!(cookies(&bridge), [1, 3]);
    // Entries 1 and 3 both expire in 20 seconds. Entry 3 is younger.
    wait(&mut bridge, 1);
    bridge.one(1, &frame("udp,tp_dst=3"));
    bridge.flow_mod(entry(4, 20, 0)).unwrap();
    assert_eq!(cookies(&bridge), [3, 4]);
}

#[test]
fn a_table_whose_entries_are_all_in_use_makes_room_all_the_same() {
    let mut bridge = evicting(500);
    for port in 1..=500 {
        bridge.flow_mod(entry(port, 20, 0)).unwrap();
    }
    for port in 501..=520 {
        wait(&mut bridge, 1);
        let frames: Vec<_> = (1..=520)
            .map(|port| frame(&format!("udp,tp_dst={port}")))
            .collect();
        bridge.receive(1, &frames);
        bridge.flow_mod(entry(port, 20, 0)).unwrap();
        let cookies = cookies(&bridge);
        assert_eq!(cookies.len(), 500);
        assert!(cookies.contains(&port.into()));
    }
    assert_eq!(bridge.removed.len(), 20);
}

#[test]
fn what_was_evicted_in_a_bundle_that_fails_comes_back() {
    let mut bridge = evicting(2);
    bridge.flow_mod(entry(1, 20, 0)).unwrap();
    bridge.flow_mod(entry(2, 30, 0)).unwrap();
    let fails = FlowMod::new(FlowModCommand::Add, TableId(200), Priority(1), matching("udp"));
    bridge.bundle(vec![entry(3, 0, 0), fails], false).unwrap_err();
    assert_eq!(cookies(&bridge), [1, 2]);
    // The entry is the first to be evicted again.
    bridge.flow_mod(entry(4, 0, 0)).unwrap();
    assert_eq!(cookies(&bridge), [2, 4]);
}

#[test]
fn limits_that_change_hold_for_entries_that_are_there() {
    let mut bridge = evicting(1000);
    bridge.flow_mod(entry(1, 0, 10)).unwrap();
    bridge.flow_mod(entry(2, 0, 20)).unwrap();
    let mut limit = TableLimit {
        max_entries: 2,
        when_full: WhenFull::Refuse,
    };
    bridge.control.set_limits([(TableId(0), limit)].into());
    bridge.flow_mod(entry(3, 0, 0)).unwrap_err();
    limit.when_full = WhenFull::Evict;
    bridge.control.set_limits([(TableId(0), limit)].into());
    bridge.flow_mod(entry(3, 0, 0)).unwrap();
    assert_eq!(cookies(&bridge), [2, 3]);
}
