//! ARP (RFC 826), with the rules of address conflict detection (RFC 5227).

use std::net::IpAddr;

use millrace_types::{Mac, Time};
use millrace_wire::arp::{REPLY, REQUEST, Repr, View};

use crate::config::is_bad_source;
use crate::counters::DropReason;
use crate::endpoint::Endpoint;
use crate::neighbours::Evidence;
use crate::receive::{Outcome, Received};

impl Endpoint {
    /// Handles an ARP packet; `dst` is the MAC address that the frame was sent to.
    pub(crate) fn arp(&mut self, now: Time, dst: Mac, bytes: &[u8]) -> Outcome {
        let Repr {
            op, sha, spa, tpa, ..
        } = Repr::parse(&View::new(bytes).map_err(|_| DropReason::Malformed)?);
        let (sender, target) = (IpAddr::V4(spa), IpAddr::V4(tpa));
        if !matches!(op, REQUEST | REPLY) {
            return Err(DropReason::Malformed);
        }
        if sha.is_multicast() || sha == Mac::ZERO || sha == self.config.mac {
            return Err(DropReason::Source);
        }
        // RFC 5227, section 2.1.1: a host that sends from our address conflicts with us, and so does a host that probes for an
        // address while we probe for it.
        let is_probe = op == REQUEST && spa.is_unspecified();
        let is_claimed = self.addresses.is_own(sender)
            || (is_probe && self.addresses.is_own(target) && !self.addresses.is_usable(target));
        if is_claimed {
            let address = if is_probe { target } else { sender };
            self.note_conflict(now, address, sha);
            return Ok(Received::Handled);
        }
        if !is_probe {
            if is_bad_source(sender)
                || !self.addresses.is_on_link(sender)
                || self.addresses.is_broadcast(sender)
            {
                return Err(DropReason::Source);
            }
            let is_answer = op == REPLY && dst == self.config.mac && self.neighbours.expects_answer(sender);
            let evidence = match op {
                REPLY if is_answer => Evidence::Answer,
                REQUEST if self.addresses.is_usable(target) => Evidence::Solicitation,
                _ => Evidence::Claim,
            };
            let frames = self.neighbours.learn(now, sender, sha, evidence);
            self.out.extend(frames);
            self.push_solicitations();
        }
        if op == REQUEST && self.addresses.is_usable(target) {
            if !self.buckets.resolution.take(now) {
                return Err(DropReason::RateLimit);
            }
            if !self.push_arp(sha, REPLY, tpa, sha, spa) {
                return Err(DropReason::QueueFull);
            }
        }
        Ok(Received::Handled)
    }
}
