//! Random requests and packets against an obvious model: entries in a list, searched from front to back.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use crate::harness::{Bridge, Event, frame};
use millrace_flow::{Action, Field, FlowKey, Instructions, Match, Rule};
use millrace_pipeline::{
    Aggregate, ControlConfig, Cursor, EntryCount, ErrorCode, FlowFilter, FlowFlags, FlowMod, FlowModCommand,
    RemovedReason,
};
use millrace_types::{Cookie, Duration, GroupId, PortNo, Priority, TableId, Time};
use millrace_wire::{Depth, Layers};
use proptest::prelude::*;

const TABLES: u8 = 3;
const MAX_ENTRIES: u32 = 12;

#[derive(Clone, Debug)]
struct ModelEntry {
    request: FlowMod,
    rule: Rule,
    created: Time,
    last_used: Time,
    packets: u64,
    bytes: u64,
}

impl ModelEntry {
    fn is_same(&self, table: TableId, rule: &Rule) -> bool {
        self.request.table == table && self.rule == *rule
    }

    fn outputs_to(&self, port: PortNo) -> bool {
        self.request
            .instructions
            .actions()
            .any(|action| matches!(action, Action::Output { port: to, .. } if *to == port))
    }

    fn goes_at(&self) -> Option<(Time, RemovedReason)> {
        let after =
            |from: Time, seconds: u16| (seconds > 0).then(|| from + Duration::from_secs(seconds.into()));
        let hard = after(self.created, self.request.hard_timeout).map(|at| (at, RemovedReason::HardTimeout));
        let idle =
            after(self.last_used, self.request.idle_timeout).map(|at| (at, RemovedReason::IdleTimeout));
        match (hard, idle) {
            (Some(hard), Some(idle)) => Some(if hard.0 <= idle.0 { hard } else { idle }),
            (hard, idle) => hard.or(idle),
        }
    }
}

/// A flow_removed: cookie, reason, packets, bytes, seconds.
type Removed = (u64, RemovedReason, u64, u64, u64);

#[derive(Clone, Default)]
struct Model {
    entries: Vec<ModelEntry>,
    removed: Vec<Removed>,
}

impl Model {
    fn flow_mod(&mut self, request: &FlowMod, now: Time) -> Result<(), ErrorCode> {
        let rule = request.match_.rule(request.priority);
        let deletes = matches!(
            request.command,
            FlowModCommand::Delete | FlowModCommand::DeleteStrict
        );
        if request.table.0 >= TABLES && !(deletes && request.table == TableId::ALL) {
            return Err(ErrorCode::OFPFMFC_BAD_TABLE_ID);
        }
        if let Some(to) = request.instructions.goto_table
            && !deletes
            && (to <= request.table || to.0 >= TABLES)
        {
            return Err(ErrorCode::OFPBIC_BAD_TABLE_ID);
        }
        let is_strict = matches!(
            request.command,
            FlowModCommand::ModifyStrict | FlowModCommand::DeleteStrict
        );
        let is_meant = |entry: &ModelEntry| {
            let in_table = request.table == TableId::ALL || entry.request.table == request.table;
            let by_match = if is_strict {
                entry.rule == rule
            } else {
                entry.rule.is_within(&rule)
            };
            let by_cookie = (entry.request.cookie.0 ^ request.cookie.0) & request.cookie_mask == 0;
            let by_port = !deletes || request.out_port == PortNo::ANY || entry.outputs_to(request.out_port);
            in_table && by_match && by_cookie && by_port
        };
        let resets = request.flags.contains(FlowFlags::RESET_COUNTS);
        match request.command {
            FlowModCommand::Add => {
                let of_table = |entry: &&ModelEntry| entry.request.table == request.table;
                let overlaps = self.entries.iter().filter(of_table).any(|entry| {
                    let other = entry.rule != rule && entry.rule.priority == rule.priority;
                    other && entry.rule.overlaps(&rule)
                });
                if request.flags.contains(FlowFlags::CHECK_OVERLAP) && overlaps {
                    return Err(ErrorCode::OFPFMFC_OVERLAP);
                }
                let held = self
                    .entries
                    .iter()
                    .position(|entry| entry.is_same(request.table, &rule));
                if held.is_none() && self.entries.iter().filter(of_table).count() >= MAX_ENTRIES as usize {
                    return Err(ErrorCode::OFPFMFC_TABLE_FULL);
                }
                let (packets, bytes) = match held.map(|at| self.entries.remove(at)) {
                    Some(held) if !resets => (held.packets, held.bytes),
                    _ => (0, 0),
                };
                self.entries.push(ModelEntry {
                    request: request.clone(),
                    rule,
                    created: now,
                    last_used: now,
                    packets,
                    bytes,
                });
            }
            FlowModCommand::Modify | FlowModCommand::ModifyStrict => {
                for entry in self.entries.iter_mut().filter(|entry| is_meant(entry)) {
                    entry.request.instructions = request.instructions.clone();
                    if resets {
                        (entry.packets, entry.bytes) = (0, 0);
                    }
                }
            }
            FlowModCommand::Delete | FlowModCommand::DeleteStrict => {
                let (gone, kept) = self.entries.drain(..).partition(is_meant);
                self.entries = kept;
                self.report(gone, now, |_| RemovedReason::Delete);
            }
        }
        Ok(())
    }

