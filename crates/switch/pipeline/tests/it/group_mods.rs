//! group_mod: validation, chains, limits, deletion, and the flow entries that use groups.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use crate::harness::{
    Bridge, Event, add, frame, group, matching, out, ports, to, to_group, watching, weighing,
};
use millrace_flow::{Action, Bucket, Instructions};
use millrace_pipeline::GroupKind::{All, FastFailover, Indirect, Select};
use millrace_pipeline::{
    DropReason, ErrorCode, FlowFilter, FlowFlags, FlowMod, FlowModCommand, Group, GroupMod, RemovedReason,
};
use millrace_types::{GroupId, PortNo, TableId};
use millrace_wire::EtherType;

/// Returns the error code of a group that is refused.
fn refusal(bridge: &mut Bridge, group: Group) -> ErrorCode {
    bridge.group_mod(&GroupMod::Add(group)).unwrap_err().code()
}

#[test]
fn groups_chain_but_not_in_a_circle() {
    let mut bridge = Bridge::new(4);
    let forward = |id, to: u32| group(id, Indirect, vec![Bucket::new([to_group(to)])]);
    assert_eq!(
        refusal(&mut bridge, forward(1, 1)),
        ErrorCode::OFPGMFC_LOOP,
        "to itself"
    );
    assert_eq!(
        refusal(&mut bridge, forward(2, 1)),
        ErrorCode::OFPBAC_BAD_OUT_GROUP,
        "to nothing"
    );
    bridge.add_group(1, Indirect, vec![to(2)]);
    bridge.group_mod(&GroupMod::Add(forward(2, 1))).unwrap();
    bridge.group_mod(&GroupMod::Add(forward(3, 2))).unwrap();
    let circle = bridge.group_mod(&GroupMod::Modify(forward(1, 3))).unwrap_err();
    assert_eq!(circle.code(), ErrorCode::OFPGMFC_LOOP);
    bridge.apply("", &[to_group(3)]);
    assert_eq!(ports(&bridge.one(1, &frame("tcp"))), [2]);
    let chained = bridge.group_mod(&GroupMod::Delete(GroupId(1))).unwrap_err();
    assert_eq!(chained.code(), ErrorCode::OFPGMFC_CHAINED_GROUP);
    assert_eq!(bridge.group_count(1).unwrap().0, 1);
    // The last group of the chain can be deleted, with its flow entry; then the next one.
    assert_eq!(bridge.group_mod(&GroupMod::Delete(GroupId(3))), Ok(1));
    assert_eq!(bridge.group_mod(&GroupMod::Delete(GroupId(2))), Ok(0));
    assert_eq!(bridge.group_mod(&GroupMod::Delete(GroupId(1))), Ok(0));
    assert_eq!((bridge.control.group_len(), bridge.control.entry_len()), (0, 0));
}

#[test]
fn groups_that_multiply_a_packet_without_bound_are_stopped_and_counted() {
    let mut bridge = Bridge::new(2);
    bridge.add_group(0, All, vec![to(2); 10]);
    for id in 1..10 {
        bridge.add_group(id, All, vec![Bucket::new([to_group(id - 1)]); 10]);
    }
    bridge.apply("", &[to_group(9)]);
    let events = bridge.one(1, &frame("tcp"));
    assert!((1000..4096).contains(&ports(&events).len()));
    assert!(events.contains(&Event::Dropped(DropReason::GroupLimit)));
    // Each packet has a budget of its own.
    assert_eq!(ports(&bridge.one(1, &frame("tcp"))).len(), ports(&events).len());
    let mut deep = Bridge::new(2);
    deep.add_group(0, Indirect, vec![to(2)]);
    for id in 1..40 {
        deep.add_group(id, Indirect, vec![Bucket::new([to_group(id - 1)])]);
    }
    deep.apply("in_port=1", &[to_group(39), to_group(3)]);
    let events = deep.one(1, &frame("tcp"));
    assert!(
        events.contains(&Event::Dropped(DropReason::GroupLimit)) && ports(&events) == [2],
        "{events:?}"
    );
}

