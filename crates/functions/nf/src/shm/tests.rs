//! Tests of a window with both ends in one process. In some tests, one end violates the protocol.

use core::sync::atomic::Ordering;
use std::fs::File;

use millrace_types::{Duration, PortNo, Time};
use millrace_wire::Frame;

use super::layout::at;
use super::*;
use crate::flow::{Endpoint, FlowId};
use crate::{Buffer, Context, Effects, Function, Outbox, ShunAction, ShunnedFlow, Verdict};

struct Test;

/// Handles packets by their first byte.
impl Function for Test {
    fn process(&mut self, context: &Context, burst: &mut [&mut dyn Buffer], verdicts: &mut [Verdict]) {
        for (packet, verdict) in burst.iter_mut().zip(verdicts) {
            match packet.head()[0] {
                1 => *verdict = Verdict::Drop,
                2 => *verdict = Verdict::Skip(3),
                3 => *verdict = Verdict::ToPort(PortNo::from_raw(70_000)),
                4 => {
                    packet.prepend(4).unwrap();
                    packet.head_mut()[..4].copy_from_slice(b"tag!");
                }
                5 => packet.trim_front(2),
                _ => {
                    packet.head_mut()[1] = if context.direction == Direction::Forward {
                        7
                    } else {
                        8
                    }
                }
            }
        }
    }
}

fn window() -> (SwitchEnd, FunctionEnd) {
    let (switch, file) = SwitchEnd::create("test", 8, 100).unwrap();
    let function = FunctionEnd::open(&File::from(file)).unwrap();
    (switch, function)
}

/// Takes back the oldest packet, which had `size` bytes.
fn take(switch: &mut SwitchEnd, size: usize) -> (Verdict, i32, Vec<u8>) {
    assert_ne!(switch.done(), Ok(0));
    let answer = switch.answer(0, size).unwrap();
    let mut bytes = vec![0; answer.size];
    switch.copy(&answer, &mut bytes);
    switch.take(1);
    (answer.verdict, answer.growth, bytes)
}

#[test]
fn packets_come_back_changed_with_their_verdicts_in_order() {
    let (mut switch, mut function) = window();
    for first in [0, 1, 2, 3, 4, 5] {
        assert!(switch.give(&[first, 9, 9], 3, Direction::Forward));
    }
    assert_eq!(function.serve(&mut Test, Time::ZERO), 0, "not published");
    switch.publish();
    assert_eq!(function.serve(&mut Test, Time::ZERO), 6);
    assert_eq!(take(&mut switch, 3), (Verdict::Next, 0, vec![0, 7, 9]));
    assert_eq!(take(&mut switch, 3).0, Verdict::Drop);
    assert_eq!(take(&mut switch, 3).0, Verdict::Skip(3));
    assert_eq!(take(&mut switch, 3).0, Verdict::ToPort(PortNo::from_raw(70_000)));
    assert_eq!(
        take(&mut switch, 3),
        (Verdict::Next, 4, b"tag!\x04\x09\x09".to_vec())
    );
    assert_eq!(take(&mut switch, 3), (Verdict::Next, -2, vec![9]));
    assert_eq!((switch.in_flight(), switch.free_slots()), (0, 8));
}

#[test]
fn slots_are_reused_in_order_and_a_burst_has_one_direction() {
    let (mut switch, mut function) = window();
    let (mut given, mut taken) = (0_u64, 0_u64);
    for round in 0..1000 {
        let way = |number: u64| match number % 5 {
            0 => Direction::Backward,
            _ => Direction::Forward,
        };
        while given - taken < 1 + round % 8 {
            let bytes = [0, 0, given as u8, (given >> 8) as u8];
            assert!(switch.give(&bytes, 4, way(given)));
            given += 1;
        }
        switch.publish();
        while function.serve(&mut Test, Time::ZERO) != 0 {}
        for _ in 0..switch.done().unwrap() {
            let (_, _, bytes) = take(&mut switch, 4);
            let seen = if way(taken) == Direction::Forward { 7 } else { 8 };
            assert_eq!(bytes, [0, seen, taken as u8, (taken >> 8) as u8]);
            taken += 1;
        }
    }
}

