//! Bundles over a real socket: all or nothing, and an error for each misuse.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

use crate::harness::{Controller, TestSwitch, config, packet, patch, port_down, wait_for};
use millrace_flow::{Bucket, Instructions, Match};
use millrace_openflow::multipart::aggregate::AggregateStats;
use millrace_openflow::multipart::flow::FlowStatsRequest;
use millrace_openflow::multipart::{MultipartReply, MultipartRequest, ReplyBody, RequestBody};
use millrace_openflow::*;
use millrace_types::*;

const BOTH: BundleFlags = BundleFlags::ALL;

fn control(bundle: u32, command: BundleCommand) -> Message {
    Message::BundleControl(BundleControl {
        bundle,
        command,
        flags: BOTH,
    })
}

fn add(bundle: u32, message: Message) -> Message {
    Message::BundleAdd(BundleAdd {
        bundle,
        flags: BOTH,
        message: Box::new(message),
    })
}

pub(crate) fn add_flow(bundle: u32, flow: FlowMod) -> Message {
    add(bundle, Message::FlowMod(flow))
}

fn refusal(controller: &mut Controller, message: &Message) -> ErrorCode {
    match controller.ask(message) {
        Message::Error(error) => error.code,
        other => panic!("{other}"),
    }
}

pub(crate) fn done(controller: &mut Controller, bundle: u32, command: BundleCommand) -> BundleCommand {
    match controller.ask(&control(bundle, command)) {
        Message::BundleControl(reply) => {
            assert_eq!((reply.bundle, reply.flags), (bundle, BOTH));
            reply.command
        }
        other => panic!("{other}"),
    }
}

fn flow_count(controller: &mut Controller) -> u32 {
    let all = RequestBody::Aggregate(FlowStatsRequest::all());
    match controller.ask(&Message::MultipartRequest(MultipartRequest::new(all))) {
        Message::MultipartReply(MultipartReply {
            body: ReplyBody::Aggregate(AggregateStats { flows, .. }),
            ..
        }) => flows,
        other => panic!("{other}"),
    }
}

#[test]
fn messages_of_a_bundle_take_effect_on_commit_and_not_before() {
    let switch = TestSwitch::start(&config(2, ""));
    let mut controller = switch.controller();
    assert_eq!(
        done(&mut controller, 7, BundleCommand::Open),
        BundleCommand::OpenReply
    );
    controller.send(&add_flow(7, patch(1, 2)));
    controller.send(&add_flow(7, patch(2, 1)));
    assert_eq!(
        done(&mut controller, 7, BundleCommand::Close),
        BundleCommand::CloseReply
    );
    assert_eq!(flow_count(&mut controller), 0);
    assert_eq!(
        done(&mut controller, 7, BundleCommand::Commit),
        BundleCommand::CommitReply
    );
    assert_eq!(flow_count(&mut controller), 2);
    // The reply is sent when workers use the entries.
    switch.peer(1).send(&packet(64));
    wait_for("the packet", || switch.peer(2).receive());
    assert_eq!(
        refusal(&mut controller, &control(7, BundleCommand::Commit)),
        ErrorCode::OFPBFC_BAD_ID
    );
}

#[test]
fn the_last_port_mod_of_a_bundle_says_what_the_port_is() {
    let switch = TestSwitch::start(&config(2, ""));
    let mut controller = switch.controller();
    controller.add([patch(1, 2)]);
    let port = PortNo::from_raw(2);
    let bridge = switch.switch.bridge("br0").unwrap();
    let is_down = move || {
        let config = bridge.call_blocking(move |control| control.ports()[&port].config);
        config.unwrap().has(millrace_pipeline::PortConfig::DOWN)
    };
    for step in [true, false] {
        controller.send(&add(1, port_down(2, step)));
    }
    assert_eq!(
        done(&mut controller, 1, BundleCommand::Commit),
        BundleCommand::CommitReply
    );
    assert!(!is_down());
    switch.peer(1).send(&packet(64));
    wait_for("the packet", || switch.peer(2).receive());
    for step in [true, false, true] {
        controller.send(&add(2, port_down(2, step)));
    }
    controller.send(&control(2, BundleCommand::Commit));
    wait_for("the port is down", || is_down().then_some(()));
}

