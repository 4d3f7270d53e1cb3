//! Flow monitors: updates about a controller's own changes and about those of others, in full and abbreviated
//! form, and the pause for a controller that does not read. `tests/interop/test_monitor.py` compares the
//! updates with those of Open vSwitch.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

use crate::harness::{Controller, TestSwitch, config, flow, patch, without_echo};
use millrace_flow::{Field, Match};
use millrace_openflow::multipart::{MultipartReply, MultipartRequest, ReplyBody, RequestBody};
use millrace_openflow::*;
use millrace_types::*;

const INITIAL: u16 = 1;
const CHANGES: u16 = 2 | 4 | 8;
const INSTRUCTIONS: u16 = 0x10;
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

/// Returns the event and the priority, or the xid, of each update in a body.
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

/// Returns the updates in the next message, which must have updates.
fn received_updates(controller: &mut Controller) -> Vec<(u16, u32)> {
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
    received_updates(controller)
}

#[test]
fn existing_entries_come_first_and_changes_by_any_controller_follow() {
    let switch = TestSwitch::start(&config(2, ""));
    let (mut watcher, mut other) = (switch.controller(), switch.controller());
    other.add([flow(5, &[(Field::InPort, 1)], &[])]);
    assert_eq!(
        begin(&mut watcher, monitor(1, INITIAL | CHANGES, 0xff)),
        [(ADDED, 5)]
    );
    other.add([flow(6, &[(Field::InPort, 1)], &[])]);
    assert_eq!(received_updates(&mut watcher), [(ADDED, 6)]);
    let modify = FlowMod {
        command: FlowModCommand::Modify,
        ..flow(0, &[(Field::InPort, 1)], &[crate::harness::output(2)])
    };
    other.add([modify]);
    let mut both = received_updates(&mut watcher);
    both.sort_unstable();
    assert_eq!(both, [(MODIFIED, 5), (MODIFIED, 6)]);
    // A time-out is reported, too.
    other.add([FlowMod {
        hard_timeout: 1,
        ..flow(7, &[(Field::InPort, 2)], &[])
    }]);
    assert_eq!(received_updates(&mut watcher), [(ADDED, 7)]);
    assert_eq!(received_updates(&mut watcher), [(DELETED, 7)]);
    other.add([FlowMod::delete(TableId::ALL, Match::any())]);
    let mut all = received_updates(&mut watcher);
    all.sort_unstable();
    assert_eq!(all, [(DELETED, 5), (DELETED, 6)]);
}

#[test]
fn a_change_directly_after_the_request_follows_the_existing_entries() {
    use std::io::Write;
    let switch = TestSwitch::start(&config(2, ""));
    let mut watcher = switch.controller();
    watcher.add([flow(5, &[(Field::InPort, 1)], &[])]);
    let mut bytes = Vec::new();
    let monitor = request(monitor(1, INITIAL | CHANGES | OWN, 0xff));
    let delete = Message::FlowMod(FlowMod::delete(TableId::ALL, Match::any()));
    encode(&monitor, Xid(1), &mut bytes).unwrap();
    encode(&delete, Xid(2), &mut bytes).unwrap();
    watcher.stream.write_all(&bytes).unwrap();
    assert_eq!(received_updates(&mut watcher), [(ADDED, 5)]);
    assert_eq!(received_updates(&mut watcher), [(DELETED, 5)]);
}

