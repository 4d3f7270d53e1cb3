//! The control channel: one QUIC connection for each peer, sans-IO, on the socket that data packets use.
//!
//! Retry packets validate addresses before a connection has any state here (RFC 9000, section 8.1); greasing of the QUIC bit is
//! off (RFC 9287), since data packets have that bit clear.
//!
//! A link is pending until the receiver accepts the ticket or the key of its peer. Pending links have a pool of their own with limits for
//! each address ([`millrace_listener`]): at a limit, a new link closes the oldest one of its address, or of the address with the most. Keys
//! cost nothing, so a limit for each key does not stop a peer that makes a key for each connection. A peer whose link is closed for want of
//! room gets the code [`CODE_BUSY`], and dials again after a pause.

mod link;

use crate::identity::{Identity, PublicKey};
use crate::key_log::KeyLog;
use crate::message::{Class, Message};
use crate::tls;
use crate::window::SharedWindow;
use bytes::{Bytes, BytesMut};
use link::Link;
pub(crate) use link::{LinkEnd, LinkEvent, LinkId};
use millrace_listener::{Limits, Source};
use millrace_transport::seal::PairwiseKey;
use quinn_proto::{
    ClientConfig, ConnectionError, ConnectionEvent, DatagramEvent, Endpoint, EndpointConfig, EndpointEvent,
    Event, IdleTimeout, ServerConfig, StreamEvent, Transmit, TransportConfig, TransportErrorCode, VarInt,
};
use rustls::pki_types::CertificateDer;
use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use thiserror::Error;

/// The limits of a receiver: links of peers that it has accepted, and pending ones. A peer needs two round trips for its handshake and
/// its greeting; at 130 handshakes a second from as many addresses it has two seconds, which suffice for a path of 400 ms.
pub(crate) const LIMITS: Limits = Limits {
    established: 64,
    established_of_source: 64,
    pending: 256,
    pending_of_source: 64,
};
/// The QUIC application error code of a link that is closed because its work is done.
pub(crate) const CODE_DONE: u32 = 0;
/// The QUIC application error code of a link that is closed after an error.
pub(crate) const CODE_ERROR: u32 = 1;
/// The QUIC application error code of a link that is closed because the receiver has no room for it: the peer may dial again.
pub(crate) const CODE_BUSY: u32 = 2;
/// The reason that such a peer is told.
pub(crate) const BUSY: &str = "the receiver has too many connections; try again later";
/// The time that a peer that is dialled may take to answer: one that runs on a busy machine needs seconds for the handshake, and QUIC
/// sends its first packet again after 1, 3, 7 and 15 s (RFC 9002, section 6.2.2).
pub(crate) const DIAL: Duration = Duration::from_secs(20);
/// The time limit of the handshake of a peer that dials.
const HANDSHAKE: Duration = Duration::from_secs(10);
const EXPORTER_LABEL: &[u8] = b"EXPERIMENTAL millrace pairwise keys";

/// The reason why a control channel cannot be created or cannot dial a peer.
#[derive(Debug, Error)]
pub enum ControlError {
    /// The key cannot be used for TLS.
    #[error("the identity cannot be used for TLS: {0}")]
    Tls(#[from] rustls::Error),
    /// The address cannot be dialled.
    #[error("cannot connect to {address}: {error}")]
    Connect {
        address: SocketAddr,
        error: quinn_proto::ConnectError,
    },
}

/// The links of one socket.
pub(crate) struct Control {
    endpoint: Endpoint,
    links: HashMap<LinkId, Link>,
    events: VecDeque<(LinkId, LinkEvent)>,
    /// Answers to datagrams that belong to no link.
    responses: VecDeque<(SocketAddr, Vec<u8>)>,
    buffer: Vec<u8>,
    server: Option<ServerConfig>,
    silence: Duration,
    key_log: Option<KeyLog>,
}

fn transport(window: SharedWindow, silence: Duration) -> Arc<TransportConfig> {
    let mut config = TransportConfig::default();
    config
        .max_concurrent_bidi_streams(VarInt::from_u32(1))
        .max_concurrent_uni_streams(VarInt::from_u32(4))
        .max_idle_timeout(IdleTimeout::try_from(silence).ok())
        .keep_alive_interval(Some(silence / 4))
        .stream_receive_window(VarInt::from_u32(8 << 20))
        .send_window(8 << 20)
        .datagram_receive_buffer_size(None)
        .mtu_discovery_config(None)
        .enable_segmentation_offload(false)
        .congestion_controller_factory(Arc::new(window));
    Arc::new(config)
}

impl Control {
    /// Returns a control channel without links. If `listens`, unknown peers may connect. A peer is lost after `silence` without a packet.
    pub(crate) fn new(
        identity: &Identity,
        listens: bool,
        silence: Duration,
        key_log: Option<KeyLog>,
    ) -> Result<Control, ControlError> {
        let mut endpoint = EndpointConfig::default();
        endpoint.grease_quic_bit(false);
        let server = if listens {
            Some(ServerConfig::with_crypto(Arc::new(tls::server(
                identity,
                key_log.as_ref(),
            )?)))
        } else {
            None
        };
        Ok(Control {
            endpoint: Endpoint::new(Arc::new(endpoint), server.clone().map(Arc::new), false, None),
            server,
            links: HashMap::new(),
            events: VecDeque::new(),
            responses: VecDeque::new(),
            buffer: Vec::new(),
            silence,
            key_log,
        })
    }

