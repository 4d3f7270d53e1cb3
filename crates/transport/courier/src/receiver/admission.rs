//! Admission: the addresses in a ticket, and the senders that are admitted.

use super::state::{FileDestination, Server, Stage};
use crate::access::Refusal;
use crate::control::{BUSY, CODE_BUSY, LinkId};
use crate::identity::PublicKey;
use crate::message::VERSION;
use crate::refusal::RefuseCode;
use std::net::{IpAddr, SocketAddr};
use std::time::{Instant, SystemTime};
use subtle::ConstantTimeEq;

/// Returns the addresses for a ticket, at which other hosts may reach the local address. At most eight interface
/// addresses are used.
pub(super) fn ticket_addresses(local: SocketAddr, given: &[SocketAddr]) -> Vec<SocketAddr> {
    let with_port = |ip: &IpAddr| SocketAddr::new(*ip, local.port());
    if !given.is_empty() {
        let own_port = |address: &SocketAddr| match address.port() {
            0 => with_port(&address.ip()),
            _ => *address,
        };
        return given.iter().map(own_port).collect();
    }
    if !local.ip().is_unspecified() {
        return vec![local];
    }
    let mut addresses: Vec<IpAddr> = nix::ifaddrs::getifaddrs()
        .into_iter()
        .flatten()
        .filter_map(|interface| {
            let address = interface.address?;
            let v4 = address.as_sockaddr_in().map(|v4| IpAddr::V4(v4.ip()));
            v4.or_else(|| address.as_sockaddr_in6().map(|v6| IpAddr::V6(v6.ip())))
        })
        .filter(|ip| match ip {
            IpAddr::V4(ip) => !ip.is_link_local(),
            IpAddr::V6(ip) => local.is_ipv6() && !ip.is_unicast_link_local(),
        })
        .collect();
    // Loopback addresses are used only if there are no others.
    if addresses.iter().any(|ip| !ip.is_loopback()) {
        addresses.retain(|ip| !ip.is_loopback());
    }
    addresses.truncate(8);
    addresses.iter().map(with_port).collect()
}

impl Server<'_, '_, '_> {
    /// Admits a sender, or refuses it with a reason.
    pub(super) fn greet(&mut self, link: LinkId, version: u64, secret: &[u8]) {
        if version != VERSION {
            let text =
                format!("this receiver speaks version {VERSION}, the sender {version}; update the older one");
            self.refuse(link, RefuseCode::Version, text);
            return;
        }
        let Some(key) = self.control.peer_key(link) else {
            return;
        };
        match self.admission(key, secret) {
            Ok(()) => {
                if !self.control.authorize(link) {
                    self.control.close(Instant::now(), link, CODE_BUSY, BUSY);
                    self.peers.remove(&link);
                    return;
                }
                let until = self.offer_until();
                if let Some(peer) = self.peers.get_mut(&link) {
                    peer.stage = Stage::Offered {
                        until,
                        into: Vec::new(),
                        offer: None,
                        manifest: Vec::new(),
                    };
                }
            }
            Err(Refusal { code, reason }) => self.refuse(link, code, reason),
        }
    }

    /// Admits a key of the list, or a key with the secret of a ticket; the first key with the secret owns the
    /// ticket.
    fn admission(&mut self, key: PublicKey, secret: &[u8]) -> Result<(), Refusal> {
        if self.drained_at.is_some() {
            return Err(Refusal {
                code: RefuseCode::Busy,
                reason: "the receiver is about to end; try again when it was restarted".into(),
            });
        }
        if let FileDestination::Access(access) = self.destination {
            return access.admit(key);
        }
        self.ticket_admission(key, secret).map_err(Refusal::not_admitted)
    }

    fn ticket_admission(&mut self, key: PublicKey, secret: &[u8]) -> Result<(), String> {
        if self.options.allow.contains(&key) {
            return Ok(());
        }
        if secret.is_empty() {
            return Err(format!(
                "the key {key} is not on the receiver's list; use a ticket, or `millrace receive --allow {key}`"
            ));
        }
        let has_session = self.has_session(key);
        let now = SystemTime::now();
        let known = self
            .admissions
            .iter_mut()
            .find(|admission| bool::from(admission.ticket.secret[..].ct_eq(secret)));
        let Some(admission) = known else {
            return Err("the ticket is not of this receiver; use the one that it printed last".into());
        };
        if admission.owner.is_some_and(|owner| owner != key) {
            return Err("the ticket belongs to another sender; ask for one of your own".into());
        }
        // A transfer that has begun continues: its sender dials again after each interruption.
        let goes_on = admission.owner == Some(key) && (has_session || !admission.delivered);
        if !goes_on && admission.ticket.is_expired(now) {
            return Err("the ticket has expired; start `millrace receive` again for a new one".into());
        }
        admission.delivered = false;
        if admission.owner.replace(key).is_none()
            && let Some(kept) = self.options.kept_ticket()
        {
            kept.keep(&admission.ticket, key);
        }
        Ok(())
    }
}
