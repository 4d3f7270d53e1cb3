//! One queue: a bounded FIFO of packets, with its guarantee, its limit and its deficit.

use std::collections::VecDeque;
use std::sync::Arc;

use millrace_types::{QueueId, Time};
use millrace_wire::Packet;

use super::counters::QueueCounters;
use super::credit::Credit;
use super::plan::QueuePlan;

/// A queue of a port.
#[derive(Debug)]
pub(super) struct Queue<P> {
    pub(super) id: QueueId,
    /// The queued packets, never more than the initial capacity, so that nothing is allocated later.
    packets: VecDeque<P>,
    packets_max: usize,
    bytes: u64,
    bytes_max: u64,
    pub(super) guarantee: Option<Credit>,
    pub(super) limit: Option<Credit>,
    /// Bytes that the queue may still send in its round-robin turn; negative by the excess of its last
    /// packet.
    pub(super) deficit: i64,
    /// Bytes that a turn adds to the deficit.
    pub(super) quantum: i64,
    pub(super) counters: Arc<QueueCounters>,
}

impl<P: Packet> Queue<P> {
    pub(super) fn new(plan: &QueuePlan, counters: Arc<QueueCounters>, now: Time) -> Queue<P> {
        let packets_max = plan.packets_max.max(1);
        Queue {
            id: plan.id,
            packets: VecDeque::with_capacity(packets_max),
            packets_max,
            bytes: 0,
            bytes_max: plan.bytes_max.unwrap_or(u64::MAX),
            guarantee: plan.min_rate.map(|rate| Credit::new(rate, now)),
            limit: plan.max_rate.map(|rate| Credit::new(rate, now)),
            deficit: 0,
            quantum: 0,
            counters,
        }
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.packets.len()
    }

    /// Appends a packet.
    ///
    /// # Errors
    /// Returns the packet if the queue is full. An empty queue accepts any packet.
    #[inline]
    pub(super) fn push(&mut self, packet: P, overhead: u32) -> Result<(), P> {
        let size = u64::from(size(&packet, overhead));
        let is_full =
            self.packets.len() >= self.packets_max || self.bytes.saturating_add(size) > self.bytes_max;
        if is_full && !self.packets.is_empty() {
            return Err(packet);
        }
        self.bytes += size;
        self.packets.push_back(packet);
        Ok(())
    }

    /// Removes the first packet. Returns it with its size in bytes, overhead included.
    #[inline]
    pub(super) fn pop(&mut self, overhead: u32) -> Option<(P, u32)> {
        let packet = self.packets.pop_front()?;
        let size = size(&packet, overhead);
        self.bytes -= u64::from(size);
        Some((packet, size))
    }

    /// Publishes the length of the queue in its counters.
    #[inline]
    pub(super) fn publish_len(&self) {
        self.counters.waiting_packets.set(self.packets.len());
        self.counters
            .waiting_bytes
            .set(usize::try_from(self.bytes).unwrap_or(usize::MAX));
    }
}

/// Returns the size of a packet in bytes, overhead included.
#[inline]
fn size<P: Packet>(packet: &P, overhead: u32) -> u32 {
    u32::try_from(packet.len())
        .unwrap_or(u32::MAX)
        .saturating_add(overhead)
}
