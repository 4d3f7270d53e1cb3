//! The sender: one thread that owns the socket, the protocol's state and pacing, for all receivers.
//!
//! ```text
//!  Dialing ── connected ──> Offered ── HAVE END ──> Checking ── KEEP, ACCEPT ──> Running ── COMPLETE ──> Ended
//!     └──────────── no answer, REFUSE, lost, stopped ─────────────┴──────────────────┴──────────────────> Ended
//! ```

use crate::clock::{Clock, wait};
use crate::control::{CODE_DONE, CODE_ERROR, Control, ControlError, LinkEvent, LinkId};
use crate::event::{Event, Limit, Outcome};
use crate::files::{FilesError, Source, Value};
use crate::identity::{Identity, IdentityError, PublicKey, random};
use crate::message::{MANIFEST_CHUNK, Message, Offer, VERSION};
use crate::receipt;
use crate::socket::{SEGMENTS_MAX, SEND_MAX, Socket, headers};
use crate::ticket::Secret;
use millrace_transport::congestion::bbr::{Bbr, BbrConfig};
use millrace_transport::flow::{self, FlowConfig, Outgoing};
use millrace_transport::packet::{DATA_OVERHEAD, HEAD_SIZE, SHARED_OVERHEAD};
use millrace_transport::ranges::RangeSet;
use millrace_transport::seal::{Algorithm, ContentKey, SealError};
use millrace_transport::sender::{CACHE_SIZE, Connection, Group, MemberId, SealPieceError};
use millrace_types::BitRate;
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};
use thiserror::Error;

/// How long a receiver may take to answer the first packet.
const DIAL: Duration = Duration::from_secs(10);
/// How long closed links get to tell their peers.
const LINGER: Duration = Duration::from_secs(1);
const PROGRESS: Duration = Duration::from_millis(500);
/// Time without a new verified extent after which a peer counts as stalled.
const STALLED: Duration = Duration::from_secs(10);
/// Bursts read, and quanta sent, before the other side of the loop has its turn.
const BATCH: usize = 32;
/// Payload of a full packet at an MTU of 1,500 bytes, a multiple of 16.
const PAYLOAD: [(u16, u16); 2] = [(28, 1_424), (48, 1_408)];

/// A receiver to send to.
#[derive(Clone, Debug)]
pub struct Target {
    /// The name in events.
    pub name: String,
    /// Addresses; the first that answers is used.
    pub addresses: Vec<SocketAddr>,
    /// The receiver's key.
    pub key: PublicKey,
    /// The secret of a ticket; without one, the receiver must know our key.
    pub secret: Option<Secret>,
}

/// How to send.
#[derive(Clone, Debug, Default)]
pub struct SendOptions {
    /// An upper bound for all receivers together.
    pub rate: Option<BitRate>,
    /// The loss that is not taken for congestion, if not the default.
    pub loss_tolerance: Option<f64>,
}

