//! Received frames: the checks of Ethernet, IP and UDP headers, and the handler of each protocol.

use std::net::{IpAddr, SocketAddr};
use std::ops::Range;

use millrace_types::{Mac, Time, Vid};
use millrace_wire::ip::Pseudo;
use millrace_wire::{Ecn, EtherType, Fragment, IpProto, ethernet, ipv4, ipv6, udp, vlan};

use crate::config::is_bad_source;
use crate::counters::DropReason;
use crate::endpoint::Endpoint;

/// The congestion mark (RFC 3168, section 5).
const CONGESTION_EXPERIENCED: u8 = 3;

/// The outcome of a received frame.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Received {
    /// The frame is a datagram for a bound port.
    Datagram {
        /// The sender.
        from: SocketAddr,
        /// The own port.
        port: u16,
        /// The payload's position in the frame.
        payload: Range<usize>,
        /// True if a router marked the packet as having met congestion (RFC 3168).
        congestion_experienced: bool,
    },
    /// The endpoint has handled the frame; there may be frames to be sent, and events.
    Handled,
    /// The frame was dropped and counted.
    Dropped(DropReason),
}

/// An IP packet for an own address.
pub(crate) struct IpPacket<'a> {
    /// The MAC address that sent the frame.
    pub(crate) mac: Mac,
    pub(crate) src: IpAddr,
    pub(crate) dst: IpAddr,
    pub(crate) hop_limit: u8,
    pub(crate) proto: IpProto,
    pub(crate) pseudo: Pseudo,
    pub(crate) ecn: Ecn,
    /// The whole packet, without padding of the frame.
    pub(crate) whole: &'a [u8],
    pub(crate) payload: &'a [u8],
    /// True if the frame had one receiver: neither MAC nor IP address is a group or broadcast.
    pub(crate) is_unicast: bool,
}

pub(crate) type Outcome = Result<Received, DropReason>;

impl Endpoint {
    /// Handles a received frame.
    pub fn receive(&mut self, now: Time, frame: &[u8]) -> Received {
        self.counters.received += 1;
        match self.frame(now, frame) {
            Ok(received) => {
                if let Received::Datagram { .. } = received {
                    self.counters.datagrams += 1;
                }
                received
            }
            Err(reason) => {
                self.counters.drop(reason);
                Received::Dropped(reason)
            }
        }
    }

    fn frame(&mut self, now: Time, frame: &[u8]) -> Outcome {
        let malformed = |_| DropReason::Malformed;
        let outer = ethernet::View::new(frame).map_err(malformed)?;
        let (src, dst) = (outer.src(), outer.dst());
        if dst != self.config.mac && !dst.is_multicast() {
            return Err(DropReason::NotForUs);
        }
        if src.is_multicast() || src == Mac::ZERO {
            return Err(DropReason::Source);
        }
        let (mut ether_type, mut payload, mut vid) = (outer.ether_type(), outer.payload(), 0);
        if ether_type == EtherType::VLAN {
            let tag = vlan::View::new(payload).map_err(malformed)?;
            (ether_type, payload, vid) = (tag.ether_type(), tag.payload(), tag.vid().raw());
        }
        // VLAN 0 is a priority tag: a frame without a VLAN (IEEE 802.1Q-2018, section 9.6).
        if vid != self.config.vlan.map_or(0, Vid::raw) {
            return Err(DropReason::NotForUs);
        }
        // A frame with our source address came back through a loop, and is ignored.
        if src == self.config.mac {
            return Err(DropReason::Source);
        }
        match ether_type {
            EtherType::ARP => self.arp(now, dst, payload),
            EtherType::IPV4 => {
                let packet = self.ipv4(src, dst, payload)?;
                self.packet(now, frame, &packet)
            }
            EtherType::IPV6 => {
                let packet = self.ipv6(src, dst, payload)?;
                self.packet(now, frame, &packet)
            }
            _ => Err(DropReason::Protocol),
        }
    }

