//! The scheduler of a port in simulated time: no packet is lost or reordered, rates are exact, and guarantees
//! and priorities hold.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

mod properties;
mod queues;
mod rates;

use std::collections::BTreeMap;

use arrayvec::ArrayVec;
use millrace_datapath::schedule::{PortPlan, QueueCountersMap, QueuePlan, QueueStats, Scheduler};
use millrace_types::{BitRate, QueueId, Time};
use millrace_wire::{NoHeadroom, Packet};

/// A packet without bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct TestPacket {
    size: usize,
    number: u64,
    queue: u32,
    enqueued_at: Time,
}

impl Packet for TestPacket {
    fn len(&self) -> usize {
        self.size
    }
    fn head(&self) -> &[u8] {
        &[]
    }
    fn head_mut(&mut self) -> &mut [u8] {
        &mut []
    }
    fn prepend(&mut self, _: usize) -> Result<(), NoHeadroom> {
        Err(NoHeadroom)
    }
    fn trim_front(&mut self, _: usize) {}
    fn try_clone(&self) -> Option<TestPacket> {
        Some(*self)
    }
    fn copy_to(&self, _: &mut Vec<u8>, _: usize) {}
}

type Out = ArrayVec<TestPacket, 64>;

fn bps(rate: u64) -> Option<BitRate> {
    Some(BitRate::from_bps(rate))
}

fn queue(id: u32) -> QueuePlan {
    QueuePlan::new(QueueId(id))
}

/// A scheduler, and the packets that it refused and sent.
struct TestBed {
    scheduler: Scheduler<TestPacket>,
    counters: QueueCountersMap,
    numbers: u64,
    refused: BTreeMap<u32, u64>,
    sent: Vec<TestPacket>,
}

impl TestBed {
    fn new(plan: &PortPlan) -> TestBed {
        let counters: QueueCountersMap = plan
            .all_queues()
            .iter()
            .map(|queue| (queue.id, Default::default()))
            .collect();
        TestBed {
            scheduler: Scheduler::new(plan, &counters, Time::ZERO),
            counters,
            numbers: 0,
            refused: BTreeMap::new(),
            sent: Vec::new(),
        }
    }

    fn put(&mut self, queue: u32, size: usize, now: Time) -> bool {
        let packet = TestPacket {
            size,
            number: self.numbers,
            queue,
            enqueued_at: now,
        };
        self.numbers += 1;
        let is_taken = self.scheduler.enqueue(Some(QueueId(queue)), packet, now).is_ok();
        if !is_taken {
            *self.refused.entry(queue).or_default() += 1;
        }
        is_taken
    }

    /// Keeps a queue full.
    fn fill(&mut self, queue: u32, size: usize, now: Time) {
        while self.put(queue, size, now) {}
    }

    fn take(&mut self, now: Time) -> usize {
        let before = self.sent.len();
        loop {
            let mut out = Out::new();
            self.scheduler.dequeue(now, &mut out);
            self.sent.extend(&out);
            if !out.is_full() {
                return self.sent.len() - before;
            }
        }
    }

    fn bytes_of(&self, queue: u32) -> u64 {
        self.sent
            .iter()
            .filter(|packet| packet.queue == queue)
            .map(|packet| packet.size as u64)
            .sum()
    }

    fn stats(&self, queue: u32) -> QueueStats {
        self.counters[&QueueId(queue)].read()
    }
}

/// Returns the rate of each queue of `sizes` in bits per second, if all of them are kept full with packets of their size
/// for `millis` milliseconds of simulated time, and polled every `step` nanoseconds.
fn rates(plan: &PortPlan, sizes: &[(u32, usize)], millis: u64, step: u64) -> Vec<f64> {
    let mut testbed = TestBed::new(plan);
    for nanos in (0..millis * 1_000_000).step_by(step as usize) {
        let now = Time::from_nanos(nanos);
        for (queue, size) in sizes {
            testbed.fill(*queue, *size, now);
        }
        testbed.take(now);
    }
    sizes
        .iter()
        .map(|(queue, _)| testbed.bytes_of(*queue) as f64 * 8_000.0 / millis as f64)
        .collect()
}
