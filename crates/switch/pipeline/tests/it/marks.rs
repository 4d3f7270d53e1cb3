//! A bridge with marks of a device acts as one without: at every level with an honest device, and at the level verify with one
//! that lies. A device that lies under trust is caught.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::sync::Arc;

use arrayvec::ArrayVec;
use millrace_flow::classify::BURST;
use millrace_flow::{Field, FlowKey, Instructions, WriteMetadata};
use millrace_pipeline::{
    FlowCachePolicy, MarkColumn, MarkCounts, MarkLevel, MarkState, MeterFlags, SlotChange, Slots,
};
use millrace_types::{MeterId, PortNo, TableId};
use millrace_wire::{Depth, Frame};
use proptest::prelude::*;

use crate::flow_cache::{bridge, carry_out, cases, steps};
use crate::harness::{Bridge, Event, Recorder, frame, out, sent};

const INDEX_BITS: u32 = 6;

/// The packets to which a faulty device gives the mark of another key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum WrongMarks {
    Never,
    /// One marked packet in this many.
    Every(u32),
}

/// The devices of all ports: each knows up to 64 keys, as the planner would have installed them.
pub(crate) struct Devices {
    level: MarkLevel,
    wrong_marks: WrongMarks,
    /// True if devices drop marked packets that the tables drop.
    drops: bool,
    dropped: u64,
    ports: BTreeMap<u32, Device>,
}

struct Device {
    slots: Slots,
    state: Arc<MarkState>,
    counts: Arc<MarkCounts>,
    /// The version of the match bits, and the mark of each masked key.
    version: u64,
    marks: BTreeMap<[u64; FlowKey::WORDS], u32>,
    next: u32,
    marked: u32,
}

impl Device {
    fn new(level: MarkLevel) -> Device {
        let state = Arc::new(MarkState::new(level));
        let counts = Arc::new(MarkCounts::new(1 << INDEX_BITS));
        Device {
            slots: Slots::new(INDEX_BITS, Arc::clone(&state), Arc::clone(&counts), 1),
            state,
            counts,
            version: u64::MAX,
            marks: BTreeMap::new(),
            next: 1 << INDEX_BITS,
            marked: 0,
        }
    }

    /// Returns the mark of a key, for which a slot is taken if there is none yet.
    fn mark(&mut self, key: &FlowKey, (mask, version): &(millrace_flow::FlowMask, u64)) -> u32 {
        if self.version != *version {
            self.marks.clear();
            self.version = *version;
        }
        let words = *key.masked(mask).words();
        if let Some(mark) = self.marks.get(&words) {
            return *mark;
        }
        let mark = self.next;
        self.next += 1;
        let slot = mark % (1 << INDEX_BITS);
        self.marks.retain(|_, mark| *mark % (1 << INDEX_BITS) != slot);
        self.slots.change(&SlotChange {
            slot,
            key: Some((mark, *key, *version)),
        });
        self.marks.insert(words, mark);
        mark
    }
}

impl Devices {
    pub(crate) fn new(level: MarkLevel, wrong_marks: WrongMarks) -> Devices {
        Devices {
            level,
            wrong_marks,
            drops: false,
            dropped: 0,
            ports: BTreeMap::new(),
        }
    }

    /// Lets devices drop marked packets that the tables drop.
    fn dropping(mut self, drops: bool) -> Devices {
        self.drops = drops;
        self
    }

    pub(crate) fn receive(&mut self, bridge: &mut Bridge, port: u32, frames: &[Vec<u8>]) -> Vec<Event> {
        let (level, wrong_marks) = (self.level, self.wrong_marks);
        let device = self.ports.entry(port).or_insert_with(|| Device::new(level));
        let bits = bridge.active.match_bits();
        let drops = self.drops && bridge.active.mark_obstacle(PortNo::from_raw(port)).is_none();
        let mut recorder = Recorder::default();
        for frames in frames.chunks(BURST) {
            let mut column = MarkColumn::default();
            let mut burst: ArrayVec<Frame, BURST> = ArrayVec::new();
            for bytes in frames {
                let mut key = FlowKey::default();
                key.put(Field::InPort, port.into());
                key.put(Field::InPhyPort, port.into());
                key.read(bytes, bytes.len(), Depth::All);
                let mut mark = device.mark(&key, &bits);
                device.marked += 1;
                if let WrongMarks::Every(interval) = wrong_marks
                    && device.marked.is_multiple_of(interval)
                {
                    let others = device.marks.values().filter(|other| **other != mark);
                    mark = others.copied().next().unwrap_or(mark);
                }
                // Some packets have no mark, as mice have none.
                let mark = if device.marked.is_multiple_of(7) { 0 } else { mark };
                if drops
                    && mark != 0
                    && bytes.len() >= 14
                    && let Some(path) = bridge.active.drop_path(&key.masked(&bits.0))
                {
                    path.count(bridge.processor.counters(), 1, bytes.len() as u64, bridge.now);
                    self.dropped += 1;
                    continue;
                }
                let hash = millrace_wire::flow_hash::FlowHash::new(1).of(bytes);
                column.set(burst.len(), mark, Some((hash >> 32) as u32));
                burst.push(Frame::new(bytes));
            }
            bridge.processor.process_marked_burst(
                &bridge.active,
                PortNo::from_raw(port),
                (&mut burst, &column),
                &mut device.slots,
                bridge.now,
                &mut recorder,
            );
            assert!(burst.is_empty());
            let _sampled = device.slots.take_sample();
        }
        recorder.events
    }

