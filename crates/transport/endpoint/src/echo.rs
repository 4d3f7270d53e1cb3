//! ICMP messages by type, and answers to echo requests (RFC 792, RFC 4443).

use millrace_types::Time;
use millrace_wire::{icmpv4, icmpv6};

use crate::counters::DropReason;
use crate::endpoint::Endpoint;
use crate::errors::{DEST_UNREACHABLE_V6, PACKET_TOO_BIG, TIME_EXCEEDED_V6};
use crate::receive::{IpPacket, Outcome, Received};

impl Endpoint {
    pub(crate) fn icmpv4(&mut self, now: Time, packet: &IpPacket<'_>) -> Outcome {
        let view = icmpv4::View::new(packet.payload).map_err(|_| DropReason::Malformed)?;
        if !view.checksum_is_right() {
            return Err(DropReason::Checksum);
        }
        match view.kind() {
            icmpv4::ECHO_REQUEST => self.echo(
                now,
                packet,
                icmpv4::ECHO_REPLY,
                view.rest_of_header(),
                view.payload(),
            ),
            icmpv4::UNREACHABLE | icmpv4::TIME_EXCEEDED => self.icmp_error(
                now,
                (view.kind(), view.code()),
                view.rest_of_header(),
                view.payload(),
            ),
            _ => Err(DropReason::Unused),
        }
    }

    pub(crate) fn icmpv6(&mut self, now: Time, packet: &IpPacket<'_>) -> Outcome {
        let view = icmpv6::View::new(packet.payload).map_err(|_| DropReason::Malformed)?;
        if !view.checksum_is_right(&packet.pseudo) {
            return Err(DropReason::Checksum);
        }
        let (kind, code) = (view.kind(), view.code());
        if matches!(kind, icmpv6::NEIGHBOR_SOLICIT | icmpv6::NEIGHBOR_ADVERT) {
            return self.neighbour_discovery(now, packet, &view);
        }
        let (rest, payload) = view.payload().split_first_chunk().ok_or(DropReason::Malformed)?;
        match kind {
            icmpv6::ECHO_REQUEST => self.echo(now, packet, icmpv6::ECHO_REPLY, *rest, payload),
            DEST_UNREACHABLE_V6 | PACKET_TOO_BIG | TIME_EXCEEDED_V6 => {
                self.icmp_error(now, (kind, code), *rest, payload)
            }
            _ => Err(DropReason::Unused),
        }
    }

    /// Answers an echo request. The answer goes to the MAC address of the request, so that it needs no state.
    fn echo(
        &mut self,
        now: Time,
        packet: &IpPacket<'_>,
        reply: u8,
        rest: [u8; 4],
        payload: &[u8],
    ) -> Outcome {
        let is_ours = packet.is_unicast && self.addresses.is_usable(packet.dst);
        let has_source = !packet.src.is_unspecified() && !self.addresses.is_own(packet.src);
        if !is_ours || !has_source {
            return Err(DropReason::NotForUs);
        }
        if !self.buckets.echo.take(now) || packet.whole.len() > usize::from(self.config.mtu) {
            return Err(DropReason::RateLimit);
        }
        match self.push_icmp(packet.mac, (packet.dst, packet.src), (reply, 0), rest, payload) {
            true => Ok(Received::Handled),
            false => Err(DropReason::QueueFull),
        }
    }
}
