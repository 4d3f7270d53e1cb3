//! The receiver: one thread that owns the socket and the protocol's state of every sender that it admits.
//!
//! ```text
//!  Greeting ── HELLO is admitted ──> Offered ── OFFER, MANIFEST END ──> Keeping ── KEEP ──> Running ── everything in place ──> Ended
//!      └──────────── not admitted, not valid, lost ────────┴─────────────────┴─────────────────┴──────────────────────────> Ended
//! ```

use crate::clock::{Clock, wait};
use crate::control::{CODE_ERROR, Control, ControlError, LinkEvent, LinkId};
use crate::event::{Event, Limit, Outcome};
use crate::files::{FilesError, Sink, SinkEvent, Store};
use crate::identity::{Identity, IdentityError, PublicKey, random};
use crate::message::{Message, Offer, RefuseCode, VERSION};
use crate::receipt;
use crate::socket::Socket;
use crate::ticket::{Secret, Ticket};
use millrace_transport::packet::{Head, PacketType};
use millrace_transport::receiver::{Receiver, ReceiverConfig};
use millrace_transport::seal::{Algorithm, ContentKey, PairwiseKey};
use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant, SystemTime};
use subtle::ConstantTimeEq;
use thiserror::Error;

/// Bytes that may have arrived and not be written.
const POOL: u64 = 256 << 20;
/// Bytes of a manifest at most: some ten million files.
const MANIFEST_MAX: usize = 1 << 30;
const PROGRESS: Duration = Duration::from_millis(500);
const BATCH: usize = 64;
/// How long a sender may take from the handshake to its offer.
const GREETING: Duration = Duration::from_secs(10);

/// How to receive.
#[derive(Clone, Debug)]
pub struct ReceiveOptions {
    /// The address to listen at.
    pub listen: SocketAddr,
    /// Addresses for the ticket; empty: those of this machine.
    pub addresses: Vec<IpAddr>,
    /// End after the first sender.
    pub once: bool,
    /// Senders that need no ticket.
    pub allow: Vec<PublicKey>,
    /// How long the ticket is valid.
    pub expiry: Duration,
}

/// A receiver that cannot go on.
#[derive(Debug, Error)]
pub enum ReceiveError {
    /// The address cannot be used.
    #[error("cannot listen at {address}: {error}; give another one with --listen")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The cause.
        error: io::Error,
    },
    /// The socket fails.
    #[error("the UDP socket failed: {0}")]
    Socket(#[from] io::Error),
    /// TLS fails.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// The system gives no random numbers.
    #[error(transparent)]
    Random(#[from] IdentityError),
}

/// A secret that lets one sender in.
struct Admission {
    secret: Secret,
    expires: SystemTime,
    owner: Option<PublicKey>,
}

struct Session {
    sink: Box<dyn Sink>,
    receiver: Option<Receiver>,
    connection: u32,
    keys: [PairwiseKey; 2],
    content: ContentKey,
    verified_bytes: u64,
    last_verified: u64,
}

enum Stage {
    Greeting {
        until: Instant,
    },
    Offered {
        offer: Option<Offer>,
        manifest: Vec<u8>,
        manifest_ended: bool,
    },
    Serving(Box<Session>),
    /// The sender closes the link; if it does not, we do.
    Ended {
        until: Instant,
        /// The files of a complete transfer. Their journal stays until the sender has confirmed the receipt by closing the
        /// link: a sender that crashes before it finds everything there.
        complete: Option<Box<dyn Sink>>,
    },
}

struct Peer {
    name: String,
    stage: Stage,
    started: Instant,
}

struct Server<'a> {
    clock: Clock,
    socket: Socket,
    control: Control,
    identity: &'a Identity,
    store: &'a mut dyn Store,
    options: ReceiveOptions,
    admissions: Vec<Admission>,
    peers: HashMap<LinkId, Peer>,
    by_connection: HashMap<u32, LinkId>,
    outcomes: Vec<Outcome>,
    events: &'a mut dyn FnMut(Event),
}

