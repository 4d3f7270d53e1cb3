//! Output to ordinary and reserved ports (OpenFlow 1.3.5, section 4.5).

use arrayvec::ArrayVec;
use millrace_flow::classify::BURST;
use millrace_types::{PortNo, QueueId};
use millrace_wire::{Packet, rewrite};

use super::batch::{self, OutputRestriction, PortBatch};
use super::header::{self, Effect};
use super::observe::Observer;
use super::packet_source::PacketSource;
use super::run::Run;
use crate::{DropReason, Egress, FdbKey, Learn, PacketInInfo, PacketInReason, Port, PortConfig};

use millrace_flow::Field;
use millrace_types::{Mac, Vid};
use millrace_wire::{EtherType, ethernet, vlan};

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
    fn spread(
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

    fn adapted(&mut self, i: usize, packet: Option<P>, port: &Port, adapt: impl Fn(&mut P, &Port) -> Effect) {
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

    /// Forwards as a learning bridge with VLANs (IEEE 802.1Q).
    pub(crate) fn normal(&mut self, i: usize, source: PacketSource<'_, P>) {
        let head = source.packet().head();
        let Some(header) = head.first_chunk::<{ ethernet::SIZE }>() else {
            return self.drop(source, DropReason::TooShort);
        };
        let [d0, d1, d2, d3, d4, d5, s0, s1, s2, s3, s4, s5, ..] = *header;
        let (dst, src) = (Mac([d0, d1, d2, d3, d4, d5]), Mac([s0, s1, s2, s3, s4, s5]));
        // The outermost tag of either type, as the match field vlan_vid and Open vSwitch have it.
        let tag = rewrite::vlan_tci(head).map(Vid::from_tci);
        let in_port = self.fwd.port(self.origin.in_port);
        let vid = match in_port {
            Some(port) => port.vlan.classify(tag),
            None => Some(tag.unwrap_or_default()),
        };
        let Some(vid) = vid else {
            return self.drop(source, DropReason::NormalVlan);
        };
        if dst.is_reserved_link_local() {
            return self.drop(source, DropReason::NormalReserved);
        }
        if O::IS_REAL && in_port.is_some() {
            self.learn(FdbKey { vid, mac: src });
        }
        let key = FdbKey { vid, mac: dst };
        let known = if dst.is_multicast() {
            None
        } else {
            self.fwd.fdb().lookup(key)
        };
        // A worker may have learned an address just before the VLANs of the port changed.
        let target = known
            .and_then(|entry| self.fwd.port(entry.port))
            .filter(|port| port.vlan.carries(vid));
        self.observer.mac_lookup(target.map(|port| port.number));
        let adapt = |packet: &mut P, port: &Port| retag(packet, tag, vid, port);
        match target {
            Some(port) if port.number == self.origin.in_port => {
                self.drop(source, DropReason::NormalSamePort);
            }
            Some(port) => match port.egress_block() {
                Some(reason) => self.drop(source, reason),
                None => self.adapted(i, source.take(), port, adapt),
            },
            None => {
                let carries = |port: &Port| port.vlan.carries(vid);
                self.spread(i, source, PortConfig::NO_FLOOD, carries, adapt);
            }
        }
    }

    fn learn(&mut self, key: FdbKey) {
        let port = self.origin.in_port;
        match self.fwd.fdb().lookup(key) {
            Some(entry) if entry.port == port => entry.refresh(self.now),
            _ if key.mac.is_multicast() || self.learned == Some(key) => {}
            _ => {
                self.learned = Some(key);
                let FdbKey { vid, mac } = key;
                self.egress.learn(Learn { vid, mac, port });
            }
        }
    }
}

/// Changes the tag of a packet of VLAN `vid` for the port by which it leaves. `tag` is the tag on arrival.
fn retag<P: Packet>(packet: &mut P, tag: Option<Vid>, vid: Vid, port: &Port) -> Effect {
    match (tag, port.vlan.tags(vid)) {
        (None, true) => header::push_tag(packet, EtherType::VLAN, vid.raw()),
        (Some(tag), true) if tag != vid => {
            // A priority tag gets the VLAN and keeps its priority.
            if let Some(tci_bytes) = packet
                .head_mut()
                .get_mut(ethernet::SIZE..)
                .and_then(<[u8]>::first_chunk_mut::<2>)
            {
                let tci = u16::from_be_bytes(*tci_bytes) & (0xe000 | vlan::DEI) | vid.raw();
                *tci_bytes = tci.to_be_bytes();
            }
            Effect::Done
        }
        // A bridge without VLANs passes priority tags.
        (Some(tag), false) if tag != vid || vid != Vid::default() => {
            header::pop_tag(packet);
            Effect::Done
        }
        _ => Effect::Done,
    }
}
