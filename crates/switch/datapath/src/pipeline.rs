//! The pipeline of one bridge in one worker: runs bursts through the tables, and samples some of their packets.

use std::sync::Arc;

use millrace_flow::Action;
use millrace_pipeline::{Counters, DropReason, Forwarding, MarkColumn, Processor, Slots};
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
            is_noting: false,
        }
    }

    /// Runs a burst of packets from one ingress port through the tables, and samples the packets that the skip
    /// counter selects. Leaves `burst` empty.
    #[inline]
    pub(crate) fn process(&mut self, in_port: PortNo, burst: &mut Burst<P>, now: Time) {
        if let Some(sampler) = &mut self.sampling
            && let Some(index) = sampler.advance(in_port, burst.len())
        {
            return self.process_sampled(in_port, burst, index, now);
        }
        self.process_all(in_port, burst, now, None);
    }

    /// Runs a burst of packets, some of which their device marked, through the tables, and samples the packets that the skip
    /// counter selects. Leaves `burst` empty.
    pub(crate) fn process_marked(
        &mut self,
        in_port: PortNo,
        (burst, column): (&mut Burst<P>, &MarkColumn),
        slots: &mut Slots,
        now: Time,
    ) {
        if let Some(sampler) = &mut self.sampling
            && let Some(index) = sampler.advance(in_port, burst.len())
        {
            slots.skip(burst.len());
            return self.process_sampled(in_port, burst, index, now);
        }
        let forwarding = self.forwarding.enter();
        let mut egress = WorkerEgress {
            bridge: self.bridge,
            tx: &mut self.tx,
            events: &self.events,
            counters: &self.counters,
            now,
            in_port: Some(in_port),
            sampler: self.sampling.as_deref_mut(),
            sampled: None,
            is_noting: false,
        };
        self.processor
            .process_marked_burst(&forwarding, in_port, (burst, column), slots, now, &mut egress);
        burst.clear();
    }

    /// Processes a burst whose packet `index` is the first sampled one. Splits the burst only before further sampled
    /// packets, and around a sampled packet that must be processed alone.
    #[cold]
    #[inline(never)]
    fn process_sampled(&mut self, in_port: PortNo, burst: &mut Burst<P>, mut index: usize, now: Time) {
        loop {
            let behind = burst.len() - index - 1;
            let sampler = self.sampling.as_ref();
            let next = sampler.and_then(|sampler| sampler.peek(in_port, behind));
            let rest: Burst<P> = match next {
                Some(next) => burst.drain(index + 1 + next..).collect(),
                None => Burst::new(),
            };
            if !self.sample(in_port, burst, index, now) {
                self.sample_alone(in_port, burst, index, now);
            }
            let sampler = self.sampling.as_mut();
            match sampler.and_then(|sampler| sampler.advance(in_port, behind)) {
                None => return,
                Some(_) => (*burst, index) = (rest, 0),
            }
        }
    }

    /// Processes packet `index` of a burst as a burst of its own, and those before and after it as bursts, so that packets stay in
    /// order.
    #[inline(never)]
    fn sample_alone(&mut self, in_port: PortNo, burst: &mut Burst<P>, index: usize, now: Time) {
        let mut behind: Burst<P> = burst.drain(index + 1..).collect();
        let mut packet: Burst<P> = burst.drain(index..).collect();
        self.process_all(in_port, burst, now, None);
        self.sample(in_port, &mut packet, 0, now);
        self.process_all(in_port, &mut behind, now, None);
    }

    /// Runs a burst through the tables, and samples packet `index` of it. Returns false, and leaves the burst as it is, if that
    /// packet must be processed alone.
    fn sample(&mut self, in_port: PortNo, burst: &mut Burst<P>, index: usize, now: Time) -> bool {
        let Some(sampler) = &self.sampling else {
            return false;
        };
        let ingress = sampler.ingress_record(&burst[index]);
        let mut destinations = SampledDestinations::default();
        if !self.process_all(in_port, burst, now, Some((index, &mut destinations))) {
            return false;
        }
        let observed = self.processor.end_observation();
        let outcome = destinations.outcome(observed.drop_reason);
        if let Some(sampler) = &mut self.sampling {
            sampler.push(in_port, &ingress, outcome, observed);
        }
        true
    }

    /// Runs a burst through the tables. `sampled` has the index of the sampled packet, if there is one, and gets its destinations.
    /// Returns false, and leaves the burst as it is, if that packet must be processed alone.
    ///
    /// Never inlined: all bursts take the same code, so that a sampled packet finds it in the instruction cache.
    #[inline(never)]
    fn process_all(
        &mut self,
        in_port: PortNo,
        burst: &mut Burst<P>,
        now: Time,
        sampled: Option<(usize, &mut SampledDestinations)>,
    ) -> bool {
        let forwarding = self.forwarding.enter();
        let mut is_noting = false;
        let sampled = match sampled {
            None => None,
            Some((index, destinations)) => {
                is_noting = burst.len() == 1;
                if !is_noting && !Processor::keeps_bursts(&forwarding, in_port) {
                    return false;
                }
                self.processor.begin_observation((!is_noting).then_some(index));
                Some(destinations)
            }
        };
        let mut egress = WorkerEgress {
            bridge: self.bridge,
            tx: &mut self.tx,
            events: &self.events,
            counters: &self.counters,
            now,
            in_port: Some(in_port),
            sampler: self.sampling.as_deref_mut(),
            sampled,
            is_noting,
        };
        self.processor
            .process_burst(&forwarding, in_port, burst, now, &mut egress);
        burst.clear();
        true
    }

    /// Forwards a burst of packets of a logical port by NORMAL, without the tables. Leaves `burst` empty.
    pub(crate) fn forward(&mut self, in_port: PortNo, burst: &mut Burst<P>, now: Time) {
        let forwarding = self.forwarding.enter();
        let mut egress = WorkerEgress {
            bridge: self.bridge,
            tx: &mut self.tx,
            events: &self.events,
            counters: &self.counters,
            now,
            in_port: Some(in_port),
            sampler: self.sampling.as_deref_mut(),
            sampled: None,
            is_noting: false,
        };
        self.processor
            .forward_burst(&forwarding, in_port, burst, now, &mut egress);
        burst.clear();
    }

    /// Sends a packet that no port received through a port.
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
            is_noting: false,
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

    /// Sends a frame of a link protocol ahead of all packets that wait for the port.
    pub(crate) fn send_first(&mut self, port: PortNo, packet: P, now: Time) {
        let captures = self.tx.captures.shared();
        let Some(tx) = self.tx.find(port) else {
            self.counters.drops.add(DropReason::NoSuchPort, 1);
            return;
        };
        if let Some(captures) = captures {
            self.events
                .tap(&captures, tx.captured_as(), Direction::Tx, now, &packet);
        }
        let known_as = tx.captured_as();
        let forwarding = self.forwarding.enter();
        if forwarding.mirrors().is_some() {
            let mut egress = WorkerEgress {
                bridge: self.bridge,
                tx: &mut self.tx,
                events: &self.events,
                counters: &self.counters,
                now,
                in_port: None,
                sampler: None,
                sampled: None,
                is_noting: false,
            };
            self.processor
                .mirror_sent(&forwarding, known_as, &packet, now, &mut egress);
        }
        let Some(tx) = self.tx.find(port) else { return };
        let dropped = tx.send_first(packet);
        self.counters.drops.add(DropReason::TransmitFull, dropped);
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