    /// Returns the sums of packets whose mark was used, of mismatches, and true if a device is distrusted.
    fn outcome(&self) -> (u64, u64, bool) {
        let sum = |count: fn(&MarkCounts) -> u64| self.ports.values().map(|port| count(&port.counts)).sum();
        let is_distrusted = self.ports.values().any(|port| port.state.is_distrusted());
        (sum(MarkCounts::used), sum(MarkCounts::mismatches), is_distrusted)
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases() / 8, ..ProptestConfig::default() })]

    #[test]
    fn marks_make_no_difference_at_any_level_whatever_the_tables_do(
        steps in steps(),
        (level, wrong_marks, drops) in prop::sample::select(vec![
            (MarkLevel::Dispatch, WrongMarks::Never, false),
            (MarkLevel::Trust, WrongMarks::Never, false),
            (MarkLevel::Trust, WrongMarks::Never, true),
            (MarkLevel::Verify, WrongMarks::Never, false),
            (MarkLevel::Verify, WrongMarks::Every(3), false),
        ]),
        caches: bool,
    ) {
        let mut without = bridge(FlowCachePolicy::Off);
        let mut with = bridge(if caches { FlowCachePolicy::Always } else { FlowCachePolicy::Off });
        with.devices = Some(Devices::new(level, wrong_marks).dropping(drops));
        for (number, step) in steps.iter().enumerate() {
            let expected = carry_out(&mut without, step);
            let got = carry_out(&mut with, step);
            prop_assert_eq!(&got.tables, &expected.tables, "step {}", number);
            prop_assert_eq!(&got.counts, &expected.counts, "step {}", number);
            prop_assert_eq!(&got.drops, &expected.drops, "step {}", number);
            prop_assert_eq!(got, expected, "step {}", number);
        }
        let (_, mismatches, _) = with.devices.unwrap().outcome();
        prop_assert!(wrong_marks != WrongMarks::Never || mismatches == 0, "a device without wrong marks has {} mismatches", mismatches);
    }
}

fn flow(number: u32) -> Vec<u8> {
    frame(&format!(
        "udp,nw_src=10.1.0.1,nw_dst=10.0.0.{number},tp_src=1,tp_dst=2"
    ))
}

/// Returns a bridge that sends packets to 10.0.0.N to port 2 or 3, by the parity of N.
fn two_ways(level: MarkLevel, wrong_marks: WrongMarks) -> Bridge {
    let mut bridge = Bridge::new(3);
    for number in 0..8 {
        bridge.add(
            0,
            1,
            &format!("ip,nw_dst=10.0.0.{number}"),
            Instructions::apply([out(2 + number % 2)]),
        );
    }
    bridge.devices = Some(Devices::new(level, wrong_marks));
    bridge
}

fn outcome(bridge: &Bridge) -> (u64, u64, bool) {
    bridge.devices.as_ref().unwrap().outcome()
}

#[test]
fn a_mark_replaces_the_lookup_after_the_first_packet_of_its_slot() {
    let mut bridge = two_ways(MarkLevel::Trust, WrongMarks::Never);
    let frames: Vec<_> = (0..8).map(flow).collect();
    bridge.receive(1, &frames);
    assert_eq!(outcome(&bridge), (0, 0, false), "the first packets are compared");
    for _ in 0..10 {
        let events = bridge.receive(1, &frames);
        assert_eq!(events.len(), 8);
    }
    let (used, mismatches, is_distrusted) = outcome(&bridge);
    // One packet in seven has no mark.
    assert!((60..=80).contains(&used), "{used}");
    assert_eq!((mismatches, is_distrusted), (0, false));
    let total: u64 = bridge.counts().iter().map(|(_, packets, _)| packets).sum();
    assert_eq!(total, 88, "entries count every packet");
}

