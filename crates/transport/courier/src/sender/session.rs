//! The session with a receiver, from the first packet to the receipt: links and messages.

use super::options::{Policy, SendError, Target};
use super::state::{Peer, Sender, Stage};
use crate::control::{CODE_DONE, CODE_ERROR, LinkEnd, LinkEvent, LinkId};
use crate::event::{Event, Outcome, wrong_key};
use crate::files::Value;
use crate::identity::random;
use crate::io::{mapped, probe_ports};
use crate::message::{Class, MANIFEST_CHUNK, Message, VERSION, fitting};
use crate::pool::reader::{Read, ReadReply};
use crate::progress::RateMeter;
use crate::receipt;
use millrace_transport::congestion::Controller;
use millrace_transport::congestion::background::Background;
use millrace_transport::congestion::bbr::{Bbr, BbrConfig, Hint};
use millrace_transport::congestion::fixed::Fixed;
use millrace_transport::flow::{FlowConfig, USUAL_MTU};
use millrace_transport::packet::DATA_OVERHEAD;
use millrace_transport::ranges::RangeSet;
use millrace_transport::sender::Connection;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// The maximum number of one receiver's extents that the reader compares at once, so that other receivers do
/// not wait for long.
const CHECKS_MAX: usize = 4;
/// A receiver's further NEED GROUP VALUES wait while this many answers to it, or more, are queued.
const ANSWERS_MAX: usize = 64;
/// The wait before a lost receiver is dialled again; it doubles each time.
pub(crate) const BACKOFF: Duration = Duration::from_millis(500);
pub(crate) const BACKOFF_MAX: Duration = Duration::from_secs(30);