    /// Dials a receiver.
    pub(crate) fn connect(
        &mut self,
        now: Instant,
        identity: &Identity,
        address: SocketAddr,
        key: PublicKey,
    ) -> Result<LinkId, ControlError> {
        let window = SharedWindow::default();
        let mut config = ClientConfig::new(Arc::new(tls::client(identity, key, self.key_log.as_ref())?));
        config.transport_config(transport(window.clone(), self.silence));
        let (id, connection) = self
            .endpoint
            .connect(now, config, address, tls::SERVER_NAME)
            .map_err(|error| ControlError::Connect { address, error })?;
        self.links
            .insert(id, Link::new(connection, window, address.into(), None));
        Ok(id)
    }

    /// Handles a datagram that is no data packet.
    pub(crate) fn handle_datagram(&mut self, now: Instant, from: SocketAddr, datagram: &[u8]) {
        self.buffer.clear();
        let event = self
            .endpoint
            .handle(now, from, None, None, BytesMut::from(datagram), &mut self.buffer);
        match event {
            Some(DatagramEvent::ConnectionEvent(id, event)) => match self.dialled_address(id) {
                Some(dialled) if dialled != from => self.handle_moved(now, id, (from, dialled), datagram),
                _ => self.pass(now, id, event),
            },
            Some(DatagramEvent::Response(transmit)) => self.respond(&transmit),
            Some(DatagramEvent::NewConnection(incoming)) => {
                if !incoming.remote_address_validated() {
                    if let Ok(transmit) = self.endpoint.retry(incoming, &mut self.buffer) {
                        self.respond(&transmit);
                    }
                } else {
                    self.make_room(now, from);
                    let window = SharedWindow::default();
                    // Each link gets a separate congestion window.
                    let config = self.server.clone().map(|mut config| {
                        config.transport_config(transport(window.clone(), self.silence));
                        Arc::new(config)
                    });
                    match self.endpoint.accept(incoming, now, &mut self.buffer, config) {
                        Ok((id, connection)) => {
                            let until = Some(now + HANDSHAKE);
                            self.links
                                .insert(id, Link::new(connection, window, from.into(), until));
                            self.drive(now, id);
                        }
                        Err(error) => {
                            if let Some(transmit) = error.response {
                                self.respond(&transmit);
                            }
                        }
                    }
                }
            }
            None => {}
        }
    }

    /// Returns the address of a peer that this end dialled, once the handshake is complete.
    fn dialled_address(&self, id: LinkId) -> Option<SocketAddr> {
        let link = self.links.get(&id)?;
        let is_dialled = !link.dialled && !link.connection.is_handshaking();
        is_dialled.then(|| link.connection.remote_address())
    }