#[test]
fn only_packets_that_meet_idle_entries_until_they_are_dropped_have_a_path() {
    let mut bridge = Bridge::new(3);
    bridge.add_meter(MeterId(1), MeterFlags::KBPS, Vec::new());
    let to_table_1 = || Instructions {
        goto_table: Some(TableId(1)),
        ..Instructions::default()
    };
    bridge.add(0, 2, "ip,nw_dst=10.0.0.1", Instructions::default());
    bridge.add(0, 2, "ip,nw_dst=10.0.0.2", to_table_1());
    bridge.add(0, 2, "ip,nw_dst=10.0.0.3", Instructions::apply([out(2)]));
    let metered = Instructions {
        meter: Some(MeterId(1)),
        ..Instructions::default()
    };
    bridge.add(0, 2, "ip,nw_dst=10.0.0.4", metered);
    let written = Instructions {
        write_metadata: Some(WriteMetadata { value: 1, mask: 1 }),
        ..to_table_1()
    };
    bridge.add(0, 2, "ip,nw_dst=10.0.0.5", written);
    let later = Instructions {
        write_actions: Some([out(2)].into()),
        ..to_table_1()
    };
    bridge.add(0, 2, "ip,nw_dst=10.0.0.6", later);
    bridge.add(1, 1, "udp,tp_src=1", Instructions::default());
    bridge.add(0, 2, "udp,nw_dst=10.0.0.7,tp_src=1", to_table_1());
    bridge.add(0, 2, "tcp,nw_dst=10.0.0.8", to_table_1());
    let path = |bridge: &Bridge, text: &str| {
        let bytes = frame(text);
        let mut key = FlowKey::default();
        key.put(Field::InPort, 1);
        key.read(&bytes, bytes.len(), Depth::All);
        bridge.active.drop_path(&key)
    };
    for (number, has_path) in [1, 2, 3, 4, 5, 6, 7]
        .into_iter()
        .zip([true, true, false, false, false, false, true])
    {
        let text = format!("udp,nw_dst=10.0.0.{number},tp_src=1");
        assert_eq!(path(&bridge, &text).is_some(), has_path, "{text}");
    }
    assert_eq!(
        path(&bridge, "tcp,nw_dst=10.0.0.8,tp_src=1"),
        None,
        "table 1 has no entry"
    );
    assert_eq!(path(&bridge, "udp,nw_dst=10.0.0.9"), None, "table 0 has no entry");
    // An entry that is replaced is another one, although it does the same.
    let text = "udp,nw_dst=10.0.0.2,tp_src=1";
    let before = path(&bridge, text);
    assert_eq!(path(&bridge, text), before);
    bridge.add(1, 1, "tcp,tp_src=1", Instructions::default());
    assert_eq!(path(&bridge, text), before, "an entry for others");
    bridge.add(1, 1, "udp,tp_src=1", Instructions::default());
    assert_ne!(path(&bridge, text), before);
}

#[test]
fn a_change_of_the_table_is_seen_by_the_next_marked_packet() {
    let mut bridge = two_ways(MarkLevel::Trust, WrongMarks::Never);
    let frames = vec![flow(4); 16];
    bridge.receive(1, &frames);
    assert!(
        sent(&bridge.receive(1, &frames))
            .iter()
            .all(|(port, _)| *port == 2)
    );
    bridge.add(0, 1, "ip,nw_dst=10.0.0.4", Instructions::apply([out(3)]));
    assert!(
        sent(&bridge.receive(1, &frames))
            .iter()
            .all(|(port, _)| *port == 3)
    );
}

#[test]
fn wrong_marks_under_trust_are_caught_by_the_audit_and_then_make_no_wrong_packet() {
    let mut bridge = two_ways(MarkLevel::Trust, WrongMarks::Never);
    let frames: Vec<_> = (0..64).map(|number| flow(number % 8)).collect();
    bridge.receive(1, &frames);
    bridge.receive(1, &frames);
    assert!(!outcome(&bridge).2);
    bridge.devices.as_mut().unwrap().wrong_marks = WrongMarks::Every(2);
    let mut bursts = 0;
    while !outcome(&bridge).2 {
        bridge.receive(1, &frames);
        bursts += 1;
        assert!(
            bursts < 10_000 / 64,
            "the wrong marks are found within 10,000 marked packets"
        );
    }
    for _ in 0..20 {
        for (port, bytes) in sent(&bridge.receive(1, &frames)) {
            let expected = 2 + u32::from(bytes[33]) % 2;
            assert_eq!(port, expected, "a distrusted device makes no wrong packet");
        }
    }
}

#[test]
fn a_wrong_entry_is_found_at_its_first_packet() {
    let mut bridge = two_ways(MarkLevel::Trust, WrongMarks::Every(1));
    let frames: Vec<_> = (0..8).map(flow).collect();
    for _ in 0..4 {
        for (port, bytes) in sent(&bridge.receive(1, &frames)) {
            assert_eq!(port, 2 + u32::from(bytes[33]) % 2);
        }
    }
    let (_, mismatches, is_distrusted) = outcome(&bridge);
    assert!(mismatches > 0 && is_distrusted);
}

#[test]
fn packets_of_a_flow_stay_in_order_when_some_of_them_have_no_mark() {
    let mut bridge = two_ways(MarkLevel::Trust, WrongMarks::Never);
    for round in 0..40_u32 {
        let frames: Vec<_> = (0..64_u32)
            .map(|number| {
                let mut frame = flow(number % 5);
                frame.extend((round * 64 + number).to_be_bytes());
                frame
            })
            .collect();
        let mut last = BTreeMap::new();
        for event in bridge.receive(1, &frames) {
            let Event::Out(_, _, bytes) = event else {
                panic!("{event:?}")
            };
            let number = u32::from_be_bytes(bytes[bytes.len() - 4..].try_into().unwrap());
            let before = last.insert(bytes[33], number);
            assert!(before.is_none_or(|before| before < number), "{before:?} {number}");
        }
    }
    assert!(outcome(&bridge).0 > 100, "marks were used");
}