#[test]
fn each_invalid_group_has_its_error_code() {
    let mut bridge = Bridge::new(2);
    let with = |kind, bucket: Bucket| group(1, kind, vec![bucket]);
    let watch_group = |id| Bucket {
        watch_group: GroupId(id),
        ..to(1)
    };
    let watch_port = |raw| Bucket {
        watch_port: PortNo::from_raw(raw),
        ..to(1)
    };
    for (what, group, code) in [
        (
            "no bucket",
            group(1, Indirect, vec![]),
            ErrorCode::OFPGMFC_INVALID_GROUP,
        ),
        (
            "two buckets",
            group(1, Indirect, vec![to(1), to(2)]),
            ErrorCode::OFPGMFC_INVALID_GROUP,
        ),
        (
            "weight",
            with(All, weighing(1, 1)),
            ErrorCode::OFPGMFC_INVALID_GROUP,
        ),
        (
            "nothing watched",
            with(FastFailover, to(1)),
            ErrorCode::OFPGMFC_INVALID_GROUP,
        ),
        (
            "number",
            group(GroupId::MAX.0 + 1, All, vec![]),
            ErrorCode::OFPGMFC_INVALID_GROUP,
        ),
        (
            "watching",
            with(All, watching(1)),
            ErrorCode::OFPGMFC_WATCH_UNSUPPORTED,
        ),
        (
            "watching itself",
            with(FastFailover, watch_group(1)),
            ErrorCode::OFPGMFC_BAD_WATCH,
        ),
        (
            "watching nobody",
            with(FastFailover, watch_group(9)),
            ErrorCode::OFPGMFC_BAD_WATCH,
        ),
        (
            "watching FLOOD",
            with(Select, watch_port(PortNo::FLOOD.raw())),
            ErrorCode::OFPGMFC_BAD_WATCH,
        ),
        (
            "watching port 0",
            with(Select, watch_port(0)),
            ErrorCode::OFPGMFC_BAD_WATCH,
        ),
        (
            "bad port",
            with(All, Bucket::new([out(0)])),
            ErrorCode::OFPBAC_BAD_OUT_PORT,
        ),
        (
            "TABLE",
            with(All, Bucket::new([Action::output(PortNo::TABLE)])),
            ErrorCode::OFPBAC_BAD_OUT_PORT,
        ),
        (
            "bad tag",
            with(All, Bucket::new([Action::PushVlan(EtherType::IPV4)])),
            ErrorCode::OFPBAC_BAD_ARGUMENT,
        ),
    ] {
        assert_eq!(refusal(&mut bridge, group), code, "{what}");
    }
    assert_eq!(bridge.control.group_len(), 0);
    bridge.add_group(1, All, vec![]);
    assert_eq!(
        refusal(&mut bridge, group(1, All, vec![])),
        ErrorCode::OFPGMFC_GROUP_EXISTS
    );
    let unknown = bridge
        .group_mod(&GroupMod::Modify(group(2, All, vec![])))
        .unwrap_err();
    assert_eq!(unknown.code(), ErrorCode::OFPGMFC_UNKNOWN_GROUP);
    assert_eq!(bridge.group_mod(&GroupMod::Delete(GroupId(2))), Ok(0), "no error");
    // A group without buckets drops.
    bridge.apply("", &[to_group(1)]);
    assert_eq!(
        bridge.one(1, &frame("tcp")),
        [Event::Dropped(DropReason::NoLiveBucket)]
    );
}