    /// Handles a datagram of a peer that this end dialled, from another address. QUIC knows no server that moves, and its
    /// clients drop such datagrams (RFC 9000, section 9). A receiver may move, and only its datagrams tell where it is. An
    /// authentic one is handled as if it came from the dialled address, and its source is reported. Nothing is sent there:
    /// somebody on the path may have changed the source.
    fn handle_moved(
        &mut self,
        now: Instant,
        id: LinkId,
        (from, dialled): (SocketAddr, SocketAddr),
        datagram: &[u8],
    ) {
        let frames = |control: &Control| control.links.get(&id).map_or(0, Link::frames);
        let before = frames(self);
        self.buffer.clear();
        let datagram = BytesMut::from(datagram);
        let event = self
            .endpoint
            .handle(now, dialled, None, None, datagram, &mut self.buffer);
        if let Some(DatagramEvent::ConnectionEvent(id, event)) = event {
            self.pass(now, id, event);
        }
        if frames(self) > before {
            self.events.push_back((id, LinkEvent::Moved(from)));
        }
    }

    /// Ends a pending link at once if the pool is full, to make room for one from an address.
    fn make_room(&mut self, now: Instant, from: SocketAddr) {
        let pending = self.links.iter().filter(|(_, link)| !link.authorized);
        let mut pending: Vec<_> = pending
            .map(|(id, link)| ((!link.closing, link.handshake_until), *id, link.source))
            .collect();
        pending.sort_unstable_by_key(|(age, ..)| *age);
        let pending: Vec<(LinkId, Source)> = pending.iter().map(|(_, id, source)| (*id, *source)).collect();
        let Some(id) = LIMITS.to_be_closed(from.into(), &pending) else {
            return;
        };
        self.close(now, id, CODE_BUSY, BUSY);
        if let Some(link) = self.links.get_mut(&id) {
            self.responses.extend(link.poll_transmit(now));
            // The peer gets no second CONNECTION_CLOSE if this one is lost: a draining link would count towards the limits.
            let _ = self.endpoint.handle_event(id, EndpointEvent::drained());
            self.links.remove(&id);
            // The next link gets the same number.
            self.events.retain(|(link, _)| *link != id);
            let (reason, end) = (BUSY.to_owned(), LinkEnd::Closed);
            self.events.push_back((id, LinkEvent::Closed { reason, end }));
        }
    }

    fn respond(&mut self, transmit: &Transmit) {
        self.responses
            .push_back((transmit.destination, self.buffer[..transmit.size].to_vec()));
    }

    fn pass(&mut self, now: Instant, id: LinkId, event: ConnectionEvent) {
        if let Some(link) = self.links.get_mut(&id) {
            link.connection.handle_event(event);
            self.drive(now, id);
        }
    }

    /// Moves events between endpoint, connection and streams.
    fn drive(&mut self, now: Instant, id: LinkId) {
        let mut drained = false;
        if let Some(link) = self.links.get_mut(&id) {
            link.quiet = false;
        }
        while let Some(link) = self.links.get_mut(&id) {
            let mut idle = true;
            while let Some(event) = link.connection.poll_endpoint_events() {
                idle = false;
                drained |= event.is_drained();
                if let Some(event) = self.endpoint.handle_event(id, event) {
                    link.connection.handle_event(event);
                }
            }
            while let Some(event) = link.connection.poll() {
                idle = false;
                match event {
                    Event::Connected => self.events.push_back((id, LinkEvent::Connected)),
                    Event::ConnectionLost { reason } => {
                        let end = link_end(&reason);
                        let reason = closed(&reason);
                        self.events.push_back((id, LinkEvent::Closed { reason, end }));
                    }
                    Event::Stream(StreamEvent::Opened { dir }) => {
                        while let Some(stream) = link.connection.streams().accept(dir) {
                            link.inbound.insert(stream, Vec::new());
                        }
                    }
                    _ => {}
                }
            }
            if let Err(error) = link.read(id, &mut self.events) {
                link.inbound.clear();
                link.closing = true;
                link.connection
                    .close(now, VarInt::from_u32(CODE_ERROR), error.clone().into());
                let (reason, end) = (error, LinkEnd::Closed);
                self.events.push_back((id, LinkEvent::Closed { reason, end }));
            }
            link.write();
            if idle {
                break;
            }
        }
        if drained {
            self.links.remove(&id);
        }
    }

    /// Keeps a link whose key or ticket the receiver accepts, however many other peers dial. Returns false if the receiver serves
    /// as many peers as it can; the link then stays pending.
    #[must_use]
    pub(crate) fn authorize(&mut self, id: LinkId) -> bool {
        let accepted = self
            .links
            .values()
            .filter(|link| link.authorized && link.dialled && !link.closing);
        let has_room = accepted.count() < LIMITS.established;
        if let Some(link) = self.links.get_mut(&id) {
            link.authorized |= has_room;
        }
        has_room
    }