    fn report(&mut self, gone: Vec<ModelEntry>, now: Time, reason: impl Fn(&ModelEntry) -> RemovedReason) {
        for entry in gone {
            if entry.request.flags.contains(FlowFlags::SEND_FLOW_REM) {
                self.removed.push((
                    entry.request.cookie.0,
                    reason(&entry),
                    entry.packets,
                    entry.bytes,
                    now.since(entry.created).as_secs(),
                ));
            }
        }
    }

    fn expire(&mut self, now: Time) {
        let is_due = |entry: &ModelEntry| entry.goes_at().is_some_and(|(at, _)| at <= now);
        let (gone, kept) = self.entries.drain(..).partition(is_due);
        self.entries = kept;
        self.report(gone, now, |entry| {
            let hard = entry.created + Duration::from_secs(entry.request.hard_timeout.into());
            if entry.request.hard_timeout > 0 && now >= hard {
                RemovedReason::HardTimeout
            } else {
                RemovedReason::IdleTimeout
            }
        });
    }

    /// Returns the port by which the packet leaves.
    fn packet(&mut self, in_port: u32, frame: &[u8], now: Time) -> Option<u32> {
        let mut key = FlowKey::default();
        key.put(Field::InPort, in_port.into());
        key.extract(frame, &Layers::parse(frame, Depth::All));
        let mut table = TableId(0);
        loop {
            let entry = self
                .entries
                .iter_mut()
                .filter(|entry| entry.request.table == table && entry.rule.matches(&key))
                .max_by_key(|entry| entry.rule.priority)?;
            entry.packets += 1;
            entry.bytes += frame.len() as u64;
            entry.last_used = now;
            if let Some(Action::Output { port, .. }) = entry.request.instructions.actions().next() {
                return Some(port.raw());
            }
            table = entry.request.instructions.goto_table?;
        }
    }
}

/// Returns a match of one of ten shapes, with one of a few values. Matches of one shape are equal or disjoint.
fn matching(shape: u8, value: u8) -> Match {
    let v = u128::from(value);
    let exact = |fields: &[(Field, u128)]| Match::exact(fields).unwrap();
    match shape {
        0 => Match::any(),
        1 => exact(&[(Field::InPort, 1 + v)]),
        2 => exact(&[(Field::EthType, 0x800), (Field::Ipv4Dst, 0x0a00_0000 + v)]),
        // The same match, with its fields in another order.
        3 => exact(&[(Field::Ipv4Dst, 0x0a00_0000 + v), (Field::EthType, 0x800)]),
        4 => exact(&[
            (Field::EthType, 0x800),
            (Field::IpProto, 6),
            (Field::TcpDst, 80 + v),
        ]),
        5 => exact(&[
            (Field::InPort, 1 + v / 2),
            (Field::EthType, 0x800),
            (Field::Ipv4Dst, 0x0a00_0000 + v % 2),
        ]),
        7 => exact(&[(Field::EthType, 0x800), (Field::NwTtl, 63 + v)]),
        8 => format!(
            "tcp,tcp_flags={:#x}/0x12",
            [0, 0x02, 0x10, 0x12][usize::from(value)]
        )
        .parse()
        .unwrap(),
        9 => format!("tcp,tp_dst={}/0xfffe", 80 + (v & !1)).parse().unwrap(),
        _ => {
            let mut builder = Match::builder();
            builder.push(Field::EthType, 0x800, None).unwrap();
            builder
                .push(Field::Ipv4Dst, 0x0a00_0000 + (v & !1), Some(0xffff_fffe))
                .unwrap();
            builder.finish().unwrap()
        }
    }
}

