//! The destinations of packets after the pipeline: transmit buffers of the worker's own ports, inboxes of the workers
//! that own the other ports, and the event queues of the control side.

use millrace_pipeline::{Counters, DropReason, Egress, Learn, PacketInInfo};
use millrace_types::{PortNo, QueueId, Time};
use millrace_wire::Packet;

use crate::events::{CapturedPacket, Direction, Events};
use crate::handoff::Destination;
use crate::io::Burst;
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
}

impl<P: Packet> WorkerEgress<'_, P> {
    /// Passes packets to the port's scheduler, or to the worker that sends for this one.
    fn forward_or_enqueue(&mut self, port: PortNo, queue: Option<QueueId>, burst: &mut Burst<P>) {
        let expects_gso = self.tx.expects_gso;
        let captures = self.tx.captures.shared();
        let Some(tx) = self.tx.find(port) else { return };
        if let Some(captures) = captures {
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
            // The caller sends these itself.
            TxPath::Queue(_) => return,
        };
        if !burst.is_empty() {
            tx.counters.tx_dropped.add(burst.len() as u64);
            self.counters.drops.add(reason, burst.len() as u64);
            P::discard(burst);
        }
    }
}

impl<P: Packet> Egress<P> for WorkerEgress<'_, P> {
    #[inline]
    fn transmit(&mut self, port: PortNo, queue: Option<QueueId>, packet: P) {
        let expects_gso = self.tx.expects_gso;
        let captures = self.tx.captures.shared();
        let Some(tx) = self.tx.find(port) else {
            self.counters.drops.add(DropReason::NoSuchPort, 1);
            return;
        };
        if let Some(captures) = captures {
            self.events.tap(&captures, port, Direction::Tx, self.now, &packet);
        }
        match &mut tx.path {
            TxPath::Queue(_) => {
                if tx.buffer.is_full() {
                    tx.flush();
                    if tx.buffer.is_full() {
                        tx.counters.tx_dropped.add(1);
                        self.counters.drops.add(DropReason::TransmitFull, 1);
                        return;
                    }
                }
                tx.buffer.push(packet);
                self.tx.waiting = Some(port);
            }
            TxPath::Worker(inbox) => {
                let to = Destination {
                    bridge: self.bridge,
                    port,
                    queue,
                };
                if inbox.put_one(to, packet).is_err() {
                    tx.counters.tx_dropped.add(1);
                    self.counters.drops.add(DropReason::TransmitFull, 1);
                }
            }
            TxPath::Scheduled(scheduled) if expects_gso => {
                scheduled.enqueue_segmented(queue, packet, self.now, &tx.counters, self.counters);
            }
            TxPath::Scheduled(scheduled) => {
                if scheduled.scheduler.enqueue(queue, packet, self.now).is_err() {
                    tx.counters.tx_dropped.add(1);
                    self.counters.drops.add(DropReason::QueueFull, 1);
                }
            }
        }
    }

    #[inline]
    fn transmit_burst(&mut self, port: PortNo, queue: Option<QueueId>, burst: &mut Burst<P>) {
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
        let waits = !tx.buffer.is_empty();
        if !burst.is_empty() {
            tx.counters.tx_dropped.add(burst.len() as u64);
            self.counters
                .drops
                .add(DropReason::TransmitFull, burst.len() as u64);
            P::discard(burst);
        }
        if waits {
            self.tx.waiting = Some(port);
        }
    }

    #[inline]
    fn dropped_burst(&mut self, _: DropReason, burst: &mut Burst<P>) {
        P::discard(burst);
    }

    fn packet_in(&mut self, info: PacketInInfo, packet: P) {
        each_segment(packet, self.counters, |packet| {
            if !self.events.push_packet_in(info, packet) {
                self.counters.drops.add(DropReason::PacketInFull, 1);
            }
        });
    }

    fn learn(&mut self, learn: Learn) {
        self.events.push_learn(learn);
    }

    fn neighbour(&mut self, underlay: PortNo, packet: P) {
        self.events.push_neighbour(underlay, packet);
    }

    fn oam(&mut self, port: PortNo, packet: P) {
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
