//! The pipeline of one bridge in one worker: runs bursts through the tables, and samples some of their packets.

use std::sync::Arc;

use millrace_pipeline::{Counters, Forwarding, Processor};
use millrace_types::{PortNo, Time};
use millrace_wire::Packet;

use crate::egress::WorkerEgress;
use crate::events::{Direction, Events};
use crate::io::Burst;
use crate::publish::Reader;
use crate::sampling::{self, WorkerSampling};
use crate::tx_port::TxPorts;

/// The tables of a bridge, and the ports and events that their packets go to, in one worker.
pub(crate) struct BridgePipeline<P> {
    /// The number of the bridge.
    pub(crate) bridge: u32,
    pub(crate) forwarding: Reader<Forwarding>,
    pub(crate) processor: Processor,
    pub(crate) counters: Arc<Counters>,
    pub(crate) events: Arc<Events<P>>,
    pub(crate) tx: TxPorts<P>,
    /// The sampler of the bridge, if it has one.
    pub(crate) sampling: WorkerSampling,
}

impl<P: Packet> BridgePipeline<P> {
    /// Returns the egress of packets that are processed at `now`.
    #[inline]
    pub(crate) fn egress(&mut self, now: Time) -> WorkerEgress<'_, P> {
        WorkerEgress {
            bridge: self.bridge,
            tx: &mut self.tx,
            events: &self.events,
            counters: &self.counters,
            now,
            in_port: None,
            sampler: self.sampling.as_deref_mut(),
        }
    }

    /// Runs a burst of packets that came in at one port through the tables, and samples those whose turn it is. Leaves
    /// `burst` empty.
    #[inline]
    pub(crate) fn process(&mut self, in_port: PortNo, burst: &mut Burst<P>, now: Time) {
        if let Some(sampler) = &mut self.sampling
            && let Some(index) = sampler.advance(in_port, burst.len())
        {
            return self.process_sampled(in_port, burst, index, now);
        }
        self.process_all(in_port, burst, now);
    }

    /// Processes a burst whose packet `index` is the first sampled one: that packet on its own, and those before and behind
    /// it as bursts, so that packets stay in order.
    #[cold]
    #[inline(never)]
    fn process_sampled(&mut self, in_port: PortNo, burst: &mut Burst<P>, index: usize, now: Time) {
        let mut next = Some(index);
        while let Some(index) = next.take() {
            if index > 0 {
                let mut before: Burst<P> = burst.drain(..index).collect();
                self.process_all(in_port, &mut before, now);
            }
            if let Some(packet) = burst.pop_at(0) {
                self.sample(in_port, packet, now);
            }
            if !burst.is_empty()
                && let Some(sampler) = &mut self.sampling
            {
                next = sampler.advance(in_port, burst.len());
            }
        }
        if !burst.is_empty() {
            self.process_all(in_port, burst, now);
        }
    }

    /// Runs one packet through the tables, and samples it.
    fn sample(&mut self, in_port: PortNo, packet: P, now: Time) {
        let forwarding = self.forwarding.enter();
        let egress = WorkerEgress {
            bridge: self.bridge,
            tx: &mut self.tx,
            events: &self.events,
            counters: &self.counters,
            now,
            in_port: Some(in_port),
            sampler: self.sampling.as_deref_mut(),
        };
        let processor = &mut self.processor;
        sampling::sample(egress, in_port, packet, |packet, egress| {
            processor.process_observed(&forwarding, in_port, packet, now, egress)
        });
    }

    /// Runs a burst through the tables without sampling.
    #[inline(always)]
    fn process_all(&mut self, in_port: PortNo, burst: &mut Burst<P>, now: Time) {
        let forwarding = self.forwarding.enter();
        let mut egress = WorkerEgress {
            bridge: self.bridge,
            tx: &mut self.tx,
            events: &self.events,
            counters: &self.counters,
            now,
            in_port: Some(in_port),
            sampler: self.sampling.as_deref_mut(),
        };
        self.processor
            .process_burst(&forwarding, in_port, burst, now, &mut egress);
        burst.clear();
    }

    /// Copies received packets for the captures that select them.
    #[inline]
    pub(crate) fn capture_received(&self, in_port: PortNo, burst: &Burst<P>, now: Time) {
        if !self.tx.captures.is_empty() {
            for packet in burst {
                self.events
                    .tap(&self.tx.captures, in_port, Direction::Rx, now, packet);
            }
        }
    }
}
