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
    /// The port at which the packets arrived; `None` for packets that other workers processed.
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
        if let Some(captures) = captures.filter(|_| !tx.is_sent_elsewhere()) {
            for packet in burst.iter() {
                self.events
                    .tap(&captures, tx.captured_as(), Direction::Tx, self.now, packet);
            }
        }
        if expects_gso && matches!(tx.path, TxPath::Scheduled(_)) && has_gso(burst) {
            for packet in burst.drain(..) {
                // A drop is counted already.
                let _dropped = self.enqueue_segmented(port, queue, packet);
            }
            return;
        }
        let reason = match &mut tx.path {
            TxPath::Scheduled(scheduled) => {
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
            TxPath::Lag(_) => return self.send_to_members(port, queue, burst),
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

    /// Sends packets of a LAG by its members, in order for each of them.
    #[inline(never)]
    fn send_to_members(&mut self, lag: PortNo, queue: Option<QueueId>, burst: &mut Burst<P>) {
        while !burst.is_empty() {
            let Some(TxPath::Lag(distributor)) = self.tx.find(lag).map(|tx| &tx.path) else {
                return;
            };
            let (mut member, mut of_member, mut others) = (None, Burst::new(), Burst::new());
            for packet in burst.drain(..) {
                let found = distributor.member_of(&packet);
                if of_member.is_empty() || found == member {
                    member = found;
                    of_member.push(packet);
                } else {
                    others.push(packet);
                }
            }
            *burst = others;
            match member {
                Some(member) => self.transmit_burst(member, queue, &mut of_member),
                None => {
                    self.drop_undistributed(lag, of_member.len() as u64);
                    self.record_discards(Some(lag), DropReason::LagNotDistributing, &of_member);
                    P::discard(&mut of_member);
                }
            }
        }
    }

    /// Counts packets of a LAG that no member sends.
    #[cold]
    fn drop_undistributed(&mut self, lag: PortNo, packets: u64) {
        self.counters.drops.add(DropReason::LagNotDistributing, packets);
        if let Some(tx) = self.tx.find(lag) {
            tx.counters.tx_dropped.add(packets);
        }
    }

    /// Passes a packet to the scheduler of a port; a GSO packet is segmented first. Returns the reason if the packet, or
    /// all its segments, were dropped.
    #[inline(never)]
    fn enqueue_segmented(&mut self, port: PortNo, queue: Option<QueueId>, packet: P) -> Option<DropReason> {
        let (counters, ports, now) = (self.counters, (self.in_port, Some(port)), self.now);
        let tx = self.tx.find(port)?;
        let TxPath::Scheduled(scheduled) = &mut tx.path else {
            return None;
        };
        let mut enqueued = 0;
        let unmade = each_segment(packet, counters, |segment| {
            match scheduled.scheduler.enqueue(queue, segment, now) {
                Ok(()) => enqueued += 1,
                Err(segment) => {
                    tx.counters.tx_dropped.add(1);
                    counters.drops.add(DropReason::QueueFull, 1);
                    record_discards(&mut self.sampler, ports, DropReason::QueueFull, &[segment], now);
                }
            }
        });
        (enqueued == 0).then(|| unmade.unwrap_or(DropReason::QueueFull))
    }

    /// Records dropped packets for sFlow, if sFlow is on. `out_port` is the output port that dropped them.
    #[inline]
    fn record_discards(&mut self, out_port: Option<PortNo>, reason: DropReason, packets: &[P]) {
        let ports = (self.in_port, out_port);
        record_discards(&mut self.sampler, ports, reason, packets, self.now);
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

    /// Sends a packet by a member of a LAG.
    #[inline(never)]
    fn send_by_member(&mut self, member: PortNo, queue: Option<QueueId>, packet: P) -> Option<DropReason> {
        // The sample names the LAG.
        let is_noting = core::mem::replace(&mut self.is_noting, false);
        let mut burst = Burst::new();
        burst.push(packet);
        let dropped = |egress: &mut Self| egress.tx.find(member).map(|tx| tx.counters.tx_dropped.read());
        let before = dropped(self);
        self.transmit_burst(member, queue, &mut burst);
        self.is_noting = is_noting;
        (before != dropped(self)).then_some(DropReason::TransmitFull)
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
        if let Some(captures) = captures.filter(|_| !tx.is_sent_elsewhere()) {
            self.events
                .tap(&captures, tx.captured_as(), Direction::Tx, self.now, &packet);
        }
        match &mut tx.path {
            TxPath::Lag(distributor) => {
                let Some(member) = distributor.member_of(&packet) else {
                    self.drop_undistributed(port, 1);
                    self.record_discards(Some(port), DropReason::LagNotDistributing, &[packet]);
                    return Some(DropReason::LagNotDistributing);
                };
                self.send_by_member(member, queue, packet)
            }
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
            TxPath::Scheduled(_) if expects_gso && packet.segment_size().is_some() => {
                self.enqueue_segmented(port, queue, packet)
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

/// Records dropped packets for sFlow, if sFlow is on. `ports` are their input port and the output port that dropped them.
#[inline]
fn record_discards<P: Packet>(
    sampler: &mut Option<&mut Sampler>,
    ports: (Option<PortNo>, Option<PortNo>),
    reason: DropReason,
    packets: &[P],
    now: Time,
) {
    if let Some(sampler) = sampler
        && sampler.records_discards()
    {
        sampler.record_discards(ports, packets, reason, now);
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
                self.events
                    .tap(&captures, tx.captured_as(), Direction::Tx, self.now, packet);
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
