//! Flow monitors: who hears what of whose changes, in full or not, and what happens to those who do not listen.
//! `tests/interop/test_monitor.py` compares the updates with those of Open vSwitch.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

use crate::harness::{Controller, TestSwitch, config, flow, patch};
use millrace_flow::{Field, Match};
use millrace_openflow::multipart::{MultipartReply, MultipartRequest, ReplyBody, RequestBody};
use millrace_openflow::*;
use millrace_types::*;

const INITIAL: u16 = 1;
const CHANGES: u16 = 2 | 4 | 8;
const OWN: u16 = 0x20;
const ADDED: u16 = 0;
const DELETED: u16 = 1;
const MODIFIED: u16 = 2;
const ABBREVIATED: u16 = 3;

fn monitor(id: u32, flags: u16, table: u8) -> Vec<u8> {
    let mut body = id.to_be_bytes().to_vec();
    body.extend(flags.to_be_bytes());
    body.extend([0, 4, 0xff, 0xff, 0xff, 0xff, table, 0, 0, 0]);
    body.extend([0, 1, 0, 4, 0, 0, 0, 0]);
    body
}

fn request(body: Vec<u8>) -> Message {
    Message::MultipartRequest(MultipartRequest::new(RequestBody::Experimenter(Experimenter {
        experimenter: Experimenter::ONF,
        exp_type: flow_monitor::FLOW_MONITOR,
        data: body.into(),
    })))
}

/// Event and priority, or the xid, of each update in a body.
fn updates(mut body: &[u8]) -> Vec<(u16, u32)> {
    let mut updates = Vec::new();
    while let [a, b, c, d, rest @ ..] = body {
        let size = usize::from(u16::from_be_bytes([*a, *b]));
        let event = u16::from_be_bytes([*c, *d]);
        let number = match event {
            ABBREVIATED => u32::from_be_bytes(rest[..4].try_into().unwrap()),
            _ => u32::from(u16::from_be_bytes(rest[2..4].try_into().unwrap())),
        };
        updates.push((event, number));
        body = &body[size..];
    }
    updates
}

/// What the controller hears next, which must be updates.
fn heard(controller: &mut Controller) -> Vec<(u16, u32)> {
    match controller.receive().unwrap().1 {
        Message::MultipartReply(MultipartReply {
            body: ReplyBody::Experimenter(body),
            ..
        }) => updates(&body.data),
        other => panic!("{other}"),
    }
}

fn begin(controller: &mut Controller, body: Vec<u8>) -> Vec<(u16, u32)> {
    controller.send(&request(body));
    heard(controller)
}

#[test]
fn what_is_there_comes_first_and_changes_of_anybody_follow() {
    let switch = TestSwitch::start(&config(2, ""));
    let (mut watcher, mut other) = (switch.controller(), switch.controller());
    other.add([flow(5, &[(Field::InPort, 1)], &[])]);
    assert_eq!(
        begin(&mut watcher, monitor(1, INITIAL | CHANGES, 0xff)),
        [(ADDED, 5)]
    );
    other.add([flow(6, &[(Field::InPort, 1)], &[])]);
    assert_eq!(heard(&mut watcher), [(ADDED, 6)]);
    let modify = FlowMod {
        command: FlowModCommand::Modify,
        ..flow(0, &[(Field::InPort, 1)], &[crate::harness::output(2)])
    };
    other.add([modify]);
    let mut both = heard(&mut watcher);
    both.sort_unstable();
    assert_eq!(both, [(MODIFIED, 5), (MODIFIED, 6)]);
    // Time does it, too.
    other.add([FlowMod {
        hard_timeout: 1,
        ..flow(7, &[(Field::InPort, 2)], &[])
    }]);
    assert_eq!(heard(&mut watcher), [(ADDED, 7)]);
    assert_eq!(heard(&mut watcher), [(DELETED, 7)]);
    other.add([FlowMod::delete(TableId::ALL, Match::any())]);
    let mut all = heard(&mut watcher);
    all.sort_unstable();
    assert_eq!(all, [(DELETED, 5), (DELETED, 6)]);
}

