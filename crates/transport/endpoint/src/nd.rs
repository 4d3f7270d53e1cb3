//! Neighbour discovery: solicitations and advertisements (RFC 4861, section 7), duplicate address detection
//! (RFC 4862, section 5.4). Routers are configured. Router advertisements and redirects are dropped, because
//! anyone on the link could forge them.

use std::net::{IpAddr, Ipv6Addr};

use millrace_types::{Mac, Time};
use millrace_wire::icmpv6::{NEIGHBOR_ADVERT, NEIGHBOR_SOLICIT, NdRepr, NdView, View};

use crate::addresses::solicited_node;
use crate::counters::DropReason;
use crate::endpoint::Endpoint;
use crate::frames::{ND_HOP_LIMIT, multicast_mac};
use crate::neighbours::Evidence;
use crate::receive::{IpPacket, Outcome, Received};

/// Flag of an advertisement that answers a solicitation (RFC 4861, section 4.4, S).
pub(crate) const FLAG_SOLICITED: u32 = 0x4000_0000;
/// Flag of an advertisement that replaces what is known (RFC 4861, section 4.4, O).
pub(crate) const FLAG_OVERRIDE: u32 = 0x2000_0000;

impl Endpoint {
    /// Handles a message of neighbour discovery whose checksum is right.
    pub(crate) fn neighbour_discovery(
        &mut self,
        now: Time,
        packet: &IpPacket<'_>,
        message: &View<'_>,
    ) -> Outcome {
        let view = message.neighbor().map_err(|_| DropReason::Malformed)?;
        let (IpAddr::V6(src), IpAddr::V6(dst)) = (packet.src, packet.dst) else {
            return Err(DropReason::Malformed);
        };
        // RFC 4861, section 7.1: a packet from another link has a lower hop limit.
        if packet.hop_limit != ND_HOP_LIMIT
            || view.target().is_multicast()
            || !options_are_whole(&view, message)
        {
            return Err(DropReason::Discovery);
        }
        let lla = view.lla();
        if lla.is_some_and(|mac| mac.is_multicast() || mac == Mac::ZERO || mac == self.config.mac) {
            return Err(DropReason::Source);
        }
        if message.kind() == NEIGHBOR_SOLICIT {
            self.solicitation(now, packet.mac, (src, dst), view.target(), lla)
        } else {
            self.advertisement(now, packet.mac, dst, &NdRepr::parse(&view))
        }
    }

    fn solicitation(
        &mut self,
        now: Time,
        mac: Mac,
        (src, dst): (Ipv6Addr, Ipv6Addr),
        target: Ipv6Addr,
        lla: Option<Mac>,
    ) -> Outcome {
        let is_probe = src.is_unspecified();
        if is_probe && (dst != solicited_node(target) || lla.is_some()) {
            return Err(DropReason::Discovery);
        }
        if !self.addresses.is_own(target.into()) {
            return Err(DropReason::NotForUs);
        }
        if !self.addresses.is_usable(target.into()) {
            // A probe from another host for the address that we probe is a conflict (RFC 4862, section
            // 5.4.3). Other solicitations get no answer yet.
            if is_probe {
                self.note_conflict(now, target.into(), mac);
            }
            return Ok(Received::Handled);
        }
        if let (false, Some(mac)) = (is_probe, lla) {
            if !self.addresses.is_on_link(src.into()) {
                return Err(DropReason::Source);
            }
            let frames = self
                .neighbours
                .learn(now, src.into(), mac, Evidence::Solicitation);
            self.out.extend(frames);
            self.push_solicitations();
        }
        if !self.buckets.resolution.take(now) {
            return Err(DropReason::RateLimit);
        }
        // RFC 4861, section 7.2.4: the answer to a host without an address goes to the all-nodes group.
        let all = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
        let (to, to_mac, solicited) = if is_probe {
            (all, multicast_mac(all), 0)
        } else {
            (src, lla.unwrap_or(mac), FLAG_SOLICITED)
        };
        let answer = NdRepr {
            kind: NEIGHBOR_ADVERT,
            flags: FLAG_OVERRIDE | solicited,
            target,
            lla: Some(self.config.mac),
        };
        if !self.push_nd(to_mac, target, to, &answer) {
            return Err(DropReason::QueueFull);
        }
        Ok(Received::Handled)
    }

    fn advertisement(&mut self, now: Time, mac: Mac, dst: Ipv6Addr, message: &NdRepr) -> Outcome {
        let (target, solicited) = (IpAddr::V6(message.target), message.flags & FLAG_SOLICITED != 0);
        if dst.is_multicast() && solicited {
            return Err(DropReason::Discovery);
        }
        if self.addresses.is_own(target) {
            self.note_conflict(now, target, message.lla.unwrap_or(mac));
            return Ok(Received::Handled);
        }
        // The answer to a unicast solicitation may omit the link-layer address (RFC 4861, section 4.4). The
        // MAC address of the frame then replaces it.
        let lla = message.lla.unwrap_or(mac);
        let overrides = message.flags & FLAG_OVERRIDE != 0;
        let evidence = match (solicited && self.neighbours.expects_answer(target), overrides) {
            (true, _) => Evidence::Answer,
            (false, true) => Evidence::Claim,
            (false, false) => Evidence::Hint,
        };
        let frames = self.neighbours.learn(now, target, lla, evidence);
        self.out.extend(frames);
        self.push_solicitations();
        Ok(Received::Handled)
    }
}

/// Returns true if the options fill the message: none has a length of zero or beyond the end (RFC 4861, section 7.1).
fn options_are_whole(view: &NdView<'_>, message: &View<'_>) -> bool {
    let parsed: usize = view.options().map(|(_, option)| option.len()).sum();
    // Flags and target come before the options.
    parsed + 20 == message.payload().len()
}