#[test]
fn packets_that_do_not_fit_are_not_taken() {
    let (mut switch, _function) = window();
    assert!(!switch.give(&[0; 200], 200, Direction::Forward));
    for _ in 0..8 {
        assert!(switch.give(&[0; 100], 100, Direction::Forward));
    }
    assert!(!switch.give(&[0; 100], 100, Direction::Forward));
}

#[test]
fn protocol_violations_are_detected() {
    let (mut switch, function) = window();
    assert!(switch.give(&[0; 60], 60, Direction::Forward));
    switch.publish();
    let number = |at: usize, value: u64| function.region.number(at).store(value, Ordering::Release);
    number(at::DONE, 2);
    assert_eq!(
        switch.done(),
        Err(ProtocolViolation::Done {
            done: 2,
            given: 1,
            taken: 0
        })
    );
    number(at::DONE, u64::MAX);
    assert!(switch.done().is_err());
    number(at::DONE, 1);
    assert_eq!(switch.done(), Ok(1));
    let answer_at = function.layout.answer(0);
    function
        .region
        .byte(function.layout.note(0))
        .store(77, Ordering::Relaxed);
    for (start, size) in [(0, 1_000_000), (u32::MAX, u32::MAX), (200, 100), (0, 257)] {
        number(answer_at, halves(start, size));
        assert!(
            matches!(switch.answer(0, 60), Err(ProtocolViolation::Bytes { .. })),
            "{start} {size}"
        );
    }
    number(answer_at, halves(256, 0));
    number(answer_at + 8, u64::MAX);
    let answer = switch.answer(0, 60).unwrap();
    assert_eq!((answer.verdict, answer.size), (Verdict::Drop, 0));
    // The switch does not read these numbers, so forged values have no effect.
    number(at::GIVEN, 77);
    number(at::SLOTS, u64::MAX);
    number(at::MAGIC, 0);
    switch.take(1);
    number(at::DONE, 0);
    assert!(switch.done().is_err(), "no longer done");
    assert_eq!((switch.in_flight(), switch.free_slots()), (0, 8));
}

#[test]
fn unchanged_packets_are_counted_in_a_row() {
    let (mut switch, mut function) = window();
    for first in [0, 0, 0, 1, 0, 5, 0] {
        assert!(switch.give(&[first, 9, 9], 3, Direction::Forward));
    }
    switch.publish();
    assert_eq!(function.serve(&mut Test, Time::ZERO), 7);
    assert_eq!((switch.unchanged(2), switch.unchanged(64)), (2, 3));
    switch.take(3);
    assert_eq!(switch.unchanged(64), 0);
    assert_eq!(take(&mut switch, 3).0, Verdict::Drop);
    assert_eq!(switch.unchanged(64), 1);
    assert_eq!(take(&mut switch, 3), (Verdict::Next, 0, vec![0, 7, 9]));
    assert_eq!(take(&mut switch, 3).1, -2);
    assert_eq!(switch.unchanged(64), 1);
    switch.take(1);
    // The second packet in a slot does not get the note of the first.
    for first in [0, 0, 0, 0, 0] {
        assert!(switch.give(&[first, 9, 9], 3, Direction::Backward));
    }
    switch.publish();
    while function.serve(&mut Test, Time::ZERO) != 0 {}
    assert_eq!(switch.unchanged(64), 5);
}

#[test]
fn descriptors_decode_to_what_was_encoded() {
    for direction in [Direction::Forward, Direction::Backward] {
        for (start, size, total) in [(0, 0, 0), (128, 60, 60), (u16::MAX, u16::MAX, u32::MAX >> 2)] {
            let descriptor = Descriptor {
                start,
                size,
                total,
                kind: BurstKind {
                    direction,
                    is_sent: total == 60,
                },
            };
            assert_eq!(Descriptor::from_word(descriptor.to_word()), descriptor);
        }
    }
}