#[test]
fn own_changes_are_abbreviated_unless_asked_for_and_bundles_tell_on_commit() {
    let switch = TestSwitch::start(&config(2, ""));
    let mut watcher = switch.controller();
    begin(&mut watcher, monitor(1, CHANGES, 0xff));
    let xid = watcher.send(&Message::FlowMod(patch(1, 2)));
    assert_eq!(heard(&mut watcher), [(ABBREVIATED, xid.0)]);
    begin(&mut watcher, monitor(2, CHANGES | OWN, 0xff));
    watcher.send(&Message::FlowMod(patch(1, 1)));
    assert_eq!(heard(&mut watcher), [(ADDED, 10)]);

    // A bundle that fails tells nothing, one that is carried out tells all.
    let mut other = switch.controller();
    let flags = BundleFlags::ATOMIC;
    let add = |message| {
        Message::BundleAdd(BundleAdd {
            bundle: 1,
            flags,
            message: Box::new(Message::FlowMod(message)),
        })
    };
    let commit = Message::BundleControl(BundleControl {
        bundle: 1,
        command: BundleCommand::Commit,
        flags,
    });
    other.send(&add(flow(20, &[(Field::InPort, 1)], &[])));
    let overlapping = FlowMod {
        flags: FlowModFlags::CHECK_OVERLAP,
        ..flow(20, &[], &[])
    };
    other.send(&add(overlapping));
    assert!(matches!(other.ask(&commit), Message::Error(_)));
    other.send(&add(flow(21, &[(Field::InPort, 1)], &[])));
    assert!(matches!(other.ask(&commit), Message::BundleControl(_)));
    assert_eq!(heard(&mut watcher), [(ADDED, 21)]);
}

#[test]
fn a_monitor_is_of_its_table_and_ends_when_it_is_cancelled() {
    let switch = TestSwitch::start(&config(2, ""));
    let (mut watcher, mut other) = (switch.controller(), switch.controller());
    begin(
        &mut watcher,
        [monitor(1, CHANGES, 3), monitor(2, CHANGES, 4)].concat(),
    );
    let entry = |table, priority| FlowMod {
        table: TableId(table),
        ..flow(priority, &[], &[])
    };
    other.add([entry(2, 2), entry(3, 3), entry(4, 4)]);
    assert_eq!(
        (heard(&mut watcher), heard(&mut watcher)),
        (vec![(ADDED, 3)], vec![(ADDED, 4)])
    );
    let cancel = |id: u32| {
        Message::Experimenter(Experimenter {
            experimenter: Experimenter::ONF,
            exp_type: flow_monitor::FLOW_MONITOR_CANCEL,
            data: id.to_be_bytes().into(),
        })
    };
    watcher.send(&cancel(1));
    watcher.barrier();
    other.add([entry(3, 5), entry(4, 6)]);
    assert_eq!(heard(&mut watcher), [(ADDED, 6)]);
    assert_eq!(watcher.error_of(&cancel(1)), ErrorCode::OFPBRC_EPERM);
    let again = watcher.error_of(&request(monitor(2, CHANGES, 0xff)));
    assert_eq!(again, ErrorCode::OFPBRC_EPERM);
    let unknown = watcher.error_of(&request(monitor(7, 0x40, 0xff)));
    assert_eq!(unknown, ErrorCode::OFPBRC_EPERM);
    let nowhere = watcher.error_of(&request(monitor(7, CHANGES, 200)));
    assert_eq!(nowhere, ErrorCode::OFPBRC_BAD_TABLE_ID);
    let short = watcher.error_of(&request(vec![0; 7]));
    assert_eq!(short, ErrorCode::OFPBRC_BAD_LEN);
}

#[test]
fn who_does_not_read_hears_of_a_pause_and_then_how_everything_is_now() {
    const PAUSED: u32 = 1871;
    const RESUMED: u32 = 1872;
    let switch = TestSwitch::start(&config(2, ""));
    let (mut watcher, mut other) = (switch.controller(), switch.controller());
    begin(&mut watcher, monitor(1, CHANGES | 0x10, 0xff));
    // Each flow_mod makes an update of 2 kB: 64 MB and no reader.
    let buckets: Vec<_> = (0..100).map(|_| crate::harness::output(1)).collect();
    let entry = |priority: u16| flow(priority, &[(Field::InPort, 1)], &buckets);
    other.add((0..32_000).map(|turn| entry(1 + turn % 100)));
    other.add([FlowMod::delete(TableId::ALL, Match::any()), entry(500)]);
    let mut there = std::collections::BTreeSet::new();
    let mut signals = Vec::new();
    while signals.last() != Some(&RESUMED) {
        match watcher.receive().unwrap().1 {
            Message::Experimenter(body) => signals.push(body.exp_type),
            Message::MultipartReply(MultipartReply {
                body: ReplyBody::Experimenter(body),
                ..
            }) => {
                for (event, priority) in updates(&body.data) {
                    match event {
                        DELETED => there.remove(&priority),
                        _ => there.insert(priority),
                    };
                }
            }
            other => panic!("{other}"),
        }
    }
    assert_eq!(signals, [PAUSED, RESUMED]);
    assert_eq!(there.into_iter().collect::<Vec<_>>(), [500]);
}