/// A transfer that cannot go on for any receiver.
#[derive(Debug, Error)]
pub enum SendError {
    /// The socket fails.
    #[error("the UDP socket failed: {0}")]
    Socket(#[from] io::Error),
    /// TLS or an address fails.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// The files cannot be read.
    #[error(transparent)]
    Files(#[from] FilesError),
    /// A packet cannot be sealed.
    #[error(transparent)]
    Seal(#[from] SealPieceError),
    /// The content key cannot be used.
    #[error(transparent)]
    Key(#[from] SealError),
    /// The system gives no random numbers.
    #[error(transparent)]
    Random(#[from] IdentityError),
}

enum Stage {
    Dialing { links: Vec<LinkId>, until: Instant },
    Offered,
    Checking,
    Running(MemberId),
    Ended(Outcome),
}

struct Peer {
    target: Target,
    stage: Stage,
    link: Option<LinkId>,
    haves: VecDeque<(u64, Value)>,
    have_end: bool,
    kept: RangeSet,
    verified: RangeSet,
    verified_bytes: u64,
    accepted_at: Instant,
    progress_at: Instant,
    stalled: Option<u64>,
    /// Payload bytes delivered, and packets sent and lost, at the last progress event.
    last: (u64, u64, u64),
    sent_bytes: u64,
}

struct Sender<'a> {
    clock: Clock,
    socket: Socket,
    control: Control,
    identity: &'a Identity,
    source: &'a mut dyn Source,
    options: SendOptions,
    group: Group<ContentKey>,
    offer: Offer,
    headers: u16,
    peers: Vec<Peer>,
    outgoing: Vec<Outgoing>,
    events: &'a mut dyn FnMut(Event),
    /// Time spent reading and hashing, and waiting, since the last progress event.
    reading: Duration,
    waiting: Duration,
}

/// Sends the files of a source to all targets; returns how it ended for each. `stop`: readable when the user stops it.
///
/// # Errors
/// If it cannot go on for any of them.
pub fn send(
    source: &mut dyn Source,
    identity: &Identity,
    targets: Vec<Target>,
    options: SendOptions,
    stop: Option<BorrowedFd<'_>>,
    events: &mut dyn FnMut(Event),
) -> Result<Vec<Outcome>, SendError> {
    let addresses = || targets.iter().flat_map(|target| &target.addresses);
    let only_v4 = addresses().all(SocketAddr::is_ipv4);
    let local = if only_v4 {
        IpAddr::V4(Ipv4Addr::UNSPECIFIED)
    } else {
        IpAddr::V6(Ipv6Addr::UNSPECIFIED)
    };
    let headers = addresses().map(headers).max().unwrap_or(28);
    let payload = PAYLOAD
        .iter()
        .find(|(known, _)| *known == headers)
        .map_or(1_408, |(_, payload)| *payload);
    let chacha = !has_aes();
    let secret = random()?;
    let algorithm = if chacha {
        Algorithm::ChaCha20Poly1305
    } else {
        Algorithm::Aes128Gcm
    };
    let content = ContentKey::new(algorithm, &secret)?;
    let layout = source.layout();
    let mut group = Group::new(layout, payload, content, CACHE_SIZE);
    let clock = Clock::start();
    let packet_size = u64::from(payload) + u64::from(headers) + DATA_OVERHEAD as u64;
    group.set_uplink(options.rate, packet_size, clock.now());
    let mut sender = Sender {
        socket: Socket::bind(SocketAddr::new(local, 0))?,
        control: Control::new(identity, false)?,
        clock,
        identity,
        source,
        options,
        group,
        offer: Offer {
            payload,
            chacha,
            secret,
        },
        headers,
        peers: Vec::new(),
        outgoing: Vec::new(),
        events,
        reading: Duration::ZERO,
        waiting: Duration::ZERO,
    };
    for target in targets {
        sender.dial(target, only_v4)?;
    }
    sender.run(stop)?;
    Ok(sender
        .peers
        .into_iter()
        .map(|peer| match peer.stage {
            Stage::Ended(outcome) => outcome,
            _ => Outcome::Resumable {
                reason: "stopped".into(),
            },
        })
        .collect())
}

fn has_aes() -> bool {
    #[cfg(target_arch = "x86_64")]
    return std::arch::is_x86_feature_detected!("aes");
    #[cfg(not(target_arch = "x86_64"))]
    return cfg!(target_arch = "aarch64");
}

/// Returns the address as a socket of the given family takes it.
fn mapped(address: SocketAddr, only_v4: bool) -> SocketAddr {
    match address.ip() {
        IpAddr::V4(ip) if !only_v4 => SocketAddr::new(IpAddr::V6(ip.to_ipv6_mapped()), address.port()),
        _ => address,
    }
}

impl Sender<'_> {
    fn dial(&mut self, target: Target, only_v4: bool) -> Result<(), SendError> {
        let now = Instant::now();
        let mut links = Vec::new();
        for address in &target.addresses {
            let address = mapped(*address, only_v4);
            links.push(self.control.connect(now, self.identity, address, target.key)?);
        }
        self.peers.push(Peer {
            target,
            stage: Stage::Dialing {
                links,
                until: now + DIAL,
            },
            link: None,
            haves: VecDeque::new(),
            have_end: false,
            kept: RangeSet::new(),
            verified: RangeSet::new(),
            verified_bytes: 0,
            accepted_at: now,
            progress_at: now,
            stalled: None,
            last: (0, 0, 0),
            sent_bytes: 0,
        });
        Ok(())
    }

    fn run(&mut self, stop: Option<BorrowedFd<'_>>) -> Result<(), SendError> {
        let mut progress_at = Instant::now() + PROGRESS;
        let mut linger: Option<Instant> = None;
        loop {
            self.receive()?;
            while let Some((link, event)) = self.control.poll_event() {
                self.on_link_event(link, event)?;
            }
            let checking = self.check_haves()?;
            let now = Instant::now();
            self.on_timeouts(now);
            let sending = self.transmit()?;
            while let Some((to, datagram)) = self.control.poll_transmit(now) {
                self.socket.send(to, &datagram)?;
            }
            if now >= progress_at {
                self.progress(now);
                progress_at = now + PROGRESS;
            }
            if self
                .peers
                .iter()
                .all(|peer| matches!(peer.stage, Stage::Ended(_)))
            {
                let until = *linger.get_or_insert(now + LINGER);
                if self.control.len() == 0 || now >= until {
                    return Ok(());
                }
            }
            if checking || sending {
                continue;
            }
            let next = [
                self.group.next_timeout().map(|at| self.clock.instant(at)),
                self.control.next_timeout(),
                linger,
                Some(progress_at),
            ];
            let until = next.into_iter().flatten().min().unwrap_or(progress_at);
            let before = Instant::now();
            if wait(self.socket.as_fd(), stop, until)? {
                self.end_all(&Outcome::Resumable {
                    reason: "stopped by the user".into(),
                });
                while let Some((to, datagram)) = self.control.poll_transmit(Instant::now()) {
                    self.socket.send(to, &datagram)?;
                }
                return Ok(());
            }
            self.waiting += before.elapsed();
        }
    }

    fn end_all(&mut self, outcome: &Outcome) {
        for at in 0..self.peers.len() {
            self.end(at, outcome.clone());
        }
    }

    /// Ends the transfer to one peer, once.
    fn end(&mut self, at: usize, outcome: Outcome) {
        let now = Instant::now();
        let peer = &mut self.peers[at];
        let links = match &peer.stage {
            Stage::Ended(_) => return,
            Stage::Dialing { links, .. } => links.clone(),
            Stage::Running(member) => {
                let member = *member;
                self.group.leave(member);
                Vec::new()
            }
            _ => Vec::new(),
        };
        for link in links.into_iter().chain(peer.link) {
            let (code, reason) = match &outcome {
                Outcome::Delivered => (CODE_DONE, ""),
                _ => (CODE_ERROR, "the sender stopped"),
            };
            self.control.close(now, link, code, reason);
        }
        let event = Event::Done {
            peer: peer.target.name.clone(),
            outcome: outcome.clone(),
            bytes: peer.sent_bytes,
            seconds: peer.accepted_at.elapsed().as_secs_f64(),
        };
        peer.stage = Stage::Ended(outcome);
        (self.events)(event);
    }

    /// Takes datagrams: feedback to the group, all others to QUIC.
    fn receive(&mut self) -> Result<(), SendError> {
        for _ in 0..BATCH {
            let Some(burst) = self.socket.receive()? else {
                break;
            };
            let now = Instant::now();
            for datagram in burst.bytes.chunks(burst.segment) {
                if datagram[0] & 0xc0 == 0 {
                    // Anything that is not valid feedback is dropped; a receiver that violates the protocol has left the group.
                    if let Err(error) = self.group.handle_feedback(self.clock.now(), datagram) {
                        tracing::debug!(%error, "a datagram was dropped");
                    }
                } else {
                    self.control.handle_datagram(now, burst.from, datagram);
                }
            }
        }
        Ok(())
    }

    fn on_timeouts(&mut self, now: Instant) {
        if self.control.next_timeout().is_some_and(|at| at <= now) {
            self.control.on_timeout(now);
        }
        let time = self.clock.now();
        if self.group.next_timeout().is_some_and(|at| at <= time) {
            self.group.on_timeout(time);
        }
        for at in 0..self.peers.len() {
            match self.peers[at].stage {
                Stage::Dialing { until, .. } if now >= until => self.end(at, Outcome::Resumable {
                    reason: "no answer from the receiver; check that `millrace receive` runs and that UDP passes".into(),
                }),
                Stage::Running(member) if self.group.flow(member).is_none() => self.end(at, Outcome::Integrity {
                    reason: "the receiver acknowledged packets that were never sent".into(),
                }),
                _ => {}
            }
        }
    }

    fn on_link_event(&mut self, link: LinkId, event: LinkEvent) -> Result<(), SendError> {
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
    fn check_haves(&mut self) -> Result<bool, SendError> {
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

    /// Sends what may leave now; returns true if more may.
    fn transmit(&mut self) -> Result<bool, SendError> {
        let mut more = false;
        for round in 0..BATCH {
            let mut outgoing = std::mem::take(&mut self.outgoing);
            outgoing.clear();
            let member = self.group.poll(self.clock.now(), &mut outgoing);
            let result = member.map_or(Ok(()), |member| self.send_quantum(member, &outgoing));
            self.outgoing = outgoing;
            result?;
            if member.is_none() {
                break;
            }
            more = round + 1 == BATCH;
        }
        for (member, report) in self.group.poll_reports(self.clock.now()) {
            if let Some(to) = self.address(member) {
                self.socket.send(to, &report)?;
            }
        }
        self.send_values();
        Ok(more)
    }

    fn address(&self, member: MemberId) -> Option<SocketAddr> {
        let peer = self
            .peers
            .iter()
            .find(|peer| matches!(peer.stage, Stage::Running(of) if of == member))?;
        self.control.remote(peer.link?)
    }

    /// Sends the packets of one quantum in as few calls as their sizes allow.
    fn send_quantum(&mut self, member: MemberId, outgoing: &[Outgoing]) -> Result<(), SendError> {
        let Some(to) = self.address(member) else {
            return Ok(());
        };
        for packet in outgoing {
            let piece = packet.piece;
            if self.group.sealed(piece).is_none() {
                let before = Instant::now();
                let bytes = self.source.read(piece.address, usize::from(piece.len))?;
                self.reading += before.elapsed();
                self.group.seal(piece, bytes)?;
            }
        }
        let (mut heads, mut shared) = (
            Vec::with_capacity(outgoing.len()),
            Vec::with_capacity(outgoing.len()),
        );
        let mut bytes = 0;
        for packet in outgoing {
            // A packet that the next one pushed out of the cache counts as lost, and is repaired.
            let Some(sealed) = self.group.sealed(packet.piece) else {
                continue;
            };
            let Some(head) = self.group.head(member, packet.number, sealed) else {
                continue;
            };
            heads.push(head);
            shared.push(sealed.bytes());
            bytes += u64::from(packet.piece.len);
        }
        let mut first = 0;
        while first < heads.len() {
            let segment = HEAD_SIZE + shared[first].len();
            let most = SEGMENTS_MAX.min(SEND_MAX / segment).max(1);
            let mut end = first + 1;
            while end < heads.len() && end - first < most && HEAD_SIZE + shared[end - 1].len() == segment {
                // A shorter packet may be the last of a burst.
                if HEAD_SIZE + shared[end].len() > segment {
                    break;
                }
                end += 1;
            }
            let parts: Vec<IoSlice<'_>> = heads[first..end]
                .iter()
                .zip(&shared[first..end])
                .flat_map(|(head, shared)| [IoSlice::new(head), IoSlice::new(shared)])
                .collect();
            self.socket.send_segments(to, &parts, segment)?;
            first = end;
        }
        let running = |peer: &&mut Peer| matches!(peer.stage, Stage::Running(of) if of == member);
        if let Some(peer) = self.peers.iter_mut().find(running) {
            peer.sent_bytes += bytes;
        }
        Ok(())
    }

    /// Sends new values and withdrawals to the receivers that need them.
    fn send_values(&mut self) {
        while let Some((extent, value)) = self.source.poll_value() {
            for peer in &self.peers {
                if let (Stage::Running(_), Some(link), false) =
                    (&peer.stage, peer.link, peer.verified.contains(extent))
                {
                    self.control.send(link, &Message::Value { extent, value });
                }
            }
        }
        while let Some((file, reason)) = self.source.poll_withdrawn() {
            for peer in &self.peers {
                if let (Stage::Running(_), Some(link)) = (&peer.stage, peer.link) {
                    let reason = reason.clone();
                    self.control.send(link, &Message::Withdrawn { file, reason });
                }
            }
            (self.events)(Event::File {
                peer: "source".into(),
                file: Some(file),
                problem: Some(reason),
            });
        }
    }

    fn progress(&mut self, now: Instant) {
        let interval = PROGRESS.as_secs_f64();
        let total = self.source.layout().bytes();
        let busy = PROGRESS.saturating_sub(self.waiting);
        for peer in &mut self.peers {
            let Stage::Running(member) = peer.stage else {
                continue;
            };
            let Some(flow) = self.group.flow(member) else {
                continue;
            };
            let stats = flow.stats();
            let packet = f64::from(self.offer.payload) + flow.overhead() as f64;
            let payload = (flow.delivered() as f64 * f64::from(self.offer.payload) / packet) as u64;
            let rate_bps = (payload.saturating_sub(peer.last.0) as f64 * 8.0 / interval) as u64;
            let (sent, lost) = (stats.sent - peer.last.1, stats.lost.saturating_sub(peer.last.2));
            let rate = flow.controller().bandwidth().map_or(0, |rate| rate.bps() / 8);
            if let Some(link) = peer.link {
                self.control.lend(link, rate, flow.rtt());
            }
            peer.last = (payload, stats.sent, stats.lost);
            let left = total.saturating_sub(peer.verified_bytes);
            let limit = match flow.limit() {
                flow::Limit::Peer => Limit::PeerDisk,
                flow::Limit::Nothing => Limit::Nothing,
                flow::Limit::Network if self.reading * 2 > PROGRESS => Limit::OwnDisk,
                flow::Limit::Network if busy * 20 > PROGRESS * 19 => Limit::Cpu,
                flow::Limit::Network => match self.options.rate {
                    Some(rate) if rate_bps * 20 > rate.bps() * 17 => Limit::Rate,
                    _ => Limit::Network,
                },
            };
            (self.events)(Event::Progress {
                peer: peer.target.name.clone(),
                verified: peer.verified_bytes,
                bytes: total,
                rate_bps,
                eta_s: (rate_bps > 0).then(|| left * 8 / rate_bps),
                rtt_ms: flow.rtt().as_secs_f64() * 1e3,
                loss: if sent == 0 {
                    0.0
                } else {
                    (lost as f64 / sent as f64).min(1.0)
                },
                limit,
            });
            let silent = now.saturating_duration_since(peer.progress_at);
            if silent >= STALLED && peer.stalled.is_none() {
                peer.stalled = Some(silent.as_secs());
                (self.events)(Event::Stalled {
                    peer: peer.target.name.clone(),
                    seconds: silent.as_secs(),
                });
            }
        }
        (self.reading, self.waiting) = (Duration::ZERO, Duration::ZERO);
    }
}

const _: () = assert!(
    HEAD_SIZE + SHARED_OVERHEAD == DATA_OVERHEAD,
    "a packet is head and shared part"
);