/// Returns a priority that depends on the shape of the match, so that no packet matches two entries of equal priority.
fn priority(shape: u8, high: bool) -> Priority {
    let shape = if shape == 3 { 2 } else { shape };
    Priority(u16::from(shape) * 2 + u16::from(high))
}

#[derive(Clone, Debug)]
enum Step {
    FlowMod(Box<FlowMod>),
    /// Executes flow_mods as a bundle: all take effect or none, and none if the bundle is rolled back at the end.
    Bundle(Vec<FlowMod>, bool),
    Packets(Vec<(u32, u8, u8)>),
    Wait(u64),
}

fn flow_mod() -> impl Strategy<Value = FlowMod> {
    let command = prop_oneof![
        5 => Just(FlowModCommand::Add),
        1 => Just(FlowModCommand::Modify),
        1 => Just(FlowModCommand::ModifyStrict),
        1 => Just(FlowModCommand::Delete),
        1 => Just(FlowModCommand::DeleteStrict),
    ];
    let table = prop_oneof![8 => 0..TABLES, 1 => Just(TABLES), 1 => Just(255)];
    let place = (command, table, 0u8..10, 0u8..4, any::<bool>());
    let marks = (
        0u64..8,
        prop::sample::select(vec![0u64, 1, 7]),
        0u16..3,
        0u16..6,
        0u16..8,
    );
    let todo = (0u32..4, prop::option::weighted(0.3, 0..TABLES + 1), any::<bool>());
    (place, marks, todo).prop_map(
        |((command, table, shape, value, high), marks, (port, goto, any_port))| {
            let (cookie, cookie_mask, idle_timeout, hard_timeout, flags) = marks;
            let instructions = match goto {
                Some(table) => Instructions::goto(TableId(table)),
                None => Instructions::apply([Action::output(PortNo::from_raw(port + 5))]),
            };
            FlowMod {
                cookie: Cookie(cookie),
                cookie_mask,
                idle_timeout,
                hard_timeout,
                flags: FlowFlags(flags),
                out_port: if any_port {
                    PortNo::ANY
                } else {
                    PortNo::from_raw(port + 5)
                },
                out_group: GroupId::ANY,
                instructions,
                ..FlowMod::new(
                    command,
                    TableId(table),
                    priority(shape, high),
                    matching(shape, value),
                )
            }
        },
    )
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => flow_mod().prop_map(|request| Step::FlowMod(Box::new(request))),
        1 => (prop::collection::vec(flow_mod(), 1..8), any::<bool>())
            .prop_map(|(requests, is_given_up)| Step::Bundle(requests, is_given_up)),
        2 => prop::collection::vec((1u32..4, 0u8..4, 0u8..3), 1..70).prop_map(Step::Packets),
        1 => (1u64..4).prop_map(Step::Wait),
    ];
    prop::collection::vec(step, 1..60)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn the_bridge_does_what_the_model_does(steps in steps()) {
        let config = ControlConfig { tables: TABLES, max_entries: MAX_ENTRIES, ..ControlConfig::default() };
        let mut bridge = Bridge::with(config, 9);
        let mut model = Model::default();
        for step in steps {
            match step {
                Step::FlowMod(request) => {
                    let expected = model.flow_mod(&request, bridge.now);
                    let got = bridge.flow_mod(*request).map(|_| ()).map_err(|error| error.code());
                    prop_assert_eq!(got, expected);
                }
                Step::Bundle(requests, is_given_up) => {
                    let mut after = model.clone();
                    let refusal = requests
                        .iter()
                        .find_map(|request| after.flow_mod(request, bridge.now).err());
                    if refusal.is_none() && !is_given_up {
                        model = after;
                    }
                    let got = bridge.bundle(requests, is_given_up);
                    prop_assert_eq!(got.map_err(|error| error.code()).err(), refusal);
                }
                Step::Packets(packets) => {
                    // All packets of a burst are from one port.
                    let mut packets = packets;
                    packets.sort_by_key(|(port, ..)| *port);
                    for group in packets.chunk_by(|a, b| a.0 == b.0) {
                        let frames: Vec<Vec<u8>> = group
                            .iter()
                            .map(|(_, dst, dport)| {
                                let flags = ["syn", "syn|ack", "ack"][usize::from(*dport)];
                                let (port, ttl, size) = (80 + dport, 63 + dst, 60 + dst);
                                frame(&format!("tcp,nw_dst=10.0.0.{dst},nw_ttl={ttl},tp_dst={port},tcp_flags={flags},size={size}"))
                            })
                            .collect();
                        let events = bridge.receive(group[0].0, &frames);
                        let mut got: Vec<(u32, Vec<u8>)> = crate::harness::sent(&events);
                        let mut expected: Vec<(u32, Vec<u8>)> = frames
                            .into_iter()
                            .filter_map(|frame| Some((model.packet(group[0].0, &frame, bridge.now)?, frame)))
                            .collect();
                        let drops = events.iter().filter(|event| matches!(event, Event::Dropped(_))).count();
                        prop_assert_eq!(got.len() + drops, group.len());
                        got.sort();
                        expected.sort();
                        prop_assert_eq!(got, expected);
                    }
                }
                Step::Wait(seconds) => {
                    bridge.now = bridge.now + Duration::from_secs(seconds);
                    // The clock advances by a tenth of a second, so that the timer ticks.
                    let exact = bridge.now;
                    bridge.now = exact + Duration::from_millis(100);
                    bridge.expire();
                    bridge.now = exact;
                    model.expire(exact);
                }
            }
            check(&bridge, &mut model)?;
        }
    }
}