/// Receives files into a store; returns how it ended for each sender that was admitted. `stop`: readable when the user stops it.
///
/// # Errors
/// If no sender could be served.
pub fn receive(
    store: &mut dyn Store,
    identity: &Identity,
    options: ReceiveOptions,
    stop: Option<BorrowedFd<'_>>,
    events: &mut dyn FnMut(Event),
) -> Result<Vec<Outcome>, ReceiveError> {
    let address = options.listen;
    let socket = Socket::bind(address).map_err(|error| ReceiveError::Listen { address, error })?;
    let local = socket.local_address()?;
    let secret = random()?;
    let expires = SystemTime::now() + options.expiry;
    let ticket = Ticket {
        expires,
        key: identity.public_key(),
        secret,
        addresses: ticket_addresses(local, &options.addresses),
    };
    events(Event::Listening {
        ticket: ticket.to_string(),
        key: identity.public_key().to_string(),
        address: local.to_string(),
    });
    let mut server = Server {
        clock: Clock::start(),
        control: Control::new(identity, true)?,
        socket,
        identity,
        store,
        options,
        admissions: vec![Admission {
            secret,
            expires,
            owner: None,
        }],
        peers: HashMap::new(),
        by_connection: HashMap::new(),
        outcomes: Vec::new(),
        events,
    };
    server.run(stop)?;
    Ok(server.outcomes)
}

