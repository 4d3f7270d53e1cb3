//! Sampling in one worker: the skip counters of a bridge's ports, and the records of packets.

use std::sync::Arc;

use millrace_pipeline::{DropReason, ObservedPacket};
use millrace_types::split_mix;
use millrace_types::{Duration, PortNo, Time};
use millrace_wire::{Packet, rewrite};

use super::skip::SkipCounter;
use super::{
    DiscardedPacket, SampleOutcome, SampleQueues, SampleRemainder, SampledHeader, SampledPacket, SamplingPlan,
};
use crate::io::Burst;

/// The interval over which the rate of records of dropped packets is limited.
const LIMIT_INTERVAL: Duration = Duration::from_secs(1);

/// The sampler of one port.
#[derive(Debug)]
struct PortSampler {
    port: PortNo,
    rate: u32,
    skip: SkipCounter,
    /// Packets counted since the last sample that was queued.
    pool: u64,
    /// Samples lost since the last sample that was queued.
    lost: u64,
}

/// The samplers of a bridge's ports in one worker.
pub(crate) struct Sampler {
    ports: Vec<PortSampler>,
    /// Index in `ports` plus one, by port number, for the port numbers in common use; 0 for none.
    direct: Box<[u16; Sampler::DIRECT]>,
    header_size: usize,
    discards: DiscardLimit,
    queues: Arc<SampleQueues>,
}

/// The sampler of a bridge in one worker, if the bridge has one.
pub(crate) type WorkerSampling = Option<Box<Sampler>>;

/// The limit of the rate of records of dropped packets.
struct DiscardLimit {
    per_second: u32,
    /// The end of the current second.
    until: Time,
    /// The number of records that are still allowed in the current second.
    left: u32,
    /// Records lost since the last one that was queued.
    lost: u64,
}

impl DiscardLimit {
    /// Returns true if a record may be made now.
    fn allows(&mut self, now: Time) -> bool {
        if now >= self.until {
            self.until = now + LIMIT_INTERVAL;
            self.left = self.per_second;
        }
        let is_allowed = self.left > 0;
        self.left = self.left.saturating_sub(1);
        is_allowed
    }
}

impl Sampler {
    /// Port numbers below this one have an entry in an array; the others are in a map.
    const DIRECT: usize = 1024;

    /// Returns the samplers for worker `worker` of `workers`.
    pub(crate) fn new(
        plan: &SamplingPlan,
        worker: usize,
        workers: usize,
        queues: &Arc<SampleQueues>,
    ) -> Sampler {
        let mut seed = split_mix::mix(plan.seed.wrapping_add(worker as u64));
        let sampler = |(port, rate): &(PortNo, u32)| PortSampler {
            port: *port,
            rate: (*rate).max(1),
            skip: SkipCounter::new(*rate, split_mix::next(&mut seed)),
            pool: 0,
            lost: 0,
        };
        let ports: Vec<PortSampler> = plan.rates.iter().map(sampler).collect();
        let mut direct = Box::new([0; Sampler::DIRECT]);
        for (index, port) in (1..).zip(&ports) {
            if let Some(slot) = direct.get_mut(port.port.raw() as usize) {
                *slot = index;
            }
        }
        Sampler {
            ports,
            direct,
            header_size: plan.header_size,
            discards: DiscardLimit {
                per_second: plan.discards_per_second.div_ceil(workers.max(1) as u32),
                until: Time::ZERO,
                left: 0,
                lost: 0,
            },
            queues: Arc::clone(queues),
        }
    }

    /// Counts `len` packets that arrived at a port. Returns the index of the first sampled packet, if any;
    /// packets after it are then not counted.
    #[inline]
    pub(crate) fn advance(&mut self, port: PortNo, len: usize) -> Option<usize> {
        let at = find(&self.ports, &self.direct, port)?;
        let sampler = &mut self.ports[at];
        let index = sampler.skip.advance(len);
        sampler.pool += index.map_or(len, |index| index + 1) as u64;
        index
    }

