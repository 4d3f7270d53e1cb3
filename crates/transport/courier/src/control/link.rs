//! A link: the QUIC connection with one peer, its streams, and its end.
//!
//! A peer may lose the datagram with CONNECTION_CLOSE, and an endpoint that ends does not answer it any more. The datagram is
//! therefore sent [`FAREWELLS`] times (RFC 9000, section 10.2.1, permits to send it again), so that a program can end at once, and not
//! only after the three probe timeouts of the closing state.

use crate::message::{CLASSES, Class, GREETING_MAX, Message};
use crate::window::SharedWindow;
use bytes::Bytes;
use millrace_listener::Source;
use quinn_proto::{Connection, ConnectionHandle, Dir, ReadError, StreamId};
use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// The number of datagrams with CONNECTION_CLOSE.
const FAREWELLS: u8 = 3;
/// The time between two of these datagrams.
const FAREWELL_INTERVAL: Duration = Duration::from_millis(10);

/// The datagram with CONNECTION_CLOSE.
struct Farewell {
    to: SocketAddr,
    datagram: Vec<u8>,
    /// How many more times the datagram is sent.
    left: u8,
    /// The time at which it is sent next.
    next: Instant,
}

/// An event of a control connection.
#[derive(Debug)]
pub(crate) enum LinkEvent {
    Connected,
    Message(Message),
    Closed {
        reason: String,
        end: LinkEnd,
    },
    /// An authentic datagram of a peer that this end dialled came from another address than the one that was dialled.
    Moved(SocketAddr),
}

/// The reason why a link ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LinkEnd {
    /// The peer closed the link because the session is complete.
    Done,
    /// The peer closed the link, or violates the protocol.
    Closed,
    /// The peer is silent; it may come back.
    Lost,
    /// The peer presents another key than the expected one.
    WrongKey,
    /// The peer has no room for the link; it may have room later.
    Busy,
}

/// Identifies a link.
pub(crate) type LinkId = ConnectionHandle;

/// A QUIC connection with its streams.
pub(super) struct Link {
    pub(super) connection: Connection,
    pub(super) window: SharedWindow,
    pub(super) out: [Outbound; CLASSES],
    pub(super) inbound: HashMap<StreamId, Vec<u8>>,
    /// True if the connection had no datagram to send when it was last asked, and nothing has happened to it
    /// since.
    pub(super) quiet: bool,
    /// The address of the peer when it dialled.
    pub(super) source: Source,
    /// The peer opened the connection.
    pub(super) dialled: bool,
    /// The receiver accepts the key or the ticket of the peer: the link keeps its place when others dial.
    pub(super) authorized: bool,
    /// The peer may send more than its first stream.
    pub(super) admitted: bool,
    /// Bytes that the peer sent before it was admitted.
    greeting_size: usize,
    pub(super) closing: bool,
    /// The datagram with CONNECTION_CLOSE, once it was sent.
    farewell: Option<Farewell>,
    /// The time at which a peer that dials must have completed its handshake.
    pub(super) handshake_until: Option<Instant>,
}

#[derive(Default)]
pub(super) struct Outbound {
    pub(super) stream: Option<StreamId>,
    pub(super) queue: VecDeque<Bytes>,
}

impl Link {
    /// Returns the link of a connection. `handshake_until` is the limit for a peer that dials, which is not
    /// admitted yet.
    pub(super) fn new(
        connection: Connection,
        window: SharedWindow,
        source: Source,
        handshake_until: Option<Instant>,
    ) -> Link {
        Link {
            connection,
            window,
            out: Default::default(),
            inbound: HashMap::new(),
            quiet: false,
            source,
            dialled: handshake_until.is_some(),
            authorized: handshake_until.is_none(),
            admitted: handshake_until.is_none(),
            greeting_size: 0,
            closing: false,
            farewell: None,
            handshake_until,
        }
    }

    /// Returns the number of frames of some usual types that arrived in authentic packets, each packet once.
    pub(super) fn frames(&self) -> u64 {
        let frames = self.connection.stats().frame_rx;
        frames.ping + frames.acks + frames.stream
    }