    /// Lets the peer of a link send manifests and values, which stay in its streams until this call.
    pub(crate) fn admit(&mut self, now: Instant, id: LinkId) {
        if let Some(link) = self.links.get_mut(&id) {
            link.admitted = true;
        }
        self.drive(now, id);
    }

    /// Queues a message.
    pub(crate) fn send(&mut self, id: LinkId, message: &Message) {
        if let Some(link) = self.links.get_mut(&id) {
            link.out[message.class() as usize]
                .queue
                .push_back(Bytes::from(message.encode()));
            link.write();
            link.quiet = false;
        }
    }

    /// Closes a link; messages that are queued are lost.
    pub(crate) fn close(&mut self, now: Instant, id: LinkId, code: u32, reason: &str) {
        if let Some(link) = self.links.get_mut(&id) {
            if !link.closing {
                link.closing = true;
                link.connection.close(
                    now,
                    VarInt::from_u32(code),
                    Bytes::copy_from_slice(reason.as_bytes()),
                );
            }
            self.drive(now, id);
        }
    }

    /// Closes links with an incomplete handshake after [`HANDSHAKE`]. The limit on silence does not suffice:
    /// each packet restarts it, even if it does not complete the handshake.
    pub(crate) fn end_handshakes(&mut self, now: Instant) {
        let is_late = |link: &Link| {
            link.connection.is_handshaking() && link.handshake_until.is_some_and(|until| now >= until)
        };
        let late: Vec<LinkId> = self
            .links
            .iter()
            .filter_map(|(id, link)| is_late(link).then_some(*id))
            .collect();
        for id in late {
            self.close(now, id, CODE_ERROR, "the handshake took too long");
        }
    }

    /// Returns the number of queued messages of a class that the peer has not taken yet.
    pub(crate) fn backlog(&self, id: LinkId, class: Class) -> usize {
        self.links
            .get(&id)
            .map_or(0, |link| link.out[class as usize].queue.len())
    }

    /// Returns the next event.
    pub(crate) fn poll_event(&mut self) -> Option<(LinkId, LinkEvent)> {
        self.events.pop_front()
    }

    /// Returns the next datagram to be sent.
    pub(crate) fn poll_transmit(&mut self, now: Instant) -> Option<(SocketAddr, Vec<u8>)> {
        if let Some(response) = self.responses.pop_front() {
            return Some(response);
        }
        self.links.values_mut().find_map(|link| link.poll_transmit(now))
    }

    /// Returns the time of the next timer of a link.
    pub(crate) fn next_timeout(&mut self) -> Option<Instant> {
        self.links.values_mut().filter_map(Link::poll_timeout).min()
    }

    /// Runs the timers that are due.
    pub(crate) fn on_timeout(&mut self, now: Instant) {
        let due: Vec<LinkId> = self
            .links
            .iter_mut()
            .filter_map(|(id, link)| (link.poll_timeout()? <= now).then_some(*id))
            .collect();
        for id in due {
            if let Some(link) = self.links.get_mut(&id) {
                link.connection.handle_timeout(now);
                self.responses.extend(link.repeat_close(now));
            }
            self.drive(now, id);
        }
    }

    /// Returns true if all links are closed, and all peers were notified: nothing is lost if the process ends.
    pub(crate) fn is_finished(&self) -> bool {
        self.responses.is_empty() && self.links.values().all(Link::is_finished)
    }

    /// Returns the peer's address, which changes if the peer moves.
    pub(crate) fn remote(&self, id: LinkId) -> Option<SocketAddr> {
        Some(self.links.get(&id)?.connection.remote_address())
    }

    /// Returns the round-trip time of control packets.
    pub(crate) fn rtt(&self, id: LinkId) -> Option<Duration> {
        Some(self.links.get(&id)?.connection.rtt())
    }

    /// Sends a packet that the peer must acknowledge. A peer whose feedback is overdue may have none of this sender's present
    /// address, which only packets of the control channel tell it (RFC 9000, section 9).
    pub(crate) fn ping(&mut self, id: LinkId) {
        if let Some(link) = self.links.get_mut(&id) {
            link.connection.ping();
            link.quiet = false;
        }
    }