#[test]
fn other_memory_is_no_window() {
    let (_region, file) = Region::create("other", 8192).unwrap();
    let error = FunctionEnd::open(&File::from(file)).unwrap_err();
    assert!(error.to_string().contains("not a window"), "{error}");
}

/// Drops packets whose last byte, in any segment, is 9.
struct LastByte;

impl Function for LastByte {
    fn process(&mut self, _: &Context, burst: &mut [&mut dyn Buffer], verdicts: &mut [Verdict]) {
        for (packet, verdict) in burst.iter().zip(verdicts) {
            let (mut size, mut last) = (0, 0);
            packet.each_segment(&mut |segment| {
                size += segment.len();
                last = segment.last().copied().unwrap_or(last);
            });
            if size == packet.len() && last == 9 {
                *verdict = Verdict::Drop;
            }
        }
    }
}

#[test]
fn a_function_reads_all_segments_of_a_packet_in_the_window_and_changes_the_first() {
    let (mut switch, mut function) = window();
    let mut bytes = [1; 90];
    assert!(switch.give_packet(&Frame::segmented(&bytes, 60), Direction::Forward));
    bytes[89] = 9;
    assert!(switch.give_packet(&Frame::segmented(&bytes, 60), Direction::Forward));
    assert!(switch.give_packet(&Frame::segmented(&bytes, 90), Direction::Forward));
    // A packet longer than the slot is read as far as it fits.
    let long = [9; 400];
    assert!(switch.give_packet(&Frame::segmented(&long, 60), Direction::Forward));
    switch.publish();
    assert_eq!(function.serve(&mut LastByte, Time::ZERO), 4);
    let verdicts: Vec<Verdict> = [60, 60, 90, 60]
        .iter()
        .map(|head| {
            let (verdict, growth, bytes) = take(&mut switch, *head);
            assert_eq!((growth, bytes.len()), (0, *head));
            verdict
        })
        .collect();
    assert_eq!(
        verdicts,
        [Verdict::Next, Verdict::Drop, Verdict::Drop, Verdict::Next]
    );
}

/// Sends a packet, shuns the flow of each packet that begins with 1, and reports ended shuns.
#[derive(Default)]
struct WithEffects {
    ended: Vec<ShunnedFlow>,
    loads: Vec<u8>,
}

impl Function for WithEffects {
    fn process(&mut self, _: &Context, _: &mut [&mut dyn Buffer], _: &mut [Verdict]) {}

    fn process_with_effects(
        &mut self,
        context: &Context,
        burst: &mut [&mut dyn Buffer],
        _: &mut [Verdict],
        effects: &mut Effects,
    ) {
        self.loads.push(context.load);
        for (index, packet) in burst.iter().enumerate() {
            if packet.head()[0] == 1 {
                effects.shun(index, ShunAction::Drop, Duration::from_secs(7));
                effects.send(Direction::Backward, packet.head());
            }
        }
    }

    fn shun_ended(&mut self, flow: &ShunnedFlow) {
        self.ended.push(*flow);
    }
}

/// Returns all records that the switch has not read, with their payloads, and frees them.
fn records(switch: &mut SwitchEnd) -> Vec<(RecordKind, u64, Vec<u8>)> {
    let mut records = Vec::new();
    while let Some(record) = switch.record().unwrap() {
        let mut bytes = vec![0; record.size];
        switch.copy_record(&record, &mut bytes);
        switch.free_record(&record);
        records.push((record.kind, record.after, bytes));
    }
    records
}

const SHUN: RecordKind = RecordKind::Shun(ShunAction::Drop, Duration::from_secs(7));
const BACK: RecordKind = RecordKind::Send(Direction::Backward);