    /// Returns the next datagram of the connection, and its destination.
    pub(super) fn poll_transmit(&mut self, now: Instant) -> Option<(SocketAddr, Vec<u8>)> {
        if self.quiet {
            return None;
        }
        let mut datagram = Vec::new();
        let Some(transmit) = self.connection.poll_transmit(now, 1, &mut datagram) else {
            self.quiet = true;
            return None;
        };
        if self.closing && self.farewell.is_none() {
            self.farewell = Some(Farewell {
                to: transmit.destination,
                datagram: datagram.clone(),
                left: FAREWELLS - 1,
                next: now + FAREWELL_INTERVAL,
            });
        }
        Some((transmit.destination, datagram))
    }

    /// Returns the time at which the link has something to do.
    pub(super) fn poll_timeout(&mut self) -> Option<Instant> {
        let farewell = self.farewell.as_ref().filter(|farewell| farewell.left > 0);
        let times = [
            self.connection.poll_timeout(),
            farewell.map(|farewell| farewell.next),
        ];
        times.into_iter().flatten().min()
    }

    /// Returns the datagram with CONNECTION_CLOSE if it is due again, and its destination.
    pub(super) fn repeat_close(&mut self, now: Instant) -> Option<(SocketAddr, Vec<u8>)> {
        let farewell = self.farewell.as_mut()?;
        if farewell.left == 0 || farewell.next > now {
            return None;
        }
        farewell.left -= 1;
        farewell.next = now + FAREWELL_INTERVAL;
        Some((farewell.to, farewell.datagram.clone()))
    }

    /// Returns true if the connection is closed, and the peer was notified as often as it is to be.
    pub(super) fn is_finished(&self) -> bool {
        let is_notified = match &self.farewell {
            Some(farewell) => farewell.left == 0,
            // A connection that the peer closed sends nothing.
            None => self.quiet,
        };
        self.connection.is_closed() && is_notified
    }

    /// Writes queued messages to the QUIC streams, as far as flow control allows.
    pub(super) fn write(&mut self) {
        for (class, out) in [Class::Session, Class::Manifest, Class::Values, Class::Answers]
            .into_iter()
            .zip(&mut self.out)
        {
            if out.queue.is_empty() {
                continue;
            }
            if out.stream.is_none() {
                let dir = if class == Class::Session {
                    Dir::Bi
                } else {
                    Dir::Uni
                };
                out.stream = self.connection.streams().open(dir);
                if let (Some(stream), Class::Session) = (out.stream, class) {
                    self.inbound.insert(stream, Vec::new());
                }
            }
            let Some(stream) = out.stream else { continue };
            while let Some(bytes) = out.queue.front_mut() {
                match self.connection.send_stream(stream).write(bytes) {
                    Ok(written) if written == bytes.len() => {
                        out.queue.pop_front();
                    }
                    Ok(written) => {
                        let _ = bytes.split_to(written);
                    }
                    Err(quinn_proto::WriteError::Blocked) => break,
                    Err(_) => out.queue.clear(),
                }
            }
        }
    }

    /// Reads the bytes that arrived on each stream, and appends the complete messages to `events`.
    pub(super) fn read(
        &mut self,
        id: LinkId,
        events: &mut VecDeque<(LinkId, LinkEvent)>,
    ) -> Result<(), String> {
        let streams: Vec<StreamId> = self.inbound.keys().copied().collect();
        for stream in streams {
            if !self.admitted && stream.dir() == Dir::Uni {
                continue;
            }
            let Some(bytes) = self.inbound.get_mut(&stream) else {
                continue;
            };
            let mut ended = false;
            let mut reader = self.connection.recv_stream(stream);
            if let Ok(mut chunks) = reader.read(true) {
                loop {
                    match chunks.next(64 << 10) {
                        Ok(Some(chunk)) => {
                            bytes.extend_from_slice(&chunk.bytes);
                            if !self.admitted {
                                self.greeting_size += chunk.bytes.len();
                                if self.greeting_size > GREETING_MAX {
                                    break;
                                }
                            }
                        }
                        Ok(None) | Err(ReadError::Reset(_)) => {
                            ended = true;
                            break;
                        }
                        Err(ReadError::Blocked) => break,
                    }
                }
                let _ = chunks.finalize();
            }
            if !self.admitted && self.greeting_size > GREETING_MAX {
                return Err(format!(
                    "the peer sent more than {GREETING_MAX} bytes before it was admitted"
                ));
            }
            let mut handle = |message| events.push_back((id, LinkEvent::Message(message)));
            Message::take_all(bytes, &mut handle).map_err(|error| error.to_string())?;
            if ended {
                self.inbound.remove(&stream);
            }
        }
        Ok(())
    }
}