#[test]
fn the_flow_entries_that_use_a_deleted_group_are_removed() {
    let mut bridge = Bridge::new(3);
    bridge.add_group(1, Indirect, vec![to(2)]);
    bridge.add_group(2, Indirect, vec![to(3)]);
    let reporting = |match_: &str, instructions| FlowMod {
        flags: FlowFlags::SEND_FLOW_REM,
        ..add(0, 10, match_, instructions)
    };
    let write = |group| Instructions {
        write_actions: Some([to_group(group)].into()),
        ..Instructions::default()
    };
    bridge
        .flow_mod(reporting("tcp", Instructions::apply([to_group(1), to_group(2)])))
        .unwrap();
    bridge.flow_mod(reporting("udp", write(1))).unwrap();
    bridge.flow_mod(reporting("arp", write(2))).unwrap();
    assert_eq!(bridge.group_count(1).unwrap().0, 2);
    bridge.one(1, &frame("udp"));
    assert_eq!(bridge.group_mod(&GroupMod::Delete(GroupId(1))), Ok(2));
    let reported: Vec<_> = bridge
        .removed
        .iter()
        .map(|removed| (removed.reason, removed.count.packets))
        .collect();
    assert_eq!(
        reported,
        [(RemovedReason::GroupDelete, 0), (RemovedReason::GroupDelete, 1)]
    );
    assert_eq!(ports(&bridge.one(1, &frame("arp"))), [3]);
    assert_eq!(bridge.group_mod(&GroupMod::Delete(GroupId::ALL)), Ok(1));
    assert_eq!((bridge.control.entry_len(), bridge.removed.len()), (0, 3));
}

#[test]
fn a_modified_group_keeps_its_counters_and_its_buckets_start_at_zero() {
    let mut bridge = Bridge::new(3);
    bridge.add_group(1, All, vec![to(2), to(3)]);
    bridge.apply("", &[to_group(1)]);
    let tcp = frame("tcp");
    bridge.one(1, &tcp);
    bridge
        .group_mod(&GroupMod::Modify(group(1, All, vec![to(3)])))
        .unwrap();
    bridge.one(1, &tcp);
    assert_eq!(bridge.group_count(1), Some((1, 2, vec![1])));
    bridge.group_mod(&GroupMod::Delete(GroupId::ALL)).unwrap();
    bridge.add_group(1, All, vec![to(2), to(3)]);
    assert_eq!(
        bridge.group_count(1),
        Some((0, 0, vec![0, 0])),
        "slots are used again, with counters of zero"
    );
}

#[test]
fn flow_entries_are_found_by_the_group_they_send_to() {
    let mut bridge = Bridge::new(3);
    bridge.add_group(1, Indirect, vec![to(2)]);
    bridge.add_group(2, Indirect, vec![to(2)]);
    bridge.apply("tcp", &[to_group(1)]);
    bridge.apply("udp", &[to_group(2)]);
    let filter = FlowFilter {
        out_group: GroupId(2),
        ..FlowFilter::all()
    };
    let mut found = 0;
    bridge
        .control
        .flow_stats(&filter, Default::default(), usize::MAX, bridge.now, |_| {
            found += 1;
        });
    assert_eq!(found, 1);
    let delete = FlowMod {
        out_group: GroupId(2),
        ..FlowMod::new(
            FlowModCommand::Delete,
            TableId::ALL,
            Default::default(),
            matching(""),
        )
    };
    assert_eq!(bridge.flow_mod(delete).unwrap().removed, 1);
    assert_eq!(bridge.group_count(2).unwrap().0, 0);
}

#[test]
fn a_modify_cannot_use_a_group_that_does_not_exist() {
    let mut bridge = Bridge::new(3);
    bridge.apply("", &[out(2)]);
    let modify = FlowMod {
        instructions: Instructions::apply([to_group(4)]),
        ..FlowMod::new(
            FlowModCommand::Modify,
            TableId(0),
            Default::default(),
            matching(""),
        )
    };
    assert_eq!(
        bridge.flow_mod(modify.clone()).unwrap_err().code(),
        ErrorCode::OFPBAC_BAD_OUT_GROUP
    );
    bridge.add_group(4, Indirect, vec![to(3)]);
    bridge.flow_mod(modify).unwrap();
    assert_eq!(ports(&bridge.one(1, &frame("tcp"))), [3]);
}