#[test]
fn own_changes_are_abbreviated_unless_asked_for_and_bundles_are_reported_on_commit() {
    let switch = TestSwitch::start(&config(2, ""));
    let mut watcher = switch.controller();
    begin(&mut watcher, monitor(1, CHANGES, 0xff));
    let xid = watcher.send(&Message::FlowMod(patch(1, 2)));
    assert_eq!(received_updates(&mut watcher), [(ABBREVIATED, xid.0)]);
    begin(&mut watcher, monitor(2, CHANGES | OWN, 0xff));
    watcher.send(&Message::FlowMod(patch(1, 1)));
    assert_eq!(received_updates(&mut watcher), [(ADDED, 10)]);

    // A bundle that fails causes no updates, one that is committed causes all.
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
    assert_eq!(received_updates(&mut watcher), [(ADDED, 21)]);
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
        (received_updates(&mut watcher), received_updates(&mut watcher)),
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
    assert_eq!(received_updates(&mut watcher), [(ADDED, 6)]);
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

/// Returns a request for one monitor of entries with this match.
fn monitor_of(id: u32, fields: &[(Field, u128)]) -> Vec<u8> {
    let mut flow_mod = Vec::new();
    encode(&Message::FlowMod(flow(1, fields, &[])), Xid(0), &mut flow_mod).unwrap();
    // The match of a flow_mod begins at byte 48: type, length without padding, fields, padding to 8 bytes.
    let [_, _, high, low, ..] = flow_mod[48..] else {
        panic!("no match")
    };
    let len = u16::from_be_bytes([high, low]);
    let padded = usize::from(len).next_multiple_of(8);
    let mut body = monitor(id, CHANGES, 0xff);
    body[6..8].copy_from_slice(&len.to_be_bytes());
    body.truncate(16);
    body.extend(&flow_mod[48..48 + padded]);
    body
}

#[test]
fn a_monitor_by_an_extension_field_is_refused_by_a_strict_bridge_only() {
    let fields = [(Field::EthType, 0x800), (Field::IpProto, 6), (Field::TcpFlags, 2)];
    let strict = TestSwitch::start(&config(2, "match_extensions = false"));
    let mut watcher = strict.controller();
    let refused = watcher.error_of(&request(monitor_of(1, &fields)));
    assert_eq!(refused, ErrorCode::OFPBMC_BAD_FIELD);
    // The refused monitor does not exist: its number is free, and a standard match is accepted.
    begin(&mut watcher, monitor_of(1, &fields[..2]));

    let extended = TestSwitch::start(&config(2, "match_extensions = true"));
    let (mut watcher, mut other) = (extended.controller(), extended.controller());
    begin(&mut watcher, monitor_of(1, &fields));
    other.add([flow(4, &fields[..2], &[]), flow(5, &fields, &[])]);
    assert_eq!(received_updates(&mut watcher), [(ADDED, 5)]);
}

/// The messages that tell the watcher of a pause and its end.
const PAUSED: u32 = 1871;
const RESUMED: u32 = 1872;

/// Returns an entry whose update is 1.7 kB long.
fn large_entry(priority: u16) -> FlowMod {
    let actions: Vec<_> = (0..100).map(|_| crate::harness::output(1)).collect();
    flow(priority, &[(Field::InPort, 1)], &actions)
}

/// Changes entries until a watcher that does not read is paused: 54 MB of updates. The outbox takes 32 MiB, the connection 1 MiB,
/// and the switch's socket 4 MiB by default.
fn flood(other: &mut Controller) {
    other.add((0..32_000).map(|turn| large_entry(1 + turn % 100)));
}

#[test]
fn a_pause_ends_with_the_monitor() {
    let switch = TestSwitch::start(&without_echo(&config(2, "")));
    let (mut watcher, mut other) = (switch.controller_with_small_buffer(), switch.controller());
    begin(&mut watcher, monitor(1, CHANGES | INSTRUCTIONS, 0xff));
    flood(&mut other);
    let cancel = Message::Experimenter(Experimenter {
        experimenter: Experimenter::ONF,
        exp_type: flow_monitor::FLOW_MONITOR_CANCEL,
        data: 1_u32.to_be_bytes().into(),
    });
    watcher.send(&cancel);
    let barrier = watcher.send(&Message::BarrierRequest);
    let mut signals = Vec::new();
    loop {
        match watcher.receive().unwrap() {
            (_, Message::Experimenter(body)) => signals.push(body.exp_type),
            (header, Message::BarrierReply) if header.xid == barrier => break,
            (_, Message::MultipartReply(_)) => {}
            (_, other) => panic!("{other}"),
        }
    }
    assert_eq!(signals, [PAUSED, RESUMED]);
}

#[test]
fn a_controller_that_does_not_read_is_paused_and_then_gets_the_current_entries() {
    let switch = TestSwitch::start(&without_echo(&config(2, "")));
    let (mut watcher, mut other) = (switch.controller_with_small_buffer(), switch.controller());
    begin(&mut watcher, monitor(1, CHANGES | INSTRUCTIONS, 0xff));
    flood(&mut other);
    other.add([FlowMod::delete(TableId::ALL, Match::any()), large_entry(500)]);
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