#[test]
fn a_bundle_of_which_one_message_fails_changes_nothing_and_names_the_message() {
    let switch = TestSwitch::start(&config(2, ""));
    let mut controller = switch.controller();
    controller.add([patch(1, 2)]);
    controller.send(&add_flow(1, FlowMod::delete(TableId::ALL, Match::any())));
    controller.send(&add_flow(1, patch(2, 1)));
    controller.send(&add(1, port_down(2, true)));
    let overlapping = FlowMod {
        flags: FlowModFlags::CHECK_OVERLAP,
        ..FlowMod::add(TableId(0), Priority(10), Match::any(), Instructions::default())
    };
    let guilty = controller.send(&add_flow(1, overlapping));
    controller.send(&add_flow(1, patch(2, 2)));
    let commit = controller.send(&control(1, BundleCommand::Commit));
    let mut error = || match controller.receive().unwrap() {
        (header, Message::Error(error)) => (header.xid, error),
        (_, other) => panic!("{other}"),
    };
    let (xid, why) = error();
    assert_eq!((xid, why.code), (guilty, ErrorCode::OFPFMFC_OVERLAP));
    let (head, _) = (Header::parse(&why.data).unwrap(), ());
    assert_eq!(
        (head.message_type(), head.xid),
        (Some(MessageType::FlowMod), guilty)
    );
    let (xid, whole) = error();
    assert_eq!((xid, whole.code), (commit, ErrorCode::OFPBFC_MSG_FAILED));
    assert_eq!(flow_count(&mut controller), 1);
    switch.peer(1).send(&packet(64));
    wait_for(
        "the packet by the entry that stayed, out of the port that is still up",
        || switch.peer(2).receive(),
    );
}

#[test]
fn a_discarded_bundle_is_forgotten() {
    let switch = TestSwitch::start(&config(2, ""));
    let mut controller = switch.controller();
    controller.send(&add_flow(3, patch(1, 2)));
    assert_eq!(
        done(&mut controller, 3, BundleCommand::Discard),
        BundleCommand::DiscardReply
    );
    assert_eq!(
        refusal(&mut controller, &control(3, BundleCommand::Commit)),
        ErrorCode::OFPBFC_BAD_ID
    );
    assert_eq!(flow_count(&mut controller), 0);
}

#[test]
fn misuse_has_its_errors() {
    let switch = TestSwitch::start(&config(2, ""));
    let mut controller = switch.controller();
    let c = &mut controller;
    assert_eq!(done(c, 1, BundleCommand::Open), BundleCommand::OpenReply);
    assert_eq!(
        refusal(c, &control(1, BundleCommand::Open)),
        ErrorCode::OFPBFC_BUNDLE_EXIST
    );
    assert_eq!(
        refusal(c, &control(1, BundleCommand::OpenReply)),
        ErrorCode::OFPBFC_BAD_TYPE
    );
    assert_eq!(
        refusal(c, &control(2, BundleCommand::Close)),
        ErrorCode::OFPBFC_BAD_ID
    );
    assert_eq!(
        refusal(c, &control(2, BundleCommand::Discard)),
        ErrorCode::OFPBFC_BAD_ID
    );
    let other_flags = Message::BundleAdd(BundleAdd {
        bundle: 1,
        flags: BundleFlags::ATOMIC,
        message: Box::new(Message::FlowMod(patch(1, 2))),
    });
    assert_eq!(refusal(c, &other_flags), ErrorCode::OFPBFC_BAD_FLAGS);
    let bad = FlowMod::add(
        TableId(0),
        Priority(1),
        Match::any(),
        Instructions::goto(TableId(0)),
    );
    assert_eq!(refusal(c, &add_flow(1, bad)), ErrorCode::OFPBIC_BAD_TABLE_ID);
    assert_eq!(done(c, 1, BundleCommand::Close), BundleCommand::CloseReply);
    assert_eq!(
        refusal(c, &control(1, BundleCommand::Close)),
        ErrorCode::OFPBFC_BUNDLE_CLOSED
    );
    assert_eq!(
        refusal(c, &add_flow(1, patch(1, 2))),
        ErrorCode::OFPBFC_BUNDLE_CLOSED
    );
    for bundle in 2..65 {
        done(c, bundle, BundleCommand::Open);
    }
    assert_eq!(
        refusal(c, &control(65, BundleCommand::Open)),
        ErrorCode::OFPBFC_OUT_OF_BUNDLES
    );
    // A bundle belongs to its connection, and ends with it.
    let mut another = switch.controller();
    assert_eq!(
        done(&mut another, 1, BundleCommand::Open),
        BundleCommand::OpenReply
    );
}