    fn ipv4<'a>(&self, mac: Mac, dst_mac: Mac, bytes: &'a [u8]) -> Result<IpPacket<'a>, DropReason> {
        let view = ipv4::View::new(bytes).map_err(|_| DropReason::Malformed)?;
        if !view.checksum_is_right() {
            return Err(DropReason::Checksum);
        }
        let (src, dst) = (IpAddr::V4(view.src()), IpAddr::V4(view.dst()));
        if !self.addresses.is_usable(dst) {
            return Err(DropReason::NotForUs);
        }
        if is_bad_source(src) || self.addresses.is_own(src) || self.addresses.is_broadcast(src) {
            return Err(DropReason::Source);
        }
        if view.more_fragments() || view.fragment_offset() != 0 {
            return Err(DropReason::Fragment);
        }
        Ok(IpPacket {
            mac,
            src,
            dst,
            hop_limit: view.ttl(),
            proto: view.proto(),
            pseudo: view.pseudo(),
            ecn: view.ecn(),
            whole: &bytes[..view.header_size() + view.payload().len()],
            payload: view.payload(),
            is_unicast: !dst_mac.is_multicast(),
        })
    }

    fn ipv6<'a>(&self, mac: Mac, dst_mac: Mac, bytes: &'a [u8]) -> Result<IpPacket<'a>, DropReason> {
        let view = ipv6::View::new(bytes).map_err(|_| DropReason::Malformed)?;
        let (src, dst) = (view.src(), view.dst());
        let walk = view.walk();
        let is_group = dst.is_multicast();
        let all_nodes = dst == std::net::Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
        // Neighbour discovery for a probed address is accepted before the address is usable, so that
        // duplicates are noticed.
        let is_ours = all_nodes
            || self.addresses.is_own_group(dst)
            || self.addresses.is_usable(dst.into())
            || (walk.proto == IpProto::ICMPV6 && self.addresses.is_own(dst.into()));
        if !is_ours {
            return Err(DropReason::NotForUs);
        }
        // A probe of another host has no source address (RFC 4862, section 5.4.2).
        let is_probe = src.is_unspecified() && walk.proto == IpProto::ICMPV6;
        // Another host with an own address sends its advertisements from this address, so ICMPv6 is accepted
        // from it.
        let is_own = self.addresses.is_own(src.into()) && walk.proto != IpProto::ICMPV6;
        if (is_bad_source(src.into()) && !is_probe) || is_own {
            return Err(DropReason::Source);
        }
        if walk.fragment != Fragment::Whole {
            return Err(DropReason::Fragment);
        }
        if walk.routed {
            return Err(DropReason::Protocol);
        }
        Ok(IpPacket {
            mac,
            src: src.into(),
            dst: dst.into(),
            hop_limit: view.hop_limit(),
            proto: walk.proto,
            pseudo: view.pseudo(),
            ecn: view.ecn(),
            whole: &bytes[..ipv6::SIZE + view.payload().len()],
            payload: &view.payload()[walk.size..],
            is_unicast: !dst_mac.is_multicast() && !is_group,
        })
    }

    fn packet(&mut self, now: Time, frame: &[u8], packet: &IpPacket<'_>) -> Outcome {
        match (packet.proto, packet.src) {
            (IpProto::UDP, _) => self.udp(now, frame, packet),
            (IpProto::ICMPV4, IpAddr::V4(_)) => self.icmpv4(now, packet),
            (IpProto::ICMPV6, IpAddr::V6(_)) => self.icmpv6(now, packet),
            _ => Err(DropReason::Protocol),
        }
    }

    fn udp(&mut self, now: Time, frame: &[u8], packet: &IpPacket<'_>) -> Outcome {
        let view = udp::View::new(packet.payload).map_err(|_| DropReason::Malformed)?;
        if !packet.is_unicast {
            return Err(DropReason::NotForUs);
        }
        // IPv6 has no datagrams without a checksum (RFC 8200, section 8.1).
        let is_missing = view.checksum() == 0 && packet.src.is_ipv6();
        if is_missing || !view.checksum_is_right(&packet.pseudo) {
            return Err(DropReason::Checksum);
        }
        if !self.ports.contains(&view.dst()) {
            self.push_port_unreachable(now, packet);
            return Err(DropReason::Port);
        }
        // All slices are parts of the frame.
        let start = view.payload().as_ptr() as usize - frame.as_ptr() as usize;
        Ok(Received::Datagram {
            from: SocketAddr::new(packet.src, view.src()),
            port: view.dst(),
            payload: start..start + view.payload().len(),
            congestion_experienced: packet.ecn.raw() == CONGESTION_EXPERIENCED,
        })
    }
}