    /// Returns the number of PING frames that arrived by a link.
    #[cfg(test)]
    pub(crate) fn pings(&self, id: LinkId) -> u64 {
        self.links
            .get(&id)
            .map_or(0, |link| link.connection.stats().frame_rx.ping)
    }

    /// Returns the most bytes that a link delivered in a round trip.
    pub(crate) fn delivered(&self, id: LinkId) -> u64 {
        self.links.get(&id).map_or(0, |link| link.window.delivered())
    }

    /// Sets the control channel's window from the data path's model.
    pub(crate) fn set_window(&mut self, id: LinkId, bytes_per_second: u64, rtt: Duration) {
        if let Some(link) = self.links.get_mut(&id) {
            link.window.set(bytes_per_second, rtt);
            link.quiet = false;
        }
    }

    /// Returns the peer's key.
    pub(crate) fn peer_key(&self, id: LinkId) -> Option<PublicKey> {
        let identity = self.links.get(&id)?.connection.crypto_session().peer_identity()?;
        let keys = identity.downcast::<Vec<CertificateDer<'static>>>().ok()?;
        tls::key_of_spki(keys.first()?)
    }

    /// Returns the pairwise keys of data packets, to the receiver and to the sender. They come from the TLS
    /// exporter (RFC 8446, section 7.5). `logged`: the connection number, the AEAD and the content secret for
    /// the key log.
    pub(crate) fn pairwise_keys(
        &self,
        id: LinkId,
        logged: Option<(u32, bool, &[u8])>,
    ) -> Option<[PairwiseKey; 2]> {
        let mut bytes = [0; 32];
        let session = self.links.get(&id)?.connection.crypto_session();
        session
            .export_keying_material(&mut bytes, EXPORTER_LABEL, &[])
            .ok()?;
        if let (Some(key_log), Some((connection, chacha, secret))) = (&self.key_log, logged) {
            key_log.session(connection, chacha, secret, &bytes);
        }
        let key = |from: usize| PairwiseKey::new(std::array::from_fn(|at| bytes[from + at]));
        Some([key(0), key(16)])
    }
}

/// Returns the error for a peer with another key than the expected one.
fn wrong_key(reason: &ConnectionError) -> Option<&str> {
    // Only this end's own error is meant, and no text of the peer's.
    let ConnectionError::TransportError(error) = reason else {
        return None;
    };
    error.reason.find(tls::WRONG_KEY).map(|at| &error.reason[at..])
}

fn link_end(reason: &ConnectionError) -> LinkEnd {
    match reason {
        reason if wrong_key(reason).is_some() => LinkEnd::WrongKey,
        ConnectionError::ApplicationClosed(close) if close.error_code == VarInt::from_u32(CODE_DONE) => {
            LinkEnd::Done
        }
        ConnectionError::ApplicationClosed(close) if close.error_code == VarInt::from_u32(CODE_BUSY) => {
            LinkEnd::Busy
        }
        // In its handshake, a peer learns no application error code (RFC 9000, section 10.2.3).
        ConnectionError::ConnectionClosed(close)
            if [
                TransportErrorCode::APPLICATION_ERROR,
                TransportErrorCode::CONNECTION_REFUSED,
            ]
            .contains(&close.error_code) =>
        {
            LinkEnd::Busy
        }
        ConnectionError::TimedOut | ConnectionError::Reset => LinkEnd::Lost,
        _ => LinkEnd::Closed,
    }
}

fn closed(reason: &ConnectionError) -> String {
    match reason {
        ConnectionError::ApplicationClosed(close) => {
            let reason: String = String::from_utf8_lossy(&close.reason)
                .chars()
                .filter(|char| !char.is_control())
                .collect();
            if reason.is_empty() {
                "closed by the peer".into()
            } else {
                reason
            }
        }
        ConnectionError::ConnectionClosed(_) if link_end(reason) == LinkEnd::Busy => BUSY.into(),
        ConnectionError::TimedOut => "no answer from the peer".into(),
        reason => wrong_key(reason).map_or_else(|| reason.to_string(), str::to_owned),
    }
}

#[cfg(test)]
mod tests;
