//! Packet samples for sFlow (sFlow.org, "sFlow Version 5", July 2004, section 3.1): one packet of N on average, chosen at
//! random by a skip counter for each port in each worker.
//!
//! ```text
//!  burst --> skip counter runs out --> tables: the whole burst, with notes of one packet
//!                                        |                                         next_sample()
//!                                        +--> record of the packet --> queue --> control side
//!  policer, tables, full transmit queues: dropped packets --> queue of discards --^
//! ```
//!
//! A burst without a sampled packet costs one subtraction. A worker copies the first bytes of a packet into a
//! record and queues the record. If the queue is full, the loss is counted in the next record of the same
//! port and worker. The record also carries the number of packets from which samples were taken, so that no
//! counter is shared.

mod egress;
mod skip;
mod worker;

pub(crate) use self::egress::SampledDestinations;
pub(crate) use self::worker::{Sampler, WorkerSampling};

use std::sync::Arc;
use std::thread::Thread;

use crossbeam_queue::ArrayQueue;
use millrace_pipeline::DropReason;
use millrace_types::{Cookie, PortNo};

/// The largest number of bytes of a packet that a sample contains.
pub const SAMPLE_HEADER_MAX: usize = 256;

/// Capacity of the queue of samples. The control side empties the queue at least every 50 ms, and wakes when the
/// queue is half full.
const SAMPLES_LEN: usize = 4096;
/// Capacity of the queue of dropped packets.
const DISCARDS_LEN: usize = 1024;

/// The sampling of a bridge.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SamplingPlan {
    /// The number of bytes of a packet that its sample contains, at most [`SAMPLE_HEADER_MAX`].
    pub header_size: usize,
    /// The ports with samples, each with the mean number of packets for each sample, which is not zero.
    pub rates: Vec<(PortNo, u32)>,
    /// The maximum number of records of dropped packets per second, over all workers; 0 disables these
    /// records.
    pub discards_per_second: u32,
    /// The seed of the random numbers.
    pub seed: u64,
}

/// The outcome of a sampled packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SampleOutcome {
    /// The packet left by this port, with this tag control information.
    Sent {
        port: PortNo,
        /// The outermost VLAN tag, if the packet left with one.
        tci: Option<u16>,
    },
    /// The packet left this many times, by several ports or by one.
    Copied(u32),
    /// The packet was dropped.
    Dropped {
        reason: DropReason,
        /// The output port, if its transmit queue or the inbox of the worker that sends for it was full;
        /// `None` if the packet was dropped elsewhere.
        port: Option<PortNo>,
    },
    /// The switch itself took the packet: for the controllers, or as a frame of address resolution or of OAM.
    Taken,
    /// The packet waits in the switch, as a fragment does.
    Unknown,
}

/// The first bytes of a packet.
#[derive(Clone, Copy)]
pub struct SampledHeader {
    bytes: [u8; SAMPLE_HEADER_MAX],
    size: u16,
}

impl SampledHeader {
    /// Returns at most `size` bytes of `head`.
    fn of(head: &[u8], size: usize) -> SampledHeader {
        let size = head.len().min(size).min(SAMPLE_HEADER_MAX);
        let mut bytes = [0; SAMPLE_HEADER_MAX];
        bytes[..size].copy_from_slice(&head[..size]);
        SampledHeader {
            bytes,
            size: size as u16,
        }
    }

    /// Returns the bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.size)]
    }
}

impl core::fmt::Debug for SampledHeader {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{:02x?}", self.bytes())
    }
}

/// The metadata of a packet that was chosen as a sample.
#[derive(Clone, Copy, Debug)]
pub struct SampledPacket {
    /// The port at which the packet arrived.
    pub port: PortNo,
    /// The mean number of packets for each sample.
    pub rate: u32,
    /// The number of packets from which this sample was taken: packets of the port in this worker since the
    /// last sample.
    pub pool: u64,
    /// The number of samples that were lost since the previous sample.
    pub lost: u64,
    /// Size of the packet in bytes, without frame check sequence.
    pub size: u32,
    /// The first bytes of the packet as it arrived.
    pub header: SampledHeader,
    /// The outermost VLAN tag with which the packet arrived.
    pub tci: Option<u16>,
    pub outcome: SampleOutcome,
    /// The metadata after the last table.
    pub metadata: u64,
    /// The cookie of the last entry that matched; `None` if no entry matched.
    pub cookie: Option<Cookie>,
}

/// A dropped packet.
#[derive(Clone, Copy, Debug)]
pub struct DiscardedPacket {
    /// The port at which the packet arrived; `None` for packets from other workers.
    pub in_port: Option<PortNo>,
    /// The output port that dropped the packet; `None` if the packet was dropped elsewhere.
    pub out_port: Option<PortNo>,
    pub reason: DropReason,
    /// The number of records lost since the previous one, because the queue was full or the rate limit was
    /// reached.
    pub lost: u64,
    /// Size of the packet in bytes.
    pub size: u32,
    /// The first bytes of the packet as it was dropped.
    pub header: SampledHeader,
}

/// Packets that were counted but not reported when the sampling of a bridge ended or changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SampleRemainder {
    pub port: PortNo,
    /// The number of packets since the last sample.
    pub pool: u64,
    /// The number of samples that were lost since the last one.
    pub lost: u64,
}

/// The queues of a bridge from its workers to the control side.
pub(crate) struct SampleQueues {
    samples: ArrayQueue<SampledPacket>,
    discards: ArrayQueue<DiscardedPacket>,
    /// The thread to unpark.
    control: Thread,
}

impl SampleQueues {
    pub(crate) fn new(control: Thread) -> Arc<SampleQueues> {
        Arc::new(SampleQueues {
            samples: ArrayQueue::new(SAMPLES_LEN),
            discards: ArrayQueue::new(DISCARDS_LEN),
            control,
        })
    }

    /// Queues a sample. Returns true if there was room.
    fn push_sample(&self, sample: SampledPacket) -> bool {
        let is_queued = self.samples.push(sample).is_ok();
        if self.samples.len() == SAMPLES_LEN / 2 {
            self.control.unpark();
        }
        is_queued
    }

    /// Queues a dropped packet. Returns true if there was room.
    fn push_discard(&self, discard: DiscardedPacket) -> bool {
        let is_queued = self.discards.push(discard).is_ok();
        if self.discards.len() == DISCARDS_LEN / 2 {
            self.control.unpark();
        }
        is_queued
    }

    pub(crate) fn pop_sample(&self) -> Option<SampledPacket> {
        self.samples.pop()
    }

    pub(crate) fn pop_discard(&self) -> Option<DiscardedPacket> {
        self.discards.pop()
    }
}