fn to_port(group: u32, port: u32) -> Message {
    Message::GroupMod(GroupMod {
        command: GroupModCommand::Add,
        type_: GroupType::Indirect,
        group: GroupId(group),
        buckets: [Bucket {
            weight: 0,
            watch_port: PortNo::ANY,
            watch_group: GroupId::ANY,
            actions: [millrace_flow::Action::output(PortNo::from_raw(port))].into(),
        }]
        .into(),
    })
}

fn by_group(group: u32) -> FlowMod {
    let actions = [millrace_flow::Action::Group(GroupId(group))];
    FlowMod::add(
        TableId(0),
        Priority(9),
        Match::any(),
        Instructions::apply(actions),
    )
}

fn groups(controller: &mut Controller) -> Vec<GroupId> {
    match controller.ask(&Message::MultipartRequest(MultipartRequest::new(
        RequestBody::GroupDesc,
    ))) {
        Message::MultipartReply(MultipartReply {
            body: ReplyBody::GroupDesc(groups),
            ..
        }) => groups.iter().map(|group| group.group).collect(),
        other => panic!("{other}"),
    }
}

#[test]
fn groups_and_the_flow_entries_that_use_them_come_in_one_bundle_or_not_at_all() {
    let switch = TestSwitch::start(&config(2, ""));
    let mut controller = switch.controller();
    let c = &mut controller;
    c.send(&add(1, to_port(1, 2)));
    c.send(&add_flow(1, by_group(1)));
    done(c, 1, BundleCommand::Commit);
    assert_eq!((groups(c), flow_count(c)), (vec![GroupId(1)], 1));
    switch.peer(1).send(&packet(64));
    wait_for("the packet", || switch.peer(2).receive());
    // The bundle deletes everything and adds a group, but its last message fails.
    let delete_all = GroupMod {
        command: GroupModCommand::Delete,
        type_: GroupType::All,
        group: GroupId::ALL,
        buckets: Box::default(),
    };
    c.send(&add(2, Message::GroupMod(delete_all)));
    c.send(&add(2, to_port(7, 1)));
    let guilty = c.send(&add_flow(2, by_group(8)));
    c.send(&control(2, BundleCommand::Commit));
    let (header, error) = c.receive().unwrap();
    let Message::Error(error) = error else {
        panic!("{error}")
    };
    assert_eq!(
        (header.xid, error.code),
        (guilty, ErrorCode::OFPBAC_BAD_OUT_GROUP)
    );
    let (_, failed) = c.receive().unwrap();
    assert!(matches!(failed, Message::Error(error) if error.code == ErrorCode::OFPBFC_MSG_FAILED));
    assert_eq!((groups(c), flow_count(c)), (vec![GroupId(1)], 1));
    switch.peer(1).send(&packet(64));
    wait_for("the packet by the group that stayed", || switch.peer(2).receive());
}