/// Returns the addresses at which others may reach a local one.
fn ticket_addresses(local: SocketAddr, given: &[IpAddr]) -> Vec<SocketAddr> {
    let with_port = |ip: &IpAddr| SocketAddr::new(*ip, local.port());
    if !given.is_empty() {
        return given.iter().map(with_port).collect();
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
    // Loopback serves if there is nothing else.
    if addresses.iter().any(|ip| !ip.is_loopback()) {
        addresses.retain(|ip| !ip.is_loopback());
    }
    addresses.truncate(8);
    addresses.iter().map(with_port).collect()
}

impl Server<'_> {
    fn run(&mut self, stop: Option<BorrowedFd<'_>>) -> Result<(), ReceiveError> {
        let mut progress_at = Instant::now() + PROGRESS;
        loop {
            let received = self.receive()?;
            while let Some((link, event)) = self.control.poll_event() {
                self.on_link_event(link, event);
            }
            let now = Instant::now();
            self.serve(now)?;
            if self.control.next_timeout().is_some_and(|at| at <= now) {
                self.control.on_timeout(now);
            }
            while let Some((to, datagram)) = self.control.poll_transmit(now) {
                self.socket.send(to, &datagram)?;
            }
            if now >= progress_at {
                self.progress();
                progress_at = now + PROGRESS;
            }
            if self.options.once && !self.outcomes.is_empty() && self.is_idle() {
                return Ok(());
            }
            if received {
                continue;
            }
            let sessions = self.peers.values().filter_map(|peer| match &peer.stage {
                Stage::Serving(session) => {
                    let feedback = session.receiver.as_ref().and_then(Receiver::next_timeout);
                    [feedback, session.sink.next_timeout()]
                        .into_iter()
                        .flatten()
                        .min()
                }
                _ => None,
            });
            let next = [
                sessions.min().map(|at| self.clock.instant(at)),
                self.control.next_timeout(),
                Some(progress_at),
            ];
            let until = next.into_iter().flatten().min().unwrap_or(progress_at);
            if wait(self.socket.as_fd(), stop, until)? {
                self.stop();
                while let Some((to, datagram)) = self.control.poll_transmit(Instant::now()) {
                    self.socket.send(to, &datagram)?;
                }
                return Ok(());
            }
        }
    }

    /// Returns true if no sender that was admitted is left.
    fn is_idle(&self) -> bool {
        let greets = |peer: &Peer| matches!(peer.stage, Stage::Greeting { .. });
        self.peers.values().all(greets)
    }

    fn stop(&mut self) {
        let now = self.clock.now();
        let links: Vec<LinkId> = self.peers.keys().copied().collect();
        for link in links {
            let stage = self.peers.get_mut(&link).map(|peer| &mut peer.stage);
            if let Some(Stage::Serving(session)) = stage
                && let Err(error) = session.sink.poll(now)
            {
                tracing::warn!(%error, "the journal was not written");
            }
            let reason = "stopped by the user".into();
            self.end(link, Outcome::Resumable { reason });
            self.control
                .close(Instant::now(), link, CODE_ERROR, "the receiver stopped");
        }
    }

    /// Takes datagrams; returns true if there may be more. Datagrams of unknown connections leave no state.
    fn receive(&mut self) -> Result<bool, ReceiveError> {
        let mut failed = Vec::new();
        for _ in 0..BATCH {
            let Some(burst) = self.socket.receive()? else {
                return self.fail(failed).map(|()| false);
            };
            let (now, time) = (Instant::now(), self.clock.now());
            let (from, segment) = (burst.from, burst.segment);
            for datagram in burst.bytes.chunks_mut(segment) {
                if datagram[0] & 0xc0 != 0 {
                    self.control.handle_datagram(now, from, datagram);
                    continue;
                }
                let Ok(head) = Head::decode(datagram) else {
                    continue;
                };
                let Some(link) = self.by_connection.get(&head.connection) else {
                    continue;
                };
                let Some(Peer {
                    stage: Stage::Serving(session),
                    ..
                }) = self.peers.get_mut(link)
                else {
                    continue;
                };
                if let Err(error) = session.datagram(time, head.packet_type, datagram) {
                    failed.push((*link, error));
                }
            }
        }
        self.fail(failed).map(|()| true)
    }

    fn fail(&mut self, failed: Vec<(LinkId, FilesError)>) -> Result<(), ReceiveError> {
        for (link, error) in failed {
            self.abandon(link, &error);
        }
        Ok(())
    }

    /// Ends a session whose files cannot be written.
    fn abandon(&mut self, link: LinkId, error: &FilesError) {
        self.control.send(
            link,
            &Message::Failed {
                text: error.to_string(),
            },
        );
        self.end(
            link,
            Outcome::Resumable {
                reason: error.to_string(),
            },
        );
    }

    /// Ends the session of a link, once.
    fn end(&mut self, link: LinkId, outcome: Outcome) {
        let Some(peer) = self.peers.get_mut(&link) else {
            return;
        };
        let until = Instant::now() + GREETING;
        let bytes = match &peer.stage {
            Stage::Ended { .. } => return,
            Stage::Serving(session) => {
                self.by_connection.remove(&session.connection);
                session.verified_bytes
            }
            // Strangers get no event.
            Stage::Greeting { .. } => {
                peer.stage = Stage::Ended {
                    until,
                    complete: None,
                };
                return;
            }
            Stage::Offered { .. } => 0,
        };
        let event = Event::Done {
            peer: peer.name.clone(),
            outcome: outcome.clone(),
            bytes,
            seconds: peer.started.elapsed().as_secs_f64(),
        };
        let ended = Stage::Ended {
            until,
            complete: None,
        };
        if let (Stage::Serving(session), Outcome::Delivered) =
            (std::mem::replace(&mut peer.stage, ended), &outcome)
        {
            let complete = Some(session.sink);
            peer.stage = Stage::Ended { until, complete };
        }
        self.outcomes.push(outcome);
        (self.events)(event);
    }

    fn on_link_event(&mut self, link: LinkId, event: LinkEvent) {
        match event {
            LinkEvent::Connected => {
                let Some(key) = self.control.peer_key(link) else {
                    self.control.close(Instant::now(), link, CODE_ERROR, "no key");
                    return;
                };
                let now = Instant::now();
                let until = now + GREETING;
                let stage = Stage::Greeting { until };
                self.peers.insert(
                    link,
                    Peer {
                        name: key.to_string(),
                        stage,
                        started: now,
                    },
                );
            }
            LinkEvent::Closed { reason, done } => {
                self.end(link, Outcome::Resumable { reason });
                let peer = self.peers.remove(&link);
                if let Some(Stage::Ended {
                    complete: Some(sink), ..
                }) = peer.map(|peer| peer.stage)
                    && done
                    && let Err(error) = sink.close()
                {
                    tracing::warn!(%error, "the journal was not removed");
                }
            }
            LinkEvent::Message(message) => self.on_message(link, message),
        }
    }

    fn refuse(&mut self, link: LinkId, code: RefuseCode, text: String) {
        self.control.send(
            link,
            &Message::Refuse {
                code,
                text: text.clone(),
            },
        );
        self.end(link, Outcome::refused(code, text));
    }

    fn on_message(&mut self, link: LinkId, message: Message) {
        let Some(peer) = self.peers.get_mut(&link) else {
            return;
        };
        let result = match (&mut peer.stage, message) {
            (Stage::Greeting { .. }, Message::Hello { version, secret }) => {
                self.greet(link, version, &secret);
                Ok(())
            }
            (Stage::Offered { offer, .. }, Message::Offer(given)) => {
                *offer = Some(given);
                self.open(link)
            }
            (Stage::Offered { manifest, .. }, Message::Manifest(bytes)) => {
                manifest.extend_from_slice(&bytes);
                if manifest.len() > MANIFEST_MAX {
                    self.refuse(
                        link,
                        RefuseCode::Manifest,
                        format!("the manifest exceeds {MANIFEST_MAX} bytes"),
                    );
                }
                Ok(())
            }
            (Stage::Offered { manifest_ended, .. }, Message::ManifestEnd) => {
                *manifest_ended = true;
                self.open(link)
            }
            (Stage::Serving(session), Message::Keep(keep)) if session.receiver.is_none() => {
                session.keep(&keep).map(|accept| {
                    (self.events)(Event::Accepted {
                        peer: peer.name.clone(),
                        bytes: session.sink.layout().bytes(),
                        present: session.verified_bytes,
                    });
                    self.by_connection.insert(session.connection, link);
                    self.control.send(link, &accept);
                })
            }
            (Stage::Serving(session), Message::Value { extent, value }) => {
                session.sink.on_value(extent, &value)
            }
            (Stage::Serving(session), Message::GroupValues { extent, values }) => {
                session.sink.on_group_values(extent, &values)
            }
            (Stage::Serving(session), Message::Withdrawn { file, .. }) => session.sink.on_withdrawn(file),
            _ => Ok(()),
        };
        if let Err(error) = result {
            self.abandon(link, &error);
        }
    }

    /// Admits a sender, or refuses it by name.
    fn greet(&mut self, link: LinkId, version: u64, secret: &[u8]) {
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
                if let Some(peer) = self.peers.get_mut(&link) {
                    peer.stage = Stage::Offered {
                        offer: None,
                        manifest: Vec::new(),
                        manifest_ended: false,
                    };
                }
                self.control.admit(Instant::now(), link);
            }
            Err(text) => self.refuse(link, RefuseCode::NotAdmitted, text),
        }
    }

    fn admission(&mut self, key: PublicKey, secret: &[u8]) -> Result<(), String> {
        if self.options.allow.contains(&key) {
            return Ok(());
        }
        if secret.is_empty() {
            return Err(format!(
                "the key {key} is not on the receiver's list; use a ticket, or `millrace receive --allow {key}`"
            ));
        }
        let known = self
            .admissions
            .iter_mut()
            .find(|admission| bool::from(admission.secret[..].ct_eq(secret)));
        let Some(admission) = known else {
            return Err("the ticket is not of this receiver; use the one that it printed last".into());
        };
        if SystemTime::now() >= admission.expires {
            return Err("the ticket has expired; start `millrace receive` again for a new one".into());
        }
        match admission.owner {
            Some(owner) if owner != key => {
                Err("the ticket belongs to another sender; ask for one of your own".into())
            }
            _ => {
                admission.owner = Some(key);
                Ok(())
            }
        }
    }

    /// Opens the sink when offer and manifest are complete, and tells the sender what is there.
    fn open(&mut self, link: LinkId) -> Result<(), FilesError> {
        let Some(peer) = self.peers.get_mut(&link) else {
            return Ok(());
        };
        let Stage::Offered {
            offer,
            manifest,
            manifest_ended,
        } = &mut peer.stage
        else {
            return Ok(());
        };
        // They come on streams of their own, in either order.
        let (Some(offer), true) = (offer.clone(), *manifest_ended) else {
            return Ok(());
        };
        let manifest = std::mem::take(manifest);
        let mut sink = match self.store.open(&manifest) {
            Ok(sink) => sink,
            Err(error) => {
                self.refuse(link, RefuseCode::Manifest, error.to_string());
                return Ok(());
            }
        };
        let algorithm = if offer.chacha {
            Algorithm::ChaCha20Poly1305
        } else {
            Algorithm::Aes128Gcm
        };
        let content =
            ContentKey::new(algorithm, &offer.secret).map_err(|error| FilesError(error.to_string()))?;
        let Some(keys) = self.control.pairwise_keys(link) else {
            return Err(FilesError("TLS exports no keys".into()));
        };
        while let Some((extent, value)) = sink.poll_have()? {
            self.control.send(link, &Message::Have { extent, value });
        }
        self.control.send(link, &Message::HaveEnd);
        let connection = loop {
            let id = u32::from_be_bytes(random().map_err(|error| FilesError(error.to_string()))?);
            if !self.by_connection.contains_key(&id) {
                break id;
            }
        };
        peer.stage = Stage::Serving(Box::new(Session {
            sink,
            receiver: None,
            connection,
            keys,
            content,
            verified_bytes: 0,
            last_verified: 0,
        }));
        Ok(())
    }

    /// Lets sinks work, sends answers and feedback.
    fn serve(&mut self, now: Instant) -> Result<(), ReceiveError> {
        let time = self.clock.now();
        let links: Vec<LinkId> = self.peers.keys().copied().collect();
        for link in links {
            let remote = self.control.remote(link);
            let Some(peer) = self.peers.get_mut(&link) else {
                continue;
            };
            match &mut peer.stage {
                Stage::Greeting { until } | Stage::Ended { until, .. } if now >= *until => {
                    self.control.close(now, link, CODE_ERROR, "the session is over");
                    self.peers.remove(&link);
                }
                Stage::Serving(session) if session.receiver.is_some() => {
                    // A sink decides on its own when to sync; new events may be a reason.
                    if let Err(error) = session.sink.poll(time) {
                        self.abandon(link, &error);
                        continue;
                    }
                    let complete =
                        session.answers(link, &peer.name, self.identity, &mut self.control, self.events);
                    if let Some(remote) = remote {
                        for packet in session.feedback(time) {
                            self.socket.send(remote, &packet)?;
                        }
                    }
                    if let Some(outcome) = complete {
                        self.end(link, outcome);
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn progress(&mut self) {
        for (link, peer) in &mut self.peers {
            let Stage::Serving(session) = &mut peer.stage else {
                continue;
            };
            let total = session.sink.layout().bytes();
            let new = session.verified_bytes - session.last_verified;
            session.last_verified = session.verified_bytes;
            let rate_bps = (new as f64 * 8.0 / PROGRESS.as_secs_f64()) as u64;
            let left = total - session.verified_bytes.min(total);
            (self.events)(Event::Progress {
                peer: peer.name.clone(),
                verified: session.verified_bytes,
                bytes: total,
                rate_bps,
                eta_s: (rate_bps > 0).then(|| left * 8 / rate_bps),
                rtt_ms: self.control.rtt(*link).unwrap_or_default().as_secs_f64() * 1e3,
                loss: 0.0,
                limit: Limit::Network,
            });
        }
    }
}

impl Session {
    /// Keeps what the sender confirmed; returns the acceptance.
    fn keep(&mut self, keep: &millrace_transport::ranges::RangeSet) -> Result<Message, FilesError> {
        let layout = self.sink.layout();
        for range in keep.ranges() {
            if range.end > layout.extents() {
                return Err(FilesError(
                    "the sender confirmed extents that the session has not".into(),
                ));
            }
            for extent in range.clone() {
                self.sink.keep(extent)?;
            }
        }
        self.sink.start()?;
        let have = self.sink.verified();
        for extent in have.ranges().iter().flat_map(Clone::clone) {
            let (start, end) = layout.bounds(extent);
            self.verified_bytes += end - start;
        }
        self.last_verified = self.verified_bytes;
        self.receiver = Some(Receiver::new(ReceiverConfig {
            layout,
            have: have.clone(),
            connection: self.connection,
            pool: POOL,
        }));
        Ok(Message::Accept {
            connection: self.connection,
            pool: POOL,
            have,
        })
    }

    /// Takes a datagram of the data path; what is not valid is dropped and counted.
    fn datagram(
        &mut self,
        now: millrace_types::Time,
        packet_type: PacketType,
        datagram: &mut [u8],
    ) -> Result<(), FilesError> {
        let Some(receiver) = &mut self.receiver else {
            return Ok(());
        };
        match packet_type {
            PacketType::Data => {
                let mut written = 0;
                let delivery = receiver.handle_data(now, datagram, &self.keys[0], &mut self.content, false);
                if let Ok(Some(delivery)) = delivery {
                    for range in &delivery.new {
                        let skip = usize::try_from(range.start - delivery.address).unwrap_or(usize::MAX);
                        let len = usize::try_from(range.end - range.start).unwrap_or(0);
                        if let Some(bytes) = delivery.bytes.get(skip..).and_then(|bytes| bytes.get(..len)) {
                            written += self.sink.write(range.start, bytes)?;
                        }
                    }
                }
                receiver.written(written);
            }
            PacketType::Report => {
                let _ = receiver.handle_report(datagram, &self.keys[0]);
            }
            PacketType::Feedback => {}
        }
        Ok(())
    }

    /// Sends the sink's events to the sender; returns the outcome when everything is in place.
    fn answers(
        &mut self,
        link: LinkId,
        name: &str,
        identity: &Identity,
        control: &mut Control,
        events: &mut dyn FnMut(Event),
    ) -> Option<Outcome> {
        let layout = self.sink.layout();
        let mut outcome = None;
        while let Some(event) = self.sink.poll_event() {
            let Some(receiver) = &mut self.receiver else { break };
            let file_event = |file, problem| Event::File {
                peer: name.to_owned(),
                file,
                problem,
            };
            match event {
                SinkEvent::Verified(extent) => {
                    receiver.verified(extent);
                    let (start, end) = layout.bounds(extent);
                    self.verified_bytes += end - start;
                    control.send(link, &Message::Verified(extent));
                }
                SinkEvent::Rejected(extent) => {
                    receiver.rejected(extent);
                    control.send(link, &Message::Rejected(extent));
                }
                SinkEvent::Durable(extent) => {
                    receiver.durable(extent);
                    control.send(link, &Message::Durable(extent));
                }
                SinkEvent::NeedGroupValues(extent) => control.send(link, &Message::NeedGroupValues(extent)),
                SinkEvent::Committed(file) => {
                    control.send(link, &Message::Committed { file });
                    events(file_event(Some(file), None));
                }
                SinkEvent::Failed(file, problem) => events(file_event(file, Some(problem))),
                SinkEvent::Complete => {
                    let root = self.sink.root().unwrap_or_default();
                    let signature = identity.sign(&receipt(&root));
                    control.send(link, &Message::Complete { root, signature });
                    outcome = Some(Outcome::Delivered);
                }
            }
        }
        outcome
    }

    /// Returns the feedback packets that are due.
    fn feedback(&mut self, now: millrace_types::Time) -> Vec<Vec<u8>> {
        let Some(receiver) = &mut self.receiver else {
            return Vec::new();
        };
        let due = receiver.poll_feedback(now);
        due.iter()
            .map(|(number, feedback)| receiver.encode_feedback(*number, feedback, &self.keys[1]))
            .collect()
    }
}
