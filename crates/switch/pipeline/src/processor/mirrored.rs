//! Bursts of a bridge with mirrors: copies of packets as they arrive and as they leave, at most one for each output of
//! mirrors.
//!
//! ```text
//! burst -> copies at ingress -> one packet at a time -> tables, NORMAL -> MirrorEgress -> the egress of the worker
//!                |                                                            | copies at egress
//!                +------------------------------------------------------------+--> output ports, output VLANs
//! ```
//! The word `seen` of a packet has one bit for each mirror that needs no further copy of it. A burst stays together if no
//! mirror can select one of its packets at egress any more, as with a mirror of all packets: it has copied them at ingress.
//! Copies leave after the packet, by the egress of the worker, so that no mirror sees them.

use arrayvec::ArrayVec;
use millrace_flow::Action;
use millrace_flow::classify::BURST;
use millrace_types::PortNo;
use millrace_wire::Packet;

use super::Processor;
use super::copies::{Copies, MirrorContext, MirrorEgress, Route};
use super::observe::NoObserver;
use super::observed_packet::Observation;
use super::origin::Origin;
use crate::mirror::MIRRORS_MAX;
use crate::{DropReason, Egress};

impl Processor {
    /// Processes packets that arrived at one port of a bridge with mirrors, in order, and leaves the burst empty.
    #[cold]
    #[inline(never)]
    pub(super) fn process_mirrored<P: Packet, E: Egress<P>>(
        &mut self,
        context: MirrorContext<'_>,
        origin: Origin,
        route: Route,
        burst: &mut ArrayVec<P, BURST>,
        egress: &mut E,
    ) {
        let MirrorContext { fwd, mirrors, .. } = context;
        let mut seen = [0; BURST];
        let mut copies = Copies::new(context);
        let wanted = mirrors.received_at(origin.in_port);
        let in_port = fwd.port(origin.in_port);
        if let Some(port) = in_port.filter(|port| wanted != 0 && port.ingress_block().is_none()) {
            for (packet, seen) in burst.iter().zip(&mut seen) {
                copies.make(wanted, seen, port, packet);
                if copies.waiting.remaining_capacity() < MIRRORS_MAX {
                    self.send_copies(&mut copies, egress);
                }
            }
            self.send_copies(&mut copies, egress);
        }
        let ends_tunnels = fwd
            .tunnels()
            .is_some_and(|tunnels| tunnels.has_underlay(origin.in_port));
        let open = mirrors.sending() | if ends_tunnels { mirrors.receiving() } else { 0 };
        let mut together: ArrayVec<P, BURST> = ArrayVec::new();
        for (packet, seen) in burst.drain(..).zip(seen) {
            if open & !seen == 0 {
                together.push(packet);
                continue;
            }
            self.pass(context, origin, route, &mut together, egress);
            together.clear();
            let mut one = ArrayVec::new();
            one.push(packet);
            let mut mirrored = MirrorEgress {
                egress: &mut *egress,
                copies: &mut copies,
                seen,
            };
            self.pass(context, origin, route, &mut one, &mut mirrored);
            self.send_copies(&mut copies, egress);
        }
        self.pass(context, origin, route, &mut together, egress);
    }

    /// Passes packets to the pipeline, and leaves the burst empty.
    fn pass<P: Packet, E: Egress<P>>(
        &mut self,
        context: MirrorContext<'_>,
        origin: Origin,
        route: Route,
        burst: &mut ArrayVec<P, BURST>,
        egress: &mut E,
    ) {
        if burst.is_empty() {
            return;
        }
        let mut observer = NoObserver;
        let mut run = self.run(context.fwd, origin, context.now, egress, &mut observer);
        match route {
            Route::Tables => run.burst(burst),
            Route::Normal => run.forward_burst(burst),
        }
    }

    /// Executes the actions of a packet-out of a bridge with mirrors. A packet with an ingress port is copied as if it had
    /// arrived there.
    #[cold]
    #[inline(never)]
    pub(super) fn packet_out_mirrored<P: Packet, E: Egress<P>>(
        &mut self,
        context: MirrorContext<'_>,
        origin: Origin,
        actions: &[Action],
        packet: P,
        egress: &mut E,
    ) {
        let MirrorContext { fwd, mirrors, now } = context;
        let mut copies = Copies::new(context);
        let mut seen = 0;
        if let Some(port) = fwd
            .port(origin.in_port)
            .filter(|port| port.ingress_block().is_none())
        {
            copies.make(mirrors.received_at(origin.in_port), &mut seen, port, &packet);
        }
        let mut mirrored = MirrorEgress {
            egress: &mut *egress,
            copies: &mut copies,
            seen,
        };
        self.run(fwd, origin, now, &mut mirrored, &mut NoObserver)
            .packet_out(packet, actions);
        self.send_copies(&mut copies, egress);
    }

    /// Copies a packet that leaves by a port for the mirrors that select it.
    #[cold]
    #[inline(never)]
    pub(super) fn mirror_alone<P: Packet, E: Egress<P>>(
        &mut self,
        context: MirrorContext<'_>,
        number: PortNo,
        packet: &P,
        egress: &mut E,
    ) {
        let mut copies = Copies::new(context);
        if let Some(port) = context.fwd.port(number) {
            copies.make(context.mirrors.sent_by(number), &mut 0, port, packet);
        }
        self.send_copies(&mut copies, egress);
    }

    /// Sends the copies that wait.
    fn send_copies<P: Packet, E: Egress<P>>(&mut self, copies: &mut Copies<'_, P>, egress: &mut E) {
        let without_buffer = core::mem::take(&mut copies.without_buffer);
        if without_buffer != 0 {
            self.counters.drops.add(DropReason::NoBuffer, without_buffer);
        }
        if copies.waiting.is_empty() {
            return;
        }
        // The copies of a sampled packet are no destinations of that packet.
        let observation = core::mem::replace(&mut self.scratch.observation, Observation::NONE);
        egress.end_notes();
        let MirrorContext { fwd, mirrors, now } = copies.context;
        let mut waiting = core::mem::take(&mut copies.waiting).into_iter().peekable();
        while let Some(first) = waiting.next() {
            let Some(mirror) = mirrors.mirror(first.mirror) else {
                continue;
            };
            let before = self.counters.drops.total();
            let mut observer = NoObserver;
            let mut run = self.run(fwd, PortNo::CONTROLLER.into(), now, egress, &mut observer);
            let of = first.mirror;
            run.send_copy(mirror, first);
            while let Some(next) = waiting.next_if(|next| next.mirror == of) {
                run.send_copy(mirror, next);
            }
            run.flush();
            let lost = self.counters.drops.total().wrapping_sub(before);
            if lost != 0 {
                mirror.counters.lost(lost);
            }
        }
        if observation.is_noting {
            egress.begin_notes();
        }
        self.scratch.observation = observation;
    }
}