#[test]
fn effects_reach_the_switch_with_the_packets_that_cause_them() {
    let (mut switch, mut function) = window();
    for first in [0, 1, 1] {
        assert!(switch.give(&[first, 9, 9], 3, Direction::Forward));
    }
    switch.publish();
    assert!(!switch.has_record());
    assert_eq!(function.serve(&mut WithEffects::default(), Time::ZERO), 3);
    assert_eq!(switch.done(), Ok(3));
    let frame = vec![1, 9, 9];
    let idle = 7_000_000_000_u64.to_le_bytes().to_vec();
    let wanted = [
        (SHUN, 2, idle.clone()),
        (SHUN, 3, idle),
        (BACK, 3, frame.clone()),
        (BACK, 3, frame),
    ];
    assert_eq!(records(&mut switch), wanted);
    assert_eq!(switch.refused(), 0);
}

#[test]
fn packets_that_functions_sent_are_a_burst_of_their_own_and_cause_no_packets() {
    let (mut switch, mut function) = window();
    let sent = BurstKind {
        direction: Direction::Forward,
        is_sent: true,
    };
    assert!(switch.give(&[0, 9], 2, Direction::Forward));
    assert!(switch.give(&[1, 9], 2, sent));
    switch.publish();
    let mut effects = WithEffects::default();
    assert_eq!(function.serve(&mut effects, Time::ZERO), 1);
    assert_eq!(function.serve(&mut effects, Time::ZERO), 1);
    assert_eq!(switch.done(), Ok(2));
    let kinds: Vec<_> = records(&mut switch).into_iter().map(|record| record.0).collect();
    assert_eq!((kinds, switch.refused()), (vec![SHUN], 1));
}

#[test]
fn the_ring_of_records_wraps_and_a_full_one_refuses_packets_and_keeps_messages_back() {
    let (mut switch, mut function) = window();
    let outbox = Outbox::new(4, 1000);
    let frame = [1; 90];
    let (mut sent, mut seen, mut number) = (0_u32, 0, 0_u8);
    // The test sends more than four times the ring's length.
    while sent < 12_000 {
        for _ in 0..8 {
            assert!(switch.give(&frame, 90, Direction::Forward));
        }
        number = number.wrapping_add(1);
        assert!(outbox.send(|bytes| {
            bytes.extend(core::iter::repeat_n(number, 100 + usize::from(number)));
            true
        }));
        switch.publish();
        assert_eq!(function.serve(&mut WithEffects::default(), Time::ZERO), 8);
        function.pass_on(&outbox, false);
        assert_eq!(switch.done(), Ok(8));
        switch.take(8);
        sent += 8;
        for (kind, _, bytes) in records(&mut switch) {
            match kind {
                RecordKind::Send(_) => assert_eq!(bytes, frame),
                RecordKind::Export => assert_eq!(bytes, vec![number; 100 + usize::from(number)]),
                _ => continue,
            }
            seen += 1;
        }
    }
    assert_eq!((seen, switch.refused()), (12_000 + 1500, 0));
    // The switch reads nothing: the ring fills.
    let mut rounds = 0;
    while switch.refused() == 0 {
        assert!(switch.give(&frame, 90, Direction::Forward));
        switch.publish();
        function.serve(&mut WithEffects::default(), Time::ZERO);
        assert_eq!(switch.done(), Ok(1));
        switch.take(1);
        rounds += 1;
        assert!(rounds < 4000);
    }
    assert!(outbox.send(|bytes| {
        bytes.push(1);
        true
    }));
    function.pass_on(&outbox, true);
    assert_eq!(outbox.len(), 1, "messages leave room to packets");
    assert!(!records(&mut switch).is_empty());
    function.pass_on(&outbox, true);
    assert_eq!(switch.done(), Ok(0));
    let last = records(&mut switch);
    assert_eq!(last, [(RecordKind::Report, 12_000 + rounds, vec![1])]);
}

