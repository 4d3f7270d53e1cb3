//! The session with a receiver, from the first packet to its receipt: links and messages.

use super::options::{SendError, Target};
use super::state::{Peer, Sender, Stage};
use crate::control::{CODE_DONE, LinkEvent, LinkId};
use crate::event::{Event, Outcome};
use crate::files::Value;
use crate::identity::random;
use crate::message::{MANIFEST_CHUNK, Message, VERSION};
use crate::receipt;
use millrace_transport::congestion::bbr::{Bbr, BbrConfig};
use millrace_transport::flow::FlowConfig;
use millrace_transport::packet::DATA_OVERHEAD;
use millrace_transport::ranges::RangeSet;
use millrace_transport::sender::Connection;
use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

/// Returns the address as a socket of the given family takes it.
fn mapped(address: SocketAddr, only_v4: bool) -> SocketAddr {
    match address.ip() {
        IpAddr::V4(ip) if !only_v4 => SocketAddr::new(IpAddr::V6(ip.to_ipv6_mapped()), address.port()),
        _ => address,
    }
}

impl Sender<'_> {
    /// Opens a link to every address of a target.
    pub(super) fn dial(&mut self, target: Target, only_v4: bool) -> Result<(), SendError> {
        let now = Instant::now();
        let mut links = Vec::new();
        for address in &target.addresses {
            let address = mapped(*address, only_v4);
            links.push(self.control.connect(now, self.identity, address, target.key)?);
        }
        self.peers.push(Peer::dialing(target, links, now));
        Ok(())
    }

    /// Handles an event of a link; the peer ends when its last link closes.
    pub(super) fn on_link_event(&mut self, link: LinkId, event: LinkEvent) -> Result<(), SendError> {
        let position = self.peers.iter().position(|peer| match &peer.stage {
            Stage::Dialing { links, .. } => links.contains(&link),
            _ => peer.link == Some(link),
        });
        let Some(at) = position else { return Ok(()) };
        match event {
            LinkEvent::Connected => self.offer(at, link),
            LinkEvent::Message(message) => self.on_message(at, link, message)?,
            LinkEvent::Closed { reason, .. } => {
                if let Stage::Dialing { links, .. } = &mut self.peers[at].stage {
                    links.retain(|other| *other != link);
                    if !links.is_empty() {
                        return Ok(());
                    }
                }
                self.end(at, Outcome::Resumable { reason });
            }
        }
        Ok(())
    }

    /// Offers the session on the first link that connected; the others are closed.
    fn offer(&mut self, at: usize, link: LinkId) {
        let peer = &mut self.peers[at];
        let Stage::Dialing { links, .. } = &peer.stage else {
            return;
        };
        for other in links.iter().filter(|other| **other != link) {
            self.control
                .close(Instant::now(), *other, CODE_DONE, "another address answered");
        }
        peer.link = Some(link);
        peer.stage = Stage::Offered;
        let secret = peer.target.secret.map_or_else(Vec::new, |secret| secret.to_vec());
        self.control.send(
            link,
            &Message::Hello {
                version: VERSION,
                secret,
            },
        );
        self.control.send(link, &Message::Offer(self.offer.clone()));
        for chunk in self.source.manifest().chunks(MANIFEST_CHUNK) {
            self.control.send(link, &Message::Manifest(chunk.to_vec()));
        }
        self.control.send(link, &Message::ManifestEnd);
    }

    /// Handles a message; one that does not fit the peer's stage is ignored.
    fn on_message(&mut self, at: usize, link: LinkId, message: Message) -> Result<(), SendError> {
        let running = match self.peers[at].stage {
            Stage::Running(member) => Some(member),
            _ => None,
        };
        match (message, running) {
            (Message::Refuse { code, text }, _) => self.end(at, Outcome::refused(code, text)),
            (Message::Have { extent, value }, None) => self.peers[at].haves.push_back((extent, value)),
            (Message::HaveEnd, None) => {
                self.peers[at].have_end = true;
                self.peers[at].stage = Stage::Checking;
            }
            (
                Message::Accept {
                    connection,
                    pool,
                    have,
                },
                None,
            ) => self.join(at, link, connection, pool, have),
            (Message::Verified(extent), Some(member)) => {
                if let Some(flow) = self.group.flow_mut(member) {
                    flow.verified(extent);
                }
                let (start, end) = self.source.layout().bounds(extent);
                let peer = &mut self.peers[at];
                if peer.verified.insert(extent..extent.saturating_add(1)) > 0 {
                    peer.verified_bytes += end - start;
                    peer.progress_at = Instant::now();
                    peer.stalled = None;
                }
            }
            (Message::Rejected(extent), Some(member)) => {
                if let Some(flow) = self.group.flow_mut(member) {
                    flow.rejected(extent);
                }
            }
            (Message::NeedGroupValues(extent), Some(_)) => {
                let values = self.source.group_values(extent)?;
                self.control.send(link, &Message::GroupValues { extent, values });
            }
            (Message::Committed { file }, _) => (self.events)(Event::File {
                peer: self.peers[at].target.name.clone(),
                file: Some(file),
                problem: None,
            }),
            (Message::Failed { text }, _) => self.end(at, Outcome::Resumable { reason: text }),
            (Message::Complete { root, signature }, _) => {
                let outcome = self.check_receipt(at, &root, &signature);
                self.end(at, outcome);
            }
            // Durable extents need nothing here: the receiver's journal has them.
            _ => {}
        }
        Ok(())
    }

    /// Returns the outcome that follows from the receiver's receipt: its signature and its root are compared with ours.
    fn check_receipt(&self, at: usize, root: &Value, signature: &[u8]) -> Outcome {
        let key = self.peers[at].target.key;
        if !key.verifies(&receipt(root), signature) {
            let reason = "the receiver's signature of the receipt is wrong".into();
            return Outcome::Integrity { reason };
        }
        match self.source.root() {
            Some(own) if own != *root => Outcome::Integrity {
                reason: "the receiver's files differ from the source; send them again".into(),
            },
            _ => Outcome::Delivered,
        }
    }

    /// Compares one extent that a receiver has with the source, so that nobody waits for long; returns true if more are left.
    pub(super) fn check_haves(&mut self) -> Result<bool, SendError> {
        let mut left = false;
        for peer in &mut self.peers {
            if let Some((extent, value)) = peer.haves.pop_front() {
                let is_ours = extent < self.source.layout().extents();
                if is_ours && self.source.check_have(extent, &value)? {
                    peer.kept.insert(extent..extent + 1);
                }
            }
            left |= !peer.haves.is_empty();
            if let (true, true, Some(link)) = (peer.have_end, peer.haves.is_empty(), peer.link) {
                peer.have_end = false;
                self.control.send(link, &Message::Keep(peer.kept.clone()));
            }
        }
        Ok(left)
    }

    /// Lets an accepted receiver join the group.
    fn join(&mut self, at: usize, link: LinkId, connection: u32, pool: u64, have: RangeSet) {
        let Some([to_receiver, to_sender]) = self.control.pairwise_keys(link) else {
            self.end(
                at,
                Outcome::Resumable {
                    reason: "TLS exports no keys".into(),
                },
            );
            return;
        };
        let layout = self.source.layout();
        let now = self.clock.now();
        let packet_size = u64::from(self.offer.payload) + u64::from(self.headers) + DATA_OVERHEAD as u64;
        let seed = u64::from_be_bytes(random().unwrap_or([1; 8]));
        let mut config = BbrConfig::new(packet_size, seed);
        config.initial_rtt = self.control.rtt(link);
        config.rate_limit = self.options.rate;
        if let Some(tolerance) = self.options.loss_tolerance {
            config.loss_tolerance = tolerance;
        }
        let start = (0..layout.extents()).find(|extent| !have.contains(*extent));
        let present: u64 = have
            .ranges()
            .iter()
            .map(|range| layout.bounds(range.end.saturating_sub(1)).1 - layout.bounds(range.start).0)
            .sum();
        let member = self.group.join(
            FlowConfig {
                layout,
                have: have.clone(),
                start: start.unwrap_or(0),
                payload: self.offer.payload,
                headers: self.headers,
                credit: pool,
                controller: Box::new(Bbr::new(config, now)),
                seed: seed.rotate_left(32),
            },
            Connection {
                id: connection,
                to_receiver,
                to_sender,
            },
            now,
        );
        for extent in (0..layout.extents()).filter(|extent| !have.contains(*extent)) {
            if let Some(value) = self.source.value(extent) {
                self.control.send(link, &Message::Value { extent, value });
            }
        }
        let peer = &mut self.peers[at];
        peer.stage = Stage::Running(member);
        peer.verified = have;
        peer.verified_bytes = present;
        peer.accepted_at = Instant::now();
        peer.progress_at = peer.accepted_at;
        (self.events)(Event::Accepted {
            peer: peer.target.name.clone(),
            bytes: layout.bytes(),
            present,
        });
    }
}
