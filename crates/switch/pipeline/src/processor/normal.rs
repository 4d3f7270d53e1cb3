//! The reserved port NORMAL: a learning bridge with VLANs (IEEE 802.1Q), and the ports and VLANs that have no flow tables.

use arrayvec::ArrayVec;
use millrace_flow::classify::BURST;
use millrace_types::{Mac, Vid};
use millrace_wire::{EtherType, Packet, ethernet, rewrite, vlan};

use super::header::{self, Effect};
use super::observe::{NormalReason, Observer};
use super::packet_source::PacketSource;
use super::run::{RECENT_TARGETS, Run};
use crate::{DropReason, Egress, FdbKey, Learn, NormalIngress, Port, PortConfig, VlanMode};

impl<'a, P: Packet, E: Egress<P>, O: Observer<P>> Run<'a, P, E, O> {
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
        let arrival = Arrival::of(head, tag, in_port);
        if dst.is_reserved_link_local() && !self.fwd.normal_settings().forwards_reserved() {
            return self.drop(source, DropReason::NormalReserved);
        }
        if O::IS_REAL && in_port.is_some() {
            self.learn(FdbKey { vid, mac: src });
        }
        let target = self.target(FdbKey { vid, mac: dst });
        self.observer.mac_lookup(target.map(|port| port.number));
        let adapt = |packet: &mut P, port: &Port| retag(packet, &arrival, vid, port);
        let is_protected = in_port.is_some_and(|port| port.config.has(PortConfig::PROTECTED));
        let protects = |port: &Port| is_protected && port.config.has(PortConfig::PROTECTED);
        match target {
            Some(port) if port.number == self.origin.in_port => {
                self.drop(source, DropReason::NormalSamePort);
            }
            Some(port) if protects(port) => self.drop(source, DropReason::NormalProtected),
            Some(port) if !arrival.passes(port) => self.drop(source, DropReason::NormalVlan),
            Some(port) => match port.egress_block() {
                Some(reason) => self.drop(source, reason),
                None => self.adapted(i, source.take(), port, adapt),
            },
            None => {
                let carries = |port: &Port| port.vlan.carries(vid) && !protects(port) && arrival.passes(port);
                self.spread(i, source, PortConfig::NO_FLOOD, carries, adapt);
            }
        }
    }

    /// Returns the port of an address of one host, if it is known. A burst has few destinations, so those that were looked
    /// up last are remembered until its end.
    #[inline]
    fn target(&mut self, key: FdbKey) -> Option<&'a Port> {
        if key.mac.is_multicast() {
            return None;
        }
        let recent = usize::from(key.mac.0[5]) % RECENT_TARGETS;
        if let Some((held, port)) = self.recent_targets[recent]
            && held == key
        {
            return Some(port);
        }
        let entry = self.fwd.fdb().lookup(key)?;
        if !entry.is_static && self.fwd.normal_settings().floods(key.vid) {
            return None;
        }
        let port = self.fwd.port(entry.port)?;
        // A worker may have learned an address just before the VLANs of the port changed.
        if !port.vlan.carries(key.vid) {
            return None;
        }
        self.recent_targets[recent] = Some((key, port));
        Some(port)
    }

    #[inline]
    fn learn(&mut self, key: FdbKey) {
        if self.recent_source == Some(key) {
            return;
        }
        self.recent_source = Some(key);
        if self.fwd.normal_settings().floods(key.vid) {
            return;
        }
        let port = self.origin.in_port;
        match self.fwd.fdb().lookup(key) {
            Some(entry) if entry.port == port => entry.refresh(self.now),
            Some(entry) if entry.is_static => {}
            _ if key.mac.is_multicast() => {}
            // The copies of a mirror have the addresses of hosts behind other ports.
            _ if self
                .fwd
                .mirrors()
                .is_some_and(|mirrors| mirrors.has_output_vlan(key.vid)) => {}
            _ => {
                let FdbKey { vid, mac } = key;
                self.egress.learn(Learn { vid, mac, port });
            }
        }
    }

    /// Forwards a whole burst that needs neither keys nor observation.
    pub(super) fn normal_burst(&mut self, burst: &mut ArrayVec<P, BURST>) {
        self.scratch.initial_state = u64::MAX;
        let in_port = self.fwd.port(self.origin.in_port);
        for (i, mut packet) in burst.drain(..).enumerate() {
            if let Some((arrival, vid, port)) = self.bridged(packet.head(), in_port)
                && retag(&mut packet, &arrival, vid, port) == Effect::Done
            {
                self.enqueue(i, packet, port.number);
            } else {
                // A flood, or a drop.
                self.state(i);
                self.normal(i, PacketSource::Move(packet));
            }
        }
        self.flush();
    }

    /// Returns the tag, the VLAN and the target of a frame from `in_port` to a known host behind another port. `None` also if the
    /// whole of [`Run::normal`] is to look at it.
    #[inline]
    fn bridged(&mut self, head: &[u8], in_port: Option<&Port>) -> Option<(Arrival, Vid, &'a Port)> {
        let (in_port, header) = (in_port?, head.first_chunk::<{ ethernet::SIZE }>()?);
        let [d0, d1, d2, d3, d4, d5, s0, s1, s2, s3, s4, s5, ..] = *header;
        let (dst, src) = (Mac([d0, d1, d2, d3, d4, d5]), Mac([s0, s1, s2, s3, s4, s5]));
        let tag = rewrite::vlan_tci(head).map(Vid::from_tci);
        let vid = in_port.vlan.classify(tag)?;
        let port = self.target(FdbKey { vid, mac: dst })?;
        if port.number == in_port.number || is_special(in_port) || is_special(port) {
            return None;
        }
        if O::IS_REAL {
            self.learn(FdbKey { vid, mac: src });
        }
        Some((Arrival::tagged(tag), vid, port))
    }

    /// Forwards packets of a logical port, which are from no host of the bridge.
    pub(crate) fn forward_burst(&mut self, burst: &mut ArrayVec<P, BURST>) {
        let fwd = self.fwd;
        let Some(in_port) = fwd.port(self.origin.in_port) else {
            return self.drop_all(burst, DropReason::NoSuchPort);
        };
        if let Some(reason) = in_port.ingress_block() {
            return self.drop_all(burst, reason);
        }
        let has_tunnels = fwd.tunnels().is_some();
        if has_tunnels {
            // Encapsulation reads the key.
            self.scratch.keys[..burst.len()].fill(self.origin.key());
        }
        self.scratch.initial_state = u64::MAX;
        for (i, mut packet) in burst.drain(..).enumerate() {
            let head = packet.head();
            let Some([d0, d1, d2, d3, d4, d5, ..]) = head.first_chunk::<{ ethernet::SIZE }>().copied() else {
                self.drop(PacketSource::Move(packet), DropReason::TooShort);
                continue;
            };
            let mac = Mac([d0, d1, d2, d3, d4, d5]);
            let tag = rewrite::vlan_tci(head).map(Vid::from_tci);
            let vid = in_port.vlan.classify(tag);
            let found = vid
                .and_then(|vid| Some((vid, self.target(FdbKey { vid, mac })?)))
                .filter(|(_, port)| !is_special(in_port) && !is_special(port));
            let Some((vid, port)) = found else {
                // A flood, or a drop.
                self.state(i);
                self.normal(i, PacketSource::Move(packet));
                continue;
            };
            match retag(&mut packet, &Arrival::tagged(tag), vid, port) {
                Effect::Done => {
                    if has_tunnels {
                        self.state(i);
                    }
                    self.enqueue(i, packet, port.number);
                }
                Effect::NoHeadroom | Effect::TtlExpired => {
                    self.drop(PacketSource::Move(packet), DropReason::NoHeadroom);
                }
            }
        }
        self.flush();
    }

    /// Forwards the packets of a burst that are NORMAL's by configuration, and leaves the others.
    #[cold]
    #[inline(never)]
    pub(crate) fn classify_ingress(&mut self, normal: &NormalIngress, burst: &mut ArrayVec<P, BURST>) {
        if normal.has_port(self.origin.in_port) {
            return self.all_normal(burst, NormalReason::Configured);
        }
        let (Some(vlans), port) = (normal.vlans(), self.fwd.port(self.origin.in_port)) else {
            return;
        };
        let is_normal = |packet: &P| {
            let tag = rewrite::vlan_tci(packet.head()).map(Vid::from_tci);
            let vid = port.map_or(tag, |port| port.vlan.classify(tag));
            vid.is_some_and(|vid| vlans.contains(vid))
        };
        if !burst.iter().any(is_normal) {
            return;
        }
        if self.scratch.observation.packets != 0 && !burst.iter().all(is_normal) {
            // The burst is split, and the observed packet is found by its place. It is observed in neither part.
            self.scratch.observation.packets = 0;
        }
        let (mut own, mut others): (ArrayVec<P, BURST>, ArrayVec<P, BURST>) = Default::default();
        for packet in burst.drain(..) {
            match is_normal(&packet) {
                true => own.push(packet),
                false => others.push(packet),
            }
        }
        self.all_normal(&mut own, NormalReason::Configured);
        *burst = others;
    }
}