#[test]
fn ended_shuns_and_the_load_reach_the_function() {
    let (mut switch, mut function) = window();
    let mut effects = WithEffects::default();
    let ended = ShunnedFlow {
        flow: FlowId {
            source: Endpoint {
                address: [3; 16],
                port: 80,
            },
            destination: Endpoint {
                address: [4; 16],
                port: 1000,
            },
            proto: 6,
        },
        vlans: [4095, 7],
        action: ShunAction::Drop,
        packets: 1 << 40,
        bytes: u64::MAX,
    };
    let mut written = 0;
    while switch.notify(&ended) {
        written += 1;
    }
    function.receive_notices(&mut effects);
    assert_eq!(effects.ended, vec![ended; written]);
    assert!(switch.notify(&ended));
    switch.set_load(255);
    for _ in 0..4 {
        assert!(switch.give(&[0; 60], 60, Direction::Forward));
    }
    switch.publish();
    function.serve(&mut effects, Time::ZERO);
    // The load is the mean of the window (four of eight slots in use) and of the full entry of the chain.
    assert_eq!(effects.loads, [191]);
}

#[test]
fn records_that_violate_the_protocol_are_detected() {
    let frame = [1; 60];
    let bad: [(&str, [u64; 2]); 8] = [
        ("unknown kind", [9, 0]),
        ("unknown flag", [1 | 7 << 8, 0]),
        ("longer than the ring", [3 | 1 << 60, 0]),
        ("longer than what was written", [3 | 200 << 32, 0]),
        ("a frame that is too long", [1 | 1515 << 32, 0]),
        ("a request with another size", [2 | 16 << 32, 1]),
        ("a request for no packet", [2 | 8 << 32, 0]),
        ("a packet that was not given", [1 | 60 << 32, 2]),
    ];
    for (what, words) in bad {
        let (mut switch, function) = window();
        assert!(switch.give(&frame, 60, Direction::Forward));
        let at = function.layout.first_record();
        function.region.write_pair(at, words);
        let size = if words[0] as u8 == 1 { 4096 } else { 96 };
        function
            .region
            .number(at::RECORDS_WRITTEN)
            .store(size, Ordering::Release);
        assert_eq!(switch.done(), Ok(0));
        assert!(
            matches!(switch.record(), Err(ProtocolViolation::Record { .. })),
            "{what}"
        );
    }
    for written in [8, 1 << 20, u64::MAX] {
        let (mut switch, function) = window();
        function
            .region
            .number(at::RECORDS_WRITTEN)
            .store(written, Ordering::Release);
        assert!(
            matches!(switch.done(), Err(ProtocolViolation::Records { .. })),
            "{written}"
        );
    }
    let (mut switch, function) = window();
    let number = |at: usize, value: u64| function.region.number(at).store(value, Ordering::Release);
    number(at::RECORDS_WRITTEN, 64);
    assert_eq!(switch.done(), Ok(0));
    number(at::RECORDS_WRITTEN, 48);
    assert!(switch.done().is_err(), "the counter decreased");
    // A forged counter of notices has one effect: the function loses notices.
    number(at::NOTICES_READ, u64::MAX);
    let ended = ShunnedFlow {
        flow: FlowId::default(),
        vlans: [0; 2],
        action: ShunAction::Pass,
        packets: 1,
        bytes: 1,
    };
    for _ in 0..2000 {
        let _is_written = switch.notify(&ended);
    }
}