    /// Returns the index of the first sampled packet among the next `len` packets of a port, if any, without
    /// counting them.
    pub(crate) fn peek(&self, port: PortNo, len: usize) -> Option<usize> {
        self.ports[find(&self.ports, &self.direct, port)?].skip.peek(len)
    }

    /// Returns true if dropped packets are recorded.
    #[inline]
    pub(crate) fn records_discards(&self) -> bool {
        self.discards.per_second != 0
    }

    /// Returns the part of a sample that must be recorded before the packet is processed.
    pub(crate) fn ingress_record<P: Packet>(&self, packet: &P) -> IngressRecord {
        let head = packet.head();
        IngressRecord {
            size: packet.len() as u32,
            header: SampledHeader::of(head, self.header_size),
            tci: rewrite::vlan_tci(head),
        }
    }

    /// Queues a sample of a packet.
    pub(crate) fn push(
        &mut self,
        port: PortNo,
        ingress: &IngressRecord,
        outcome: SampleOutcome,
        observed: ObservedPacket,
    ) {
        let Sampler {
            ports,
            direct,
            queues,
            ..
        } = self;
        let Some(at) = find(ports, direct, port) else {
            return;
        };
        let sampler = &mut ports[at];
        let is_queued = queues.push_sample(SampledPacket {
            port,
            rate: sampler.rate,
            pool: sampler.pool,
            lost: sampler.lost,
            size: ingress.size,
            header: ingress.header,
            tci: ingress.tci,
            outcome,
            metadata: observed.metadata,
            cookie: observed.cookie,
        });
        if is_queued {
            (sampler.pool, sampler.lost) = (0, 0);
        } else {
            sampler.lost += 1;
        }
    }

    /// Counts and samples packets that arrived at a port and were dropped before the tables.
    #[cold]
    #[inline(never)]
    pub(crate) fn sample_dropped<P: Packet>(
        &mut self,
        port: PortNo,
        packets: &Burst<P>,
        reason: DropReason,
        now: Time,
    ) {
        let mut next = 0;
        while let Some(index) = self.advance(port, packets.len() - next) {
            let ingress = self.ingress_record(&packets[next + index]);
            let outcome = SampleOutcome::Dropped { reason, port: None };
            self.push(port, &ingress, outcome, ObservedPacket::default());
            next += index + 1;
        }
        self.record_discards((Some(port), None), packets, reason, now);
    }

    /// Records dropped packets, if this is on. `ports` has the ingress port, and the output port that dropped
    /// them.
    #[cold]
    #[inline(never)]
    pub(crate) fn record_discards<P: Packet>(
        &mut self,
        ports: (Option<PortNo>, Option<PortNo>),
        packets: &[P],
        reason: DropReason,
        now: Time,
    ) {
        if !self.records_discards() {
            return;
        }
        for packet in packets {
            let is_queued = self.discards.allows(now)
                && self.queues.push_discard(DiscardedPacket {
                    in_port: ports.0,
                    out_port: ports.1,
                    reason,
                    lost: self.discards.lost,
                    size: packet.len() as u32,
                    header: SampledHeader::of(packet.head(), self.header_size),
                });
            if is_queued {
                self.discards.lost = 0;
            } else {
                self.discards.lost += 1;
            }
        }
    }

    /// Returns the packets counted since the last sample of each port, and the samples lost.
    pub(crate) fn remainders(&self) -> impl Iterator<Item = SampleRemainder> + '_ {
        self.ports.iter().map(|port| SampleRemainder {
            port: port.port,
            pool: port.pool,
            lost: port.lost,
        })
    }
}

/// Returns the index of a port's sampler.
#[inline]
fn find(ports: &[PortSampler], direct: &[u16; Sampler::DIRECT], port: PortNo) -> Option<usize> {
    match direct.get(port.raw() as usize) {
        Some(index) => usize::from(*index).checked_sub(1),
        None => ports.iter().position(|known| known.port == port),
    }
}

/// The part of a sample that is recorded before the packet is processed.
#[derive(Clone, Copy)]
pub(crate) struct IngressRecord {
    size: u32,
    header: SampledHeader,
    tci: Option<u16>,
}
