//! The pipeline of one bridge in one worker: runs bursts through the tables, and samples some of their packets.

use std::sync::Arc;

use millrace_flow::Action;
use millrace_pipeline::{Counters, Forwarding, Processor};
use millrace_types::{PortNo, Time};
use millrace_wire::Packet;

use crate::egress::WorkerEgress;
use crate::events::{Direction, Events};
use crate::io::Burst;
use crate::publish::Reader;
use crate::sampling::{SampledDestinations, WorkerSampling};
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
            sampled: None,
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
        self.process_all(in_port, burst, now, None);
    }

    /// Processes a burst whose packet `index` is the first sampled one: that packet as a burst of its own, and those before
    /// and behind it as bursts, so that packets stay in order.
    #[cold]
    #[inline(never)]
    fn process_sampled(&mut self, in_port: PortNo, burst: &mut Burst<P>, index: usize, now: Time) {
        let mut next = Some(index);
        let (mut packets, mut part) = (burst.take().into_iter(), Burst::new());
        while let Some(index) = next.take() {
            part.extend(packets.by_ref().take(index));
            if !part.is_empty() {
                self.process_all(in_port, &mut part, now, None);
            }
            part.extend(packets.next());
            self.sample(in_port, &mut part, now);
            if packets.len() != 0
                && let Some(sampler) = &mut self.sampling
            {
                next = sampler.advance(in_port, packets.len());
            }
        }
        part.extend(packets);
        if !part.is_empty() {
            self.process_all(in_port, &mut part, now, None);
        }
    }

    /// Runs one packet through the tables, and samples it.
    fn sample(&mut self, in_port: PortNo, packet: &mut Burst<P>, now: Time) {
        let (Some(sampler), Some(sampled)) = (&self.sampling, packet.first()) else {
            return;
        };
        let sighting = sampler.sighting(sampled);
        let mut destinations = SampledDestinations::default();
        self.processor.begin_observation();
        self.process_all(in_port, packet, now, Some(&mut destinations));
        let observed = self.processor.end_observation();
        let outcome = destinations.outcome(observed.drop_reason);
        if let Some(sampler) = &mut self.sampling {
            sampler.push(in_port, &sighting, outcome, observed);
        }
    }

    /// Runs a burst through the tables. `sampled` gets the destinations of the packet if the burst is one sampled packet.
    /// Never inlined: all bursts take the same code, so that a sampled packet finds it in the instruction cache.
    #[inline(never)]
    fn process_all(
        &mut self,
        in_port: PortNo,
        burst: &mut Burst<P>,
        now: Time,
        sampled: Option<&mut SampledDestinations>,
    ) {
        let forwarding = self.forwarding.enter();
        let mut egress = WorkerEgress {
            bridge: self.bridge,
            tx: &mut self.tx,
            events: &self.events,
            counters: &self.counters,
            now,
            in_port: Some(in_port),
            sampler: self.sampling.as_deref_mut(),
            sampled,
        };
        self.processor
            .process_burst(&forwarding, in_port, burst, now, &mut egress);
        burst.clear();
    }

    /// Sends a packet that no port received out of a port.
    pub(crate) fn output(&mut self, port: PortNo, packet: P, now: Time) {
        let forwarding = self.forwarding.enter();
        let mut egress = WorkerEgress {
            bridge: self.bridge,
            tx: &mut self.tx,
            events: &self.events,
            counters: &self.counters,
            now,
            in_port: None,
            sampler: self.sampling.as_deref_mut(),
            sampled: None,
        };
        let actions = [Action::output(port)];
        self.processor.packet_out(
            &forwarding,
            PortNo::CONTROLLER,
            &actions,
            packet,
            now,
            &mut egress,
        );
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
