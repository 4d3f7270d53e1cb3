//! Copies of packets for mirrors: made as packets arrive and as they leave, sent afterwards.

use arrayvec::ArrayVec;
use millrace_flow::classify::BURST;
use millrace_types::{PortNo, QueueId, Time, Vid};
use millrace_wire::segment::GsoLayout;
use millrace_wire::{Packet, ethernet, rewrite};

use super::header::Effect;
use super::normal::{Arrival, retag};
use super::observe::Observer;
use super::packet_source::PacketSource;
use super::run::Run;
use crate::mirror::{Mirror, MirrorOutput, Mirrors};
use crate::{DropReason, Egress, Forwarding, Learn, PacketInInfo, Port, PortConfig};

/// The bridge and the time of a burst with mirrors.
#[derive(Clone, Copy)]
pub(super) struct MirrorContext<'a> {
    pub(super) fwd: &'a Forwarding,
    pub(super) mirrors: &'a Mirrors,
    pub(super) now: Time,
}

/// The part of the pipeline that packets pass.
#[derive(Clone, Copy)]
pub(super) enum Route {
    Tables,
    /// NORMAL, without the tables.
    Normal,
}

/// A copy that waits until its packet is processed.
pub(super) struct WaitingCopy<P> {
    /// The bit of the mirror.
    pub(super) mirror: u32,
    /// The VLAN of the packet.
    pub(super) vid: Vid,
    pub(super) arrival: Arrival,
    pub(super) packet: P,
}

/// The copies of a burst or of a packet that were not sent yet.
pub(super) struct Copies<'a, P> {
    pub(super) context: MirrorContext<'a>,
    pub(super) waiting: ArrayVec<WaitingCopy<P>, BURST>,
    /// Copies for which no buffer was free.
    pub(super) without_buffer: u64,
}

impl<'a, P: Packet> Copies<'a, P> {
    pub(super) fn new(context: MirrorContext<'a>) -> Copies<'a, P> {
        Copies {
            context,
            waiting: ArrayVec::new(),
            without_buffer: 0,
        }
    }

    /// Copies a packet of a port for those mirrors of `wanted` that select its VLAN. A mirror whose output has a copy of the
    /// packet, by its bit in `seen`, makes none.
    pub(super) fn make(&mut self, wanted: u32, seen: &mut u32, port: &Port, packet: &P) {
        let mut wanted = wanted & !*seen;
        if wanted == 0 {
            return;
        }
        let tag = rewrite::vlan_tci(packet.head()).map(Vid::from_tci);
        // A port has no mirrored packets of VLANs that it does not carry.
        let Some(vid) = port.vlan.classify(tag) else {
            return;
        };
        let arrival = Arrival::of(packet.head(), tag, Some(port));
        let mirrors = self.context.mirrors;
        while wanted != 0 {
            let bit = wanted.trailing_zeros();
            wanted &= wanted - 1;
            let Some(mirror) = mirrors.mirror(bit).filter(|mirror| mirror.selects_vlan(vid)) else {
                continue;
            };
            *seen |= mirrors.same_output(bit);
            wanted &= !*seen;
            if mirror.output == MirrorOutput::Vlan(vid) || is_kept_from_vlans(mirror, packet.head()) {
                continue;
            }
            mirror.counters.selected(packet.len());
            let copy = packet.try_clone().map(|packet| WaitingCopy {
                mirror: bit,
                vid,
                arrival,
                packet,
            });
            if copy.is_none_or(|copy| self.waiting.try_push(copy).is_err()) {
                self.without_buffer += 1;
                mirror.counters.lost(1);
            }
        }
    }
}

/// Returns true for frames to link-local group addresses, which other switches would take from the output VLAN.
fn is_kept_from_vlans(mirror: &Mirror, head: &[u8]) -> bool {
    matches!(mirror.output, MirrorOutput::Vlan(_))
        && ethernet::View::new(head).is_ok_and(|frame| frame.dst().is_reserved_link_local())
}

/// An egress that copies the packets of one received packet for mirrors.
pub(super) struct MirrorEgress<'a, 'c, P> {
    pub(super) egress: &'a mut dyn Egress<P>,
    pub(super) copies: &'a mut Copies<'c, P>,
    pub(super) seen: u32,
}

impl<P: Packet> MirrorEgress<'_, '_, P> {
    fn copy_sent(&mut self, number: PortNo, packets: &[P]) {
        let MirrorContext { fwd, mirrors, .. } = self.copies.context;
        let wanted = mirrors.sent_by(number);
        if wanted & !self.seen != 0
            && let Some(port) = fwd.port(number)
        {
            for packet in packets {
                self.copies.make(wanted, &mut self.seen, port, packet);
            }
        }
    }
}

impl<P: Packet> Egress<P> for MirrorEgress<'_, '_, P> {
    fn transmit(&mut self, port: PortNo, queue: Option<QueueId>, packet: P) {
        self.copy_sent(port, core::slice::from_ref(&packet));
        self.egress.transmit(port, queue, packet);
    }