#[test]
fn answers_in_any_order_reach_the_switch_in_the_order_of_the_packets() {
    let (mut switch, function) = window();
    let mut queue = Unordered::new(function, None);
    for first in 0..5 {
        assert!(switch.give(&[first, 9, 9], 3, Direction::Forward));
    }
    switch.publish();
    let packets: Vec<ReceivedPacket> = core::iter::from_fn(|| queue.receive()).collect();
    assert_eq!(packets.len(), 5);
    assert_eq!((packets[4].size, queue.outstanding()), (3, 5));
    queue.answer(&packets[3], Verdict::Drop);
    queue.answer(&packets[1], Verdict::Next);
    queue.publish();
    assert_eq!(switch.done(), Ok(0), "the first packet is not answered");
    queue.shun(&packets[0], ShunAction::Drop, Duration::from_secs(7));
    assert!(queue.send(Some(&packets[0]), Direction::Backward, &[7; 60]));
    queue.answer(&packets[0], Verdict::Drop);
    // A second answer to the same packet is ignored.
    queue.answer(&packets[0], Verdict::Next);
    queue.publish();
    assert_eq!(switch.done(), Ok(2));
    let kinds: Vec<_> = records(&mut switch)
        .into_iter()
        .map(|(kind, after, _)| (kind, after))
        .collect();
    assert_eq!(kinds, [(SHUN, 1), (BACK, 1)]);
    assert_eq!(take(&mut switch, 3).0, Verdict::Drop);
    assert_eq!(take(&mut switch, 3).0, Verdict::Next);
    for packet in [packets[4], packets[2], packets[0]] {
        queue.answer(&packet, Verdict::Next);
    }
    queue.publish();
    assert_eq!(switch.done(), Ok(3));
    assert_eq!(
        [0, 1, 2].map(|_| take(&mut switch, 3).0 == Verdict::Drop),
        [false, true, false]
    );
    // The slots are used again.
    for round in 0..40_u8 {
        assert!(switch.give(&[round; 20], 20, Direction::Forward));
        switch.publish();
        let packet = queue.receive().unwrap();
        assert!(queue.receive().is_none());
        queue.answer(&packet, Verdict::Next);
        queue.publish();
        assert_ne!(switch.done(), Ok(0));
        assert_eq!(take(&mut switch, 20).2, [round; 20]);
    }
}

#[test]
fn a_function_reads_all_segments_of_a_packet_in_shared_memory() {
    // The packets are in another file that both sides map at one address.
    let (memory, file) = Region::create("packets", 1 << 16).unwrap();
    let base = memory.start().as_ptr().addr();
    drop(memory);
    let mut packets = PacketMemory::default();
    packets.map(&File::from(file), base, 1 << 16, 0).unwrap();
    let (mut switch, window) = SwitchEnd::create_shared("test", 8).unwrap();
    let mut function = FunctionEnd::open(&File::from(window))
        .unwrap()
        .with_memory(packets);
    let mut seen = 0;
    // All rounds together need more tails than the ring holds: tails are freed with their packets.
    for round in 0..200 {
        for number in 0..8_usize {
            let last = if number % 3 == 0 { 9 } else { 1 };
            let mut bytes = vec![1; 60 + 1000 * (number + 1)];
            *bytes.last_mut().unwrap() = last;
            let frame = Frame::segmented(&bytes, 60);
            let location = PacketLocation {
                address: (base + 4096 + 1024 * number) as u64,
                headroom: 0,
                head_size: 60,
                size: bytes.len(),
            };
            assert!(
                switch.give_segmented(&frame, location, Direction::Forward),
                "{round}"
            );
        }
        switch.publish();
        assert_eq!(function.serve(&mut LastByte, Time::ZERO), 8);
        assert_eq!(switch.done(), Ok(8));
        let verdicts: Vec<Verdict> = (0..8).map(|behind| switch.verdict(behind).unwrap()).collect();
        for (number, verdict) in verdicts.into_iter().enumerate() {
            assert_eq!(verdict == Verdict::Drop, number % 3 == 0, "{number}");
            seen += 1;
        }
        switch.take(8);
    }
    assert_eq!(seen, 1600);
    // A packet that exceeds the ring of tails is refused, not truncated.
    let long = Frame::segmented(&vec![1; (1 << 20) + 61], 60);
    let location = PacketLocation {
        address: base as u64,
        headroom: 0,
        head_size: 60,
        size: (1 << 20) + 61,
    };
    assert!(!switch.give_segmented(&long, location, Direction::Forward));
    assert_eq!((switch.in_flight(), switch.free_slots()), (0, 8));
}
