//! The destinations of packets after the pipeline: transmit buffers of the worker's own ports, inboxes of the workers
//! that own the other ports, and the event queues of the control side.

use millrace_pipeline::{Counters, DropReason, Egress, Learn, PacketInInfo};
use millrace_types::{PortNo, QueueId, Time};
use millrace_wire::{Packet, rewrite};

use crate::events::{CapturedPacket, Direction, Events};
use crate::handoff::Destination;
use crate::io::Burst;
use crate::sampling::{SampledDestinations, Sampler};
use crate::segmentation::{each_segment, has_gso};
use crate::tx_port::{TxPath, TxPorts};

/// The egress of the pipeline of one bridge in one worker.
pub(crate) struct WorkerEgress<'a, P> {
    pub(crate) bridge: u32,
    pub(crate) tx: &'a mut TxPorts<P>,
    pub(crate) events: &'a Events<P>,
    /// The counters of this worker, for drops.
    pub(crate) counters: &'a Counters,
    pub(crate) now: Time,
    /// The port at which the packets came in; `None` for packets that other workers processed.
    pub(crate) in_port: Option<PortNo>,
    /// The sampler, for records of dropped packets, if the bridge has one.
    pub(crate) sampler: Option<&'a mut Sampler>,
    /// The record of destinations, if a packet of the burst is sampled.
    pub(crate) sampled: Option<&'a mut SampledDestinations>,
    /// True while the pipeline sends the sampled packet.
    pub(crate) is_noting: bool,
}

impl<P: Packet> WorkerEgress<'_, P> {
    /// Passes packets to the port's scheduler, or to the worker that owns the port.
    fn forward_or_enqueue(&mut self, port: PortNo, queue: Option<QueueId>, burst: &mut Burst<P>) {
        let expects_gso = self.tx.expects_gso;
        let captures = self.tx.captures.shared();
        let Some(tx) = self.tx.find(port) else { return };
        if let Some(captures) = captures.filter(|_| !tx.is_of_other_worker()) {
            for packet in burst.iter() {
                self.events.tap(&captures, port, Direction::Tx, self.now, packet);
            }
        }
        let reason = match &mut tx.path {
            TxPath::Scheduled(scheduled) => {
                if expects_gso && has_gso(burst) {
                    for packet in burst.drain(..) {
                        scheduled.enqueue_segmented(queue, packet, self.now, &tx.counters, self.counters);
                    }
                }
                scheduled.scheduler.enqueue_burst(queue, burst, self.now);
                DropReason::QueueFull
            }
            TxPath::Worker(inbox) => {
                let to = Destination {
                    bridge: self.bridge,
                    port,
                    queue,
                };
                inbox.put(to, burst);
                DropReason::TransmitFull
            }
            // The caller sends packets of these ports itself.
            TxPath::Queue(_) => return,
        };
        if !burst.is_empty() {
            tx.counters.tx_dropped.add(burst.len() as u64);
            self.counters.drops.add(reason, burst.len() as u64);
            self.record_discards(Some(port), reason, burst);
            P::discard(burst);
        }
    }

    /// Records dropped packets for sFlow, if sFlow is on. `out_port` is the output port that dropped them.
    #[inline]
    fn record_discards(&mut self, out_port: Option<PortNo>, reason: DropReason, packets: &[P]) {
        if let Some(sampler) = &mut self.sampler
            && sampler.records_discards()
        {
            sampler.record_discards((self.in_port, out_port), packets, reason, self.now);
        }
    }

    /// Sends the sampled packet or copies of it, and records their destinations.
    #[cold]
    #[inline(never)]
    fn send_sampled(&mut self, port: PortNo, queue: Option<QueueId>, burst: &mut Burst<P>) {
        for packet in burst.drain(..) {
            let tci = rewrite::vlan_tci(packet.head());
            let refused = self.send(port, queue, packet);
            if let Some(sampled) = &mut self.sampled {
                sampled.note_port(port, tci, refused);
            }
        }
    }

    /// Records that the switch itself takes the packet, if the packet is sampled.
    #[inline]
    fn note_taken(&mut self) {
        if let Some(sampled) = self.sampled.as_deref_mut().filter(|_| self.is_noting) {
            sampled.note_taken();
        }
    }

    /// Sends a packet out of a port. Returns the reason if the packet was dropped.
    #[inline(always)]
    pub(crate) fn send(&mut self, port: PortNo, queue: Option<QueueId>, packet: P) -> Option<DropReason> {
        let expects_gso = self.tx.expects_gso;
        let captures = self.tx.captures.shared();
        let Some(tx) = self.tx.find(port) else {
            self.counters.drops.add(DropReason::NoSuchPort, 1);
            return Some(DropReason::NoSuchPort);
        };
        if let Some(captures) = captures.filter(|_| !tx.is_of_other_worker()) {
            self.events.tap(&captures, port, Direction::Tx, self.now, &packet);
        }
        match &mut tx.path {
            TxPath::Queue(_) => {
                if tx.buffer.is_full() {
                    tx.flush();
                    if tx.buffer.is_full() {
                        tx.counters.tx_dropped.add(1);
                        self.counters.drops.add(DropReason::TransmitFull, 1);
                        self.record_discards(Some(port), DropReason::TransmitFull, &[packet]);
                        return Some(DropReason::TransmitFull);
                    }
                }
                tx.buffer.push(packet);
                self.tx.last_output = Some(port);
                None
            }
            TxPath::Worker(inbox) => {
                let to = Destination {
                    bridge: self.bridge,
                    port,
                    queue,
                };
                let packet = inbox.put_one(to, packet).err()?;
                tx.counters.tx_dropped.add(1);
                self.counters.drops.add(DropReason::TransmitFull, 1);
                self.record_discards(Some(port), DropReason::TransmitFull, &[packet]);
                Some(DropReason::TransmitFull)
            }
            TxPath::Scheduled(scheduled) if expects_gso => {
                scheduled.enqueue_segmented(queue, packet, self.now, &tx.counters, self.counters);
                None
            }
            TxPath::Scheduled(scheduled) => {
                let packet = scheduled.scheduler.enqueue(queue, packet, self.now).err()?;
                tx.counters.tx_dropped.add(1);
                self.counters.drops.add(DropReason::QueueFull, 1);
                self.record_discards(Some(port), DropReason::QueueFull, &[packet]);
                Some(DropReason::QueueFull)
            }
        }
    }
}