fn check(bridge: &Bridge, model: &mut Model) -> Result<(), TestCaseError> {
    let key = |entry: &ModelEntry| {
        (
            entry.request.table.0,
            entry.request.priority.0,
            entry.request.cookie.0,
            format!("{:?}", entry.rule),
            entry.packets,
            entry.bytes,
        )
    };
    let mut expected: Vec<_> = model.entries.iter().map(key).collect();
    let mut got = Vec::new();
    let mut cursor = Some(Cursor::default());
    while let Some(from) = cursor {
        // Small steps show that a listing loses nothing between them.
        cursor = bridge
            .control
            .flow_stats(&FlowFilter::all(), from, 3, bridge.now, |stat| {
                got.push((
                    stat.entry.table().0,
                    stat.entry.priority().0,
                    stat.entry.cookie().0,
                    format!("{:?}", stat.entry.rule()),
                    stat.count.packets,
                    stat.count.bytes,
                ));
            });
    }
    expected.sort();
    got.sort();
    prop_assert_eq!(&got, &expected);

    let mut sum = Aggregate::default();
    let rest = bridge
        .control
        .aggregate(&FlowFilter::all(), Cursor::default(), usize::MAX, &mut sum);
    prop_assert!(rest.is_none());
    prop_assert_eq!(sum.flows, expected.len() as u64);
    prop_assert_eq!(
        sum.packets,
        model.entries.iter().map(|entry| entry.packets).sum::<u64>()
    );
    prop_assert_eq!(bridge.control.entry_len(), expected.len());

    let mut reported: Vec<Removed> = bridge
        .removed
        .iter()
        .map(|gone| {
            let EntryCount { packets, bytes, .. } = gone.count;
            (
                gone.entry.cookie().0,
                gone.reason,
                packets,
                bytes,
                gone.duration.as_secs(),
            )
        })
        .collect();
    let order = |a: &Removed, b: &Removed| format!("{a:?}").cmp(&format!("{b:?}"));
    reported.sort_by(order);
    model.removed.sort_by(order);
    prop_assert_eq!(&reported, &model.removed);
    Ok(())
}