impl Sender<'_> {
    /// Adds a receiver and opens a link to each of its addresses.
    pub(super) fn add(&mut self, target: Target) -> Result<(), SendError> {
        let links = self.links(&target)?;
        let mut peer = Peer::dialing(target, links, Instant::now());
        peer.ports = probe_ports(&*self.io, &peer.target.addresses);
        self.peers.push(peer);
        Ok(())
    }

    /// Opens a link to each address of a target.
    fn links(&mut self, target: &Target) -> Result<Vec<LinkId>, SendError> {
        let now = Instant::now();
        let mut links = Vec::new();
        for address in &target.addresses {
            let address = mapped(*address, self.only_v4);
            links.push(self.control.connect(now, self.identity, address, target.key)?);
        }
        Ok(links)
    }

    /// Dials a receiver again after its link was lost.
    pub(super) fn redial(&mut self, at: usize) -> Result<(), SendError> {
        let target = self.peers[at].target.clone();
        let links = self.links(&target)?;
        self.peers[at].stage = Stage::dialing(links, Instant::now());
        self.peers[at].ports = probe_ports(&*self.io, &target.addresses);
        Ok(())
    }

    /// Closes the links of a receiver that is dialled.
    pub(super) fn close_dialed(&mut self, at: usize) {
        if let Stage::Dialing { links, .. } = &mut self.peers[at].stage {
            for link in std::mem::take(links) {
                self.control.close(Instant::now(), link, CODE_ERROR, "no answer");
            }
        }
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
            LinkEvent::Moved(address) => self.on_moved(at, address),
            LinkEvent::Closed { reason, end } => {
                if end == LinkEnd::WrongKey {
                    self.peers[at].wrong_key = Some(reason.clone());
                }
                if let Stage::Dialing { links, .. } = &mut self.peers[at].stage {
                    links.retain(|other| *other != link);
                    if !links.is_empty() {
                        return Ok(());
                    }
                }
                self.peers[at].link = None;
                // A known receiver may restart, or have no room for a moment, when many senders come back at once.
                let waits = end == LinkEnd::Closed && self.peers[at].lost.is_some();
                if end == LinkEnd::Busy {
                    // The receiver has answered: it exists, and will have room.
                    self.wait_to_redial(at, reason, true);
                } else {
                    self.on_lost(at, reason, waits || end == LinkEnd::Lost);
                }
            }
        }
        Ok(())
    }

    /// Notes that a receiver sends from another address. If its feedback is overdue, it is dialled again, at that address,
    /// too: the handshake proves that the receiver itself is there. As long as feedback arrives, the path to the address
    /// in use works, and somebody on it may only have copied a datagram.
    fn on_moved(&mut self, at: usize, address: SocketAddr) {
        let address = SocketAddr::new(address.ip().to_canonical(), address.port());
        let peer = &mut self.peers[at];
        if peer.moved_to != Some(address) {
            let before = peer.moved_to.replace(address);
            let addresses = &mut peer.target.addresses;
            addresses.retain(|known| Some(*known) != before && *known != address);
            addresses.push(address);
        }
        let Stage::Running(member) = peer.stage else {
            return;
        };
        let feedback = self.group.flow(member).map(|flow| flow.stats().feedback);
        if feedback.is_some() && feedback == peer.feedback_at_probe {
            let reason = format!("it has moved to {address}, where it is dialled again");
            self.wait_to_redial(at, reason, true);
        }
    }

    /// Waits before a lost receiver is dialled again. Ends the transfer to the receiver if it never answered,
    /// closed the link itself, or was lost for too long.
    pub(super) fn on_lost(&mut self, at: usize, reason: String, may_come_back: bool) {
        let never_answered = matches!(self.peers[at].stage, Stage::Dialing { .. });
        if self.peers[at].lost.is_none()
            && never_answered
            && let Some(reason) = self.peers[at].wrong_key.take()
        {
            return self.end(at, wrong_key(reason));
        }
        if self.peers[at].lost.is_none() && never_answered {
            return self.end(at, Outcome::Resumable { reason });
        }
        self.wait_to_redial(at, reason, may_come_back);
    }

    /// Waits before a receiver is dialled again, which has answered before. Ends the transfer to it if it does not come
    /// back, or has been away for too long.
    fn wait_to_redial(&mut self, at: usize, reason: String, may_come_back: bool) {
        let now = Instant::now();
        let (first, failures) = match self.peers[at].lost {
            Some((first, failures)) => (first, failures + 1),
            None => (now, 0),
        };
        if !may_come_back || now.saturating_duration_since(first) >= self.options.patience {
            return self.end(at, Outcome::Resumable { reason });
        }
        self.detach(at, CODE_ERROR, "no answer");
        let wait = BACKOFF.saturating_mul(1 << failures.min(10)).min(BACKOFF_MAX);
        let peer = &mut self.peers[at];
        peer.reset();
        peer.lost = Some((first, failures));
        peer.stage = Stage::Waiting { until: now + wait };
        if failures == 0 {
            (self.events)(Event::Lost {
                peer: peer.target.name.clone(),
                reason,
            });
        }
    }

    /// Offers the session on the first link that connected, and closes the others.
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
        let into = self.peers[at].target.into.clone();
        if !into.is_empty() {
            self.control.send(link, &Message::Into(into));
        }
        self.control.send(link, &Message::Offer(self.offer.clone()));
        for chunk in self.manifest.chunks(MANIFEST_CHUNK) {
            self.control.send(link, &Message::Manifest(chunk.to_vec()));
        }
        self.control.send(link, &Message::ManifestEnd);
    }

    fn ask(&self, task: Read) -> Result<(), SendError> {
        self.reader.tasks.send(task).map_err(|_| SendError::Reader)
    }

    /// Handles a message; one that does not fit the peer's stage is ignored.
    fn on_message(&mut self, at: usize, link: LinkId, message: Message) -> Result<(), SendError> {
        let running = match self.peers[at].stage {
            Stage::Running(member) => Some(member),
            _ => None,
        };
        match (message, running) {
            (Message::Refuse { code, text }, _) => self.end(at, Outcome::refused(code, text)),
            // Each extent arrives only once; further messages would only use memory.
            (Message::Have { extent, value }, None)
                if (self.peers[at].haves.len() as u64) < self.layout.extents() =>
            {
                self.peers[at].haves.push_back((extent, value));
            }
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
            (Message::Verified(extent), Some(member)) if extent < self.layout.extents() => {
                if let Some(flow) = self.group.flow_mut(member) {
                    flow.verified(extent);
                }
                let (start, end) = self.layout.bounds(extent);
                let peer = &mut self.peers[at];
                if peer.verified.insert(extent..extent.saturating_add(1)) > 0 {
                    peer.verified_bytes += end - start;
                    peer.progress_at = Instant::now();
                    peer.stalled = None;
                    peer.lost = None;
                }
                self.free_slabs(extent);
            }
            (Message::Rejected(extent), Some(member)) if extent < self.layout.extents() => {
                self.cache.forget(extent);
                if let Some(flow) = self.group.flow_mut(member) {
                    flow.rejected(extent);
                }
                let peer = &mut self.peers[at];
                let (start, end) = self.layout.bounds(extent);
                if peer.verified.remove(extent..extent.saturating_add(1)) > 0 {
                    peer.verified_bytes = peer.verified_bytes.saturating_sub(end - start);
                }
            }
            (Message::NeedGroupValues(extent), Some(_)) if extent < self.layout.extents() => {
                let peer = &mut self.peers[at];
                if !peer.answering.contains(&extent) {
                    peer.needs_values.insert(extent);
                }
            }
            (Message::Committed { file }, _) => (self.events)(Event::File {
                peer: self.peers[at].target.name.clone(),
                file: Some(file),
                path: (self.paths)(file),
                problem: None,
            }),
            (Message::Notice { text }, _) => {
                let peer = &mut self.peers[at];
                // A receiver has one thing to say; further texts would only fill the user's log.
                if !std::mem::replace(&mut peer.has_notice, true) {
                    let peer = peer.target.name.clone();
                    (self.events)(Event::Notice { peer, text });
                }
            }
            (Message::Failed { text }, _) => self.end(at, Outcome::Resumable { reason: text }),
            (Message::Complete { root, signature }, Some(_)) => {
                if self.peers[at].target.key.verifies(&receipt(&root), &signature) {
                    if let Stage::Running(member) = self.peers[at].stage {
                        self.group.leave(member);
                    }
                    self.peers[at].stage = Stage::Receipt(root);
                    let requester = self.requester(at);
                    self.ask(Read::Root { requester })?;
                } else {
                    let reason = "the receiver's signature of the receipt is wrong".into();
                    self.end(at, Outcome::Integrity { reason });
                }
            }
            // Durable extents need no action here: the receiver's journal has them.
            _ => {}
        }
        Ok(())
    }

    /// Handles the reader's answers; returns true if there were any.
    pub(super) fn on_replies(&mut self) -> Result<bool, SendError> {
        let mut any = false;
        while let Ok(reply) = self.reader.replies.try_recv() {
            any = true;
            match reply {
                ReadReply::Sealed(slab) => self.on_sealed(slab),
                ReadReply::Value(extent, value) => self.on_value(extent, value),
                ReadReply::Withdrawn(file, reason) => self.on_withdrawn(file, &reason),
                ReadReply::Have {
                    requester,
                    extent,
                    equal,
                } if requester == self.requester(requester.peer) => {
                    let peer = &mut self.peers[requester.peer];
                    peer.checks = peer.checks.saturating_sub(1);
                    if equal {
                        peer.kept.insert(extent..extent + 1);
                    }
                }
                ReadReply::GroupValues {
                    requester,
                    extent,
                    values,
                } if requester == self.requester(requester.peer) => {
                    let peer = &mut self.peers[requester.peer];
                    peer.answering.retain(|other| *other != extent);
                    if let Some(link) = peer.link {
                        self.control.send(link, &Message::GroupValues { extent, values });
                    }
                }
                ReadReply::Root { requester, root } if requester == self.requester(requester.peer) => {
                    self.on_root(requester.peer, root);
                }
                ReadReply::Failed(error) => return Err(error),
                ReadReply::Have { .. } | ReadReply::GroupValues { .. } | ReadReply::Root { .. } => {}
            }
        }
        Ok(any)
    }

    /// Ends a transfer whose receipt has arrived: the receiver's root is compared with the sender's.
    fn on_root(&mut self, at: usize, own: Option<Value>) {
        let Stage::Receipt(root) = self.peers[at].stage else {
            return;
        };
        let outcome = match own {
            Some(own) if own != root => Outcome::Integrity {
                reason: "the receiver's files differ from the source; send them again".into(),
            },
            _ => Outcome::Delivered,
        };
        self.end(at, outcome);
    }

    /// Lets the reader compare the extents of receivers with the source. Confirms them when all are compared.
    pub(super) fn check_haves(&mut self) -> Result<(), SendError> {
        for at in 0..self.peers.len() {
            while self.peers[at].checks < CHECKS_MAX {
                let Some((extent, value)) = self.peers[at].haves.pop_front() else {
                    break;
                };
                let requester = self.requester(at);
                self.ask(Read::CheckHave {
                    requester,
                    extent,
                    value,
                })?;
                self.peers[at].checks += 1;
            }
            let peer = &mut self.peers[at];
            if let (true, true, 0, Some(link)) =
                (peer.have_end, peer.haves.is_empty(), peer.checks, peer.link)
            {
                peer.have_end = false;
                self.control.send(link, &Message::Keep(fitting(&peer.kept)));
            }
        }
        Ok(())
    }

    /// Lets the reader compute the group values that receivers need: for a few extents of a receiver at once,
    /// and for none while too many answers to it are queued.
    pub(super) fn answer_needs(&mut self) -> Result<(), SendError> {
        for at in 0..self.peers.len() {
            let requester = self.requester(at);
            while let Some(link) = self.peers[at].link
                && self.peers[at].answering.len() < CHECKS_MAX
                && self.control.backlog(link, Class::Values) < ANSWERS_MAX
            {
                let peer = &mut self.peers[at];
                let Some(extent) = peer.needs_values.pop_first() else {
                    break;
                };
                peer.answering.push(extent);
                self.ask(Read::GroupValues { requester, extent })?;
            }
        }
        Ok(())
    }

    /// Returns the congestion control of a new flow.
    fn controller(&self, link: LinkId, seed: u64) -> Box<dyn Controller> {
        let packet_size = u64::from(self.offer.payload) + u64::from(self.headers) + DATA_OVERHEAD as u64;
        match self.options.policy {
            Policy::Background => Box::new(Background::new(packet_size)),
            Policy::Fixed(rate) => Box::new(Fixed::new(rate, packet_size)),
            Policy::Fair => {
                let mut config = BbrConfig::new(packet_size, seed);
                config.initial_rtt = self.control.rtt(link);
                config.delivered_before = self.control.delivered(link);
                config.rate_limit = self.options.rate;
                // A rate for several receivers says nothing about the path to one.
                let alone = self.options.rate.filter(|_| self.peers.len() == 1);
                config.hint = alone.map(|rate| Hint { rate, rtt: None });
                if let Some(tolerance) = self.options.loss_tolerance {
                    config.loss_tolerance = tolerance;
                }
                Box::new(Bbr::new(config, self.clock.now()))
            }
        }
    }

    /// Frees the memory of an extent once no receiver needs it. The next slab that is sealed in it is still
    /// in the processor's caches when it is sent. A receiver that is added later costs a second read.
    fn free_slabs(&mut self, extent: u64) {
        let needs = |peer: &Peer| match peer.stage {
            Stage::Ended(_) | Stage::Receipt(_) => false,
            _ => !peer.verified.contains(extent),
        };
        if !self.peers.iter().any(needs) {
            self.cache.forget(extent);
        }
    }

    /// Returns the largest IP packet that may pass to the peer of a link, in bytes.
    fn path_mtu(&self, link: LinkId) -> u16 {
        let address = self.control.remote(link);
        address.map_or(USUAL_MTU, |address| self.io.path_mtu(address))
    }

    /// Updates the flows' limits of the packet size: the MTU of interfaces and of routers may have changed.
    pub(super) fn limit_mtus(&mut self) {
        for at in 0..self.peers.len() {
            if let (Stage::Running(member), Some(link)) = (&self.peers[at].stage, self.peers[at].link) {
                let (member, mtu) = (*member, self.path_mtu(link));
                if let Some(flow) = self.group.flow_mut(member) {
                    flow.set_mtu_limit(mtu);
                }
            }
        }
    }

    /// Lets an accepted receiver join the group.
    fn join(&mut self, at: usize, link: LinkId, connection: u32, pool: u64, have: RangeSet) {
        let logged = (connection, self.offer.chacha, &self.offer.secret[..]);
        let Some([to_receiver, to_sender]) = self.control.pairwise_keys(link, Some(logged)) else {
            let reason = "TLS exports no keys".into();
            return self.end(at, Outcome::Resumable { reason });
        };
        let layout = self.layout;
        let seed = u64::from_be_bytes(random().unwrap_or([1; 8]));
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
                mtu: self.path_mtu(link),
                initial_rtt: self.control.rtt(link),
                headers: self.headers,
                credit: pool,
                controller: self.controller(link, seed),
                seed: seed.rotate_left(32),
            },
            Connection {
                id: connection,
                to_receiver,
                to_sender,
            },
            self.clock.now(),
        );
        for extent in (0..layout.extents()).filter(|extent| !have.contains(*extent)) {
            if let Some(value) = self.values.get(&extent) {
                let value = *value;
                self.control.send(link, &Message::Value { extent, value });
            }
        }
        for (file, reason) in &self.withdrawn {
            let (file, reason) = (*file, reason.clone());
            self.control.send(link, &Message::Withdrawn { file, reason });
        }
        let peer = &mut self.peers[at];
        // A receiver that had nothing to confirm does not wait for KEEP.
        peer.have_end = false;
        peer.stage = Stage::Running(member);
        peer.verified = have;
        peer.verified_bytes = present;
        peer.progress_at = Instant::now();
        peer.delivered = RateMeter::start(self.clock.time(peer.progress_at), 0);
        peer.accepted_at.get_or_insert(peer.progress_at);
        (self.events)(Event::Accepted {
            peer: peer.target.name.clone(),
            bytes: layout.bytes(),
            present,
        });
    }
}