impl<P: Packet> Egress<P> for WorkerEgress<'_, P> {
    #[inline]
    fn transmit(&mut self, port: PortNo, queue: Option<QueueId>, packet: P) {
        if self.is_noting {
            let mut burst = Burst::new();
            burst.push(packet);
            return self.send_sampled(port, queue, &mut burst);
        }
        // A drop is counted already.
        let _dropped = self.send(port, queue, packet);
    }

    #[inline]
    fn transmit_burst(&mut self, port: PortNo, queue: Option<QueueId>, burst: &mut Burst<P>) {
        if self.is_noting {
            return self.send_sampled(port, queue, burst);
        }
        let captures = self.tx.captures.shared();
        let Some(tx) = self.tx.find(port) else {
            self.counters
                .drops
                .add(DropReason::NoSuchPort, burst.len() as u64);
            return P::discard(burst);
        };
        let TxPath::Queue(_) = tx.path else {
            return self.forward_or_enqueue(port, queue, burst);
        };
        if let Some(captures) = captures {
            for packet in burst.iter() {
                self.events.tap(&captures, port, Direction::Tx, self.now, packet);
            }
        }
        tx.accept(burst);
        if !burst.is_empty() {
            tx.counters.tx_dropped.add(burst.len() as u64);
            self.counters
                .drops
                .add(DropReason::TransmitFull, burst.len() as u64);
            self.record_discards(Some(port), DropReason::TransmitFull, burst);
            P::discard(burst);
        }
        self.tx.last_output = Some(port);
    }

    #[inline]
    fn dropped_burst(&mut self, reason: DropReason, burst: &mut Burst<P>) {
        self.record_discards(None, reason, burst);
        P::discard(burst);
    }

    fn dropped(&mut self, reason: DropReason, packet: P) {
        self.record_discards(None, reason, &[packet]);
    }

    fn packet_in(&mut self, info: PacketInInfo, packet: P) {
        self.note_taken();
        each_segment(packet, self.counters, |packet| {
            if !self.events.push_packet_in(info, packet) {
                self.counters.drops.add(DropReason::PacketInFull, 1);
            }
        });
    }

    fn begin_notes(&mut self) {
        self.is_noting = self.sampled.is_some();
    }

    fn end_notes(&mut self) {
        self.is_noting = false;
    }

    fn learn(&mut self, learn: Learn) {
        self.events.push_learn(learn);
    }

    fn neighbour(&mut self, underlay: PortNo, packet: P) {
        self.note_taken();
        self.events.push_neighbour(underlay, packet);
    }

    fn oam(&mut self, port: PortNo, packet: P) {
        self.note_taken();
        if !self.events.push_oam(port, self.now, packet) {
            self.counters.drops.add(DropReason::OamFull, 1);
        }
    }

    fn traced(&mut self, trace: u64, in_port: PortNo, packet: P) {
        let direction = Direction::Traced(trace);
        self.events.push_captured(CapturedPacket {
            port: in_port,
            direction,
            captures: 0,
            time: self.now,
            packet,
        });
    }
}