    fn transmit_burst(&mut self, port: PortNo, queue: Option<QueueId>, burst: &mut ArrayVec<P, BURST>) {
        self.copy_sent(port, burst);
        self.egress.transmit_burst(port, queue, burst);
    }

    fn encapsulating(&mut self, port: PortNo, packet: &P) {
        self.copy_sent(port, core::slice::from_ref(packet));
        self.egress.encapsulating(port, packet);
    }

    fn decapsulated(&mut self, number: PortNo, packets: &[P]) {
        let MirrorContext { fwd, mirrors, .. } = self.copies.context;
        let wanted = mirrors.received_at(number);
        if let Some(port) = fwd.port(number).filter(|port| port.ingress_block().is_none()) {
            // The datagrams of a train are packets of their own.
            let before = self.seen;
            for packet in packets {
                let mut seen = before;
                self.copies.make(wanted, &mut seen, port, packet);
                self.seen |= seen;
            }
        }
        self.egress.decapsulated(number, packets);
    }

    fn packet_in(&mut self, info: PacketInInfo, packet: P) {
        self.egress.packet_in(info, packet);
    }

    fn learn(&mut self, learn: Learn) {
        self.egress.learn(learn);
    }

    fn traced(&mut self, trace: u64, in_port: PortNo, packet: P) {
        self.egress.traced(trace, in_port, packet);
    }

    fn neighbour(&mut self, underlay: PortNo, packet: P) {
        self.egress.neighbour(underlay, packet);
    }

    fn begin_notes(&mut self) {
        self.egress.begin_notes();
    }

    fn end_notes(&mut self) {
        self.egress.end_notes();
    }

    fn oam(&mut self, port: PortNo, packet: P) {
        self.egress.oam(port, packet);
    }

    fn dropped(&mut self, reason: DropReason, packet: P) {
        self.egress.dropped(reason, packet);
    }

    fn dropped_burst(&mut self, reason: DropReason, burst: &mut ArrayVec<P, BURST>) {
        self.egress.dropped_burst(reason, burst);
    }
}

impl<P: Packet, E: Egress<P>, O: Observer<P>> Run<'_, P, E, O> {
    /// Sends a copy of a packet of a VLAN to the output of a mirror.
    pub(super) fn send_copy(&mut self, mirror: &Mirror, copy: WaitingCopy<P>) {
        let WaitingCopy {
            vid, arrival, packet, ..
        } = copy;
        match mirror.output {
            MirrorOutput::Port(number) => match self.fwd.port(number) {
                None => self.drop(PacketSource::Move(packet), DropReason::NoSuchPort),
                Some(port) => match port.copy_block() {
                    Some(reason) => self.drop(PacketSource::Move(packet), reason),
                    None => self.send_copy_to(port, mirror, (vid, &arrival), packet),
                },
            },
            MirrorOutput::Vlan(output) => {
                let ports = self.fwd.port_map().iter();
                let mut ports = ports.filter(|port| {
                    port.vlan.carries(output)
                        && !port.config.has(PortConfig::NO_FLOOD)
                        && port.egress_block().is_none()
                });
                let Some(mut port) = ports.next() else { return };
                for next in ports {
                    match packet.try_clone() {
                        Some(copy) => self.send_copy_to(port, mirror, (output, &arrival), copy),
                        None => self.count_drop(DropReason::NoBuffer),
                    }
                    port = next;
                }
                self.send_copy_to(port, mirror, (output, &arrival), packet);
            }
        }
    }

    /// Sends a copy out of a port, tagged as the port carries its VLAN, and truncated.
    fn send_copy_to(&mut self, port: &Port, mirror: &Mirror, (vid, arrival): (Vid, &Arrival), mut packet: P) {
        if retag(&mut packet, arrival, vid, port) != Effect::Done {
            return self.drop(PacketSource::Move(packet), DropReason::NoHeadroom);
        }
        let Some(snaplen) = mirror.snaplen.map(usize::from) else {
            return self.leave_as_copy(port, Some(packet));
        };
        if packet.segment_size().is_none() {
            return self.leave_as_copy(port, truncated(packet, snaplen));
        }
        // The monitor sees the beginning of each segment.
        let Some(gso) = GsoLayout::of(&packet) else {
            return self.drop(PacketSource::Move(packet), DropReason::NotSegmentable);
        };
        for number in 0..gso.count() {
            let segment = gso.segment(&packet, number);
            self.leave_as_copy(port, segment.and_then(|segment| truncated(segment, snaplen)));
        }
    }

    fn leave_as_copy(&mut self, port: &Port, packet: Option<P>) {
        match (packet, self.tunnel(port.number)) {
            (None, _) => self.count_drop(DropReason::NoBuffer),
            (Some(packet), None) => self.leave(port.number, None, packet),
            (Some(packet), Some(tunnel)) => self.encapsulate(tunnel, 0, None, packet),
        }
    }
}

/// Returns the first `size` bytes of a packet; `None` if that needs a buffer and none is free.
fn truncated<P: Packet>(mut packet: P, size: usize) -> Option<P> {
    if packet.truncate(size) {
        return Some(packet);
    }
    packet.gso_segment(&[], 0, size)
}