/// Returns true if more than the VLAN of a packet to the port, or from it, decides whether NORMAL forwards it.
#[inline]
fn is_special(port: &Port) -> bool {
    port.config.has(PortConfig::PROTECTED) || port.vlan.service().is_some()
}

/// The tags of a packet on arrival.
#[derive(Clone, Copy)]
pub(super) struct Arrival {
    /// The tag that names the VLAN of the packet, if it has one.
    tag: Option<Vid>,
    /// The type of a tag that the packet gets.
    tag_type: EtherType,
    /// The VLAN of the customer, behind the tag of the service VLAN; 0 without a tag.
    customer: Vid,
    /// True if the packet is from a port of a customer.
    is_of_customer: bool,
}

impl Arrival {
    /// The arrival of a packet that no port of a customer has to do with.
    #[inline]
    pub(super) fn tagged(tag: Option<Vid>) -> Arrival {
        Arrival {
            tag,
            tag_type: EtherType::VLAN,
            customer: Vid::default(),
            is_of_customer: false,
        }
    }

    /// `tag` is the outermost tag.
    #[inline]
    pub(super) fn of(head: &[u8], tag: Option<Vid>, in_port: Option<&Port>) -> Arrival {
        match in_port.and_then(|port| port.vlan.service()) {
            // The customer's tag stays where it is.
            Some(service) => Arrival {
                tag: None,
                tag_type: service.tag_type,
                customer: tag.unwrap_or_default(),
                is_of_customer: true,
            },
            None => Arrival {
                customer: tag
                    .and_then(|_| rewrite::vlan_tci(inside(head)?))
                    .map(Vid::from_tci)
                    .unwrap_or_default(),
                ..Arrival::tagged(tag)
            },
        }
    }

    /// Returns true if a port that carries the VLAN of the packet also carries that of the customer.
    #[inline]
    fn passes(&self, port: &Port) -> bool {
        match &port.vlan {
            VlanMode::Tunnel(service) => service.has_customer(self.customer),
            // An access port has no tags, and would lose that of the customer.
            VlanMode::Access(_) => !self.is_of_customer || self.customer == Vid::default(),
            VlanMode::Trunk { .. } | VlanMode::NativeTagged { .. } => true,
        }
    }
}

/// Returns a frame from the first tag on as if it began with addresses: the place of the second tag is that of the first.
#[inline]
fn inside(head: &[u8]) -> Option<&[u8]> {
    head.get(vlan::SIZE..)
}

/// Changes the tag of a packet of VLAN `vid` for the port by which it leaves.
#[inline]
pub(super) fn retag<P: Packet>(packet: &mut P, arrival: &Arrival, vid: Vid, port: &Port) -> Effect {
    match (arrival.tag, port.vlan.tags(vid)) {
        (None, true) => header::push_tag(packet, arrival.tag_type, vid.raw()),
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
