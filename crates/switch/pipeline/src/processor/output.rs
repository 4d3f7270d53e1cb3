//! Output to ordinary and reserved ports (OpenFlow 1.3.5, section 4.5).

use arrayvec::ArrayVec;
use millrace_flow::classify::BURST;
use millrace_types::{PortNo, QueueId};
use millrace_wire::Packet;

use super::batch::{self, OutputRestriction, PortBatch};
use super::header::Effect;
use super::observe::Observer;
use super::packet_source::PacketSource;
use super::run::Run;
use crate::{DropReason, Egress, PacketInInfo, PacketInReason, Port, PortConfig};

use millrace_flow::Field;

impl<P: Packet, E: Egress<P>, O: Observer<P>> Run<'_, P, E, O> {
    /// Executes an output action for packet `i` of the burst.
    pub(crate) fn output(&mut self, i: usize, source: PacketSource<'_, P>, port: PortNo, max_len: u16) {
        match port {
            PortNo::IN_PORT => self.send(i, source, self.origin.in_port),
            PortNo::CONTROLLER => self.controller(i, source, max_len),
            PortNo::NORMAL => self.normal(i, source),
            PortNo::ALL => self.flood(i, source, PortConfig::default()),
            PortNo::FLOOD => self.flood(i, source, PortConfig::NO_FLOOD),
            PortNo::TABLE => self.submit(source),
            port if port == self.origin.in_port => self.drop(source, DropReason::OutputToInPort),
            port => self.send(i, source, port),
        }
    }

    fn submit(&mut self, source: PacketSource<'_, P>) {
        let Some(tables) = &mut self.to_tables else {
            return self.drop(source, DropReason::BadTable);
        };
        match source.take() {
            Some(packet) => {
                if let Err(full) = tables.try_push(packet) {
                    self.drop(PacketSource::Move(full.element()), DropReason::BadTable);
                }
            }
            None => self.count_drop(DropReason::NoBuffer),
        }
    }

    /// Sends a packet out of one port, or drops it if the port cannot send now.
    pub(crate) fn send(&mut self, i: usize, source: PacketSource<'_, P>, port: PortNo) {
        match self.egress_block(port) {
            Some(reason) => self.drop(source, reason),
            None => self.transmit(i, source, port),
        }
    }

    fn transmit(&mut self, i: usize, source: PacketSource<'_, P>, port: PortNo) {
        let queue = self.queue(i);
        match source.take() {
            None => self.count_drop(DropReason::NoBuffer),
            Some(packet) => match self.tunnel(port) {
                None => self.leave(port, queue, packet),
                Some(compiled) => self.encapsulate(compiled, self.tunnel_id(i), queue, packet),
            },
        }
    }

    /// Sends a packet out of a port that can send.
    #[inline]
    pub(crate) fn leave(&mut self, port: PortNo, queue: Option<QueueId>, packet: P) {
        if O::IS_WATCHING {
            // Sent at once, so that an observer sees this step before the next.
            return self.egress.transmit(port, queue, packet);
        }
        let (egress, batch) = self.batch_for(port, queue);
        batch.packets.push(packet);
        if batch.packets.is_full() {
            batch.flush(egress);
        }
    }

    /// Returns the batch of a port, which has room for a packet.
    #[inline(always)]
    pub(crate) fn batch_for(&mut self, port: PortNo, queue: Option<QueueId>) -> (&mut E, &mut PortBatch<P>) {
        let at = batch::batch_index(port);
        if self.port_batches[at].port != port || self.port_batches[at].queue != queue {
            self.change_exit(at, port, queue);
        }
        (&mut *self.egress, &mut self.port_batches[at])
    }

    #[inline(never)]
    fn change_exit(&mut self, at: usize, port: PortNo, queue: Option<QueueId>) {
        let to_in_port = (port == self.origin.in_port).then_some(DropReason::OutputToInPort);
        let restriction = to_in_port
            .or_else(|| self.egress_block(port))
            .map(OutputRestriction::Drop);
        let restriction = restriction.or_else(|| self.tunnel(port).map(|_| OutputRestriction::Tunnel));
        let batch = &mut self.port_batches[at];
        batch.flush(&mut *self.egress);
        batch.assign(port, queue, restriction);
    }

    fn queue(&self, i: usize) -> Option<QueueId> {
        self.scratch.states[i].queue
    }

    /// Returns the drop reason of packets that are output to a port, if the port cannot send.
    #[inline]
    pub(crate) fn egress_block(&self, port: PortNo) -> Option<DropReason> {
        match self.fwd.port(port) {
            None => Some(DropReason::NoSuchPort),
            Some(port) => port.egress_block(),
        }
    }

    fn controller(&mut self, i: usize, source: PacketSource<'_, P>, max_len: u16) {
        let state = &self.scratch.states[i];
        let reason = if state.in_table_miss {
            PacketInReason::NoMatch
        } else {
            PacketInReason::Action
        };
        if reason == PacketInReason::NoMatch
            && let Some(port) = self.fwd.port(self.origin.in_port)
            && port.config.has(PortConfig::NO_PACKET_IN)
        {
            return self.drop(source, DropReason::PortNoPacketIn);
        }
        self.packet_in(i, source, reason, max_len);
    }

    pub(crate) fn packet_in(
        &mut self,
        i: usize,
        source: PacketSource<'_, P>,
        reason: PacketInReason,
        max_len: u16,
    ) {
        let (state, key) = (&self.scratch.states[i], &self.scratch.keys[i]);
        let info = PacketInInfo {
            reason,
            table: state.table,
            cookie: state.cookie,
            max_len,
            in_port: self.origin.in_port,
            in_phy_port: self.origin.in_phy_port,
            metadata: key.field(Field::Metadata) as u64,
            tunnel_id: key.field(Field::TunnelId) as u64,
        };
        let Some(packet) = source.take() else {
            return self.count_drop(DropReason::NoBuffer);
        };
        let packet = match self.fwd.controller_meter() {
            None => Some(packet),
            Some(meter) => self.pass(i, packet, meter),
        };
        if let Some(packet) = packet {
            self.egress.packet_in(info, packet);
        }
    }

    /// Counts a drop, and drops the packet itself unless `source` is a reference from which a copy would have been
    /// made.
    pub(crate) fn drop(&mut self, source: PacketSource<'_, P>, reason: DropReason) {
        self.count_drop(reason);
        let PacketSource::Move(packet) = source else {
            return;
        };
        if O::IS_WATCHING {
            self.egress.dropped(reason, packet);
        } else {
            let egress = &mut *self.egress;
            self.dropped
                .push(reason, packet, |reason, run| egress.dropped_burst(reason, run));
        }
    }

    /// Drops a whole burst for one reason.
    pub(crate) fn drop_all(&mut self, burst: &mut ArrayVec<P, BURST>, reason: DropReason) {
        for _ in 0..burst.len() {
            self.count_drop(reason);
        }
        if self.scratch.observation.packets != 0 {
            self.note_drop(reason);
        }
        self.egress.dropped_burst(reason, burst);
    }

    /// Sends and drops all runs of packets.
    pub(crate) fn flush(&mut self) {
        let egress = &mut *self.egress;
        self.port_batches.iter_mut().for_each(|batch| batch.flush(egress));
        self.dropped
            .flush(|reason, run| egress.dropped_burst(reason, run));
    }

    pub(crate) fn count_drop(&mut self, reason: DropReason) {
        self.counters.drops.add(reason, 1);
        self.observer.dropped(reason);
        if self.scratch.observation.is_noting {
            self.note_drop(reason);
        }
    }

    /// Sends a packet out of all ports that are up, except the ingress port and ports with a configuration
    /// bit of `except`.
    fn flood(&mut self, i: usize, source: PacketSource<'_, P>, except: PortConfig) {
        self.spread(i, source, except, |_| true, |_, _| Effect::Done);
    }

    /// Sends the packet out of each port that `wanted` accepts, after a change by `adapt`. All ports but the last get
    /// copies.
    pub(super) fn spread(
        &mut self,
        i: usize,
        source: PacketSource<'_, P>,
        except: PortConfig,
        wanted: impl Fn(&Port) -> bool,
        adapt: impl Fn(&mut P, &Port) -> Effect,
    ) {
        let (fwd, in_port) = (self.fwd, self.origin.in_port);
        let mut targets = fwd.port_map().iter().filter(|port| {
            port.number != in_port
                && !port.config.has(except)
                && port.egress_block().is_none()
                && wanted(port)
        });
        let Some(mut target) = targets.next() else {
            return self.drop(source, DropReason::NoFloodPort);
        };
        for next in targets {
            self.adapted(i, source.packet().try_clone(), target, &adapt);
            target = next;
        }
        self.adapted(i, source.take(), target, &adapt);
    }

    pub(super) fn adapted(
        &mut self,
        i: usize,
        packet: Option<P>,
        port: &Port,
        adapt: impl Fn(&mut P, &Port) -> Effect,
    ) {
        let Some(mut packet) = packet else {
            return self.count_drop(DropReason::NoBuffer);
        };
        match adapt(&mut packet, port) {
            Effect::Done => self.transmit(i, PacketSource::Move(packet), port.number),
            Effect::NoHeadroom | Effect::TtlExpired => {
                self.drop(PacketSource::Move(packet), DropReason::NoHeadroom);
            }
        }
    }
}
