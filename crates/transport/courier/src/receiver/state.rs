//! The state of a receiver: the peers, their stages, and the end of each.

use super::options::ReceiveOptions;
use super::session::Session;
use crate::clock::Clock;
use crate::control::{Control, LinkId};
use crate::event::{Event, Outcome};
use crate::files::{FilesError, Sink, Store};
use crate::identity::{Identity, PublicKey};
use crate::io::DatagramIo;
use crate::message::{Message, Offer, RefuseCode};
use crate::ticket::Secret;
use std::collections::HashMap;
use std::time::{Duration, Instant, SystemTime};

/// The time that a sender may take from the handshake to its offer, and to close the link at the end.
pub(super) const GREETING: Duration = Duration::from_secs(10);

/// A secret that lets one sender in.
pub(super) struct Admission {
    pub(super) secret: Secret,
    pub(super) expires: SystemTime,
    pub(super) owner: Option<PublicKey>,
}

/// The stage of a link.
pub(super) enum Stage {
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

/// A sender, admitted or not.
pub(super) struct Peer {
    pub(super) name: String,
    pub(super) stage: Stage,
    pub(super) started: Instant,
}

/// The state of a receiver for all its senders.
pub(super) struct Server<'a> {
    pub(super) clock: Clock,
    pub(super) io: Box<dyn DatagramIo>,
    pub(super) control: Control,
    pub(super) identity: &'a Identity,
    pub(super) store: &'a mut dyn Store,
    pub(super) options: ReceiveOptions,
    pub(super) admissions: Vec<Admission>,
    pub(super) peers: HashMap<LinkId, Peer>,
    pub(super) by_connection: HashMap<u32, LinkId>,
    pub(super) outcomes: Vec<Outcome>,
    pub(super) events: &'a mut dyn FnMut(Event),
}

impl Server<'_> {
    /// Returns true if no sender that was admitted is left.
    pub(super) fn is_idle(&self) -> bool {
        let greets = |peer: &Peer| matches!(peer.stage, Stage::Greeting { .. });
        self.peers.values().all(greets)
    }

    /// Ends a session whose files cannot be written.
    pub(super) fn abandon(&mut self, link: LinkId, error: &FilesError) {
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

    /// Ends a session with a reason that the sender can tell its user.
    pub(super) fn refuse(&mut self, link: LinkId, code: RefuseCode, text: String) {
        self.control.send(
            link,
            &Message::Refuse {
                code,
                text: text.clone(),
            },
        );
        self.end(link, Outcome::refused(code, text));
    }

    /// Ends the session of a link, once.
    pub(super) fn end(&mut self, link: LinkId, outcome: Outcome) {
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
}
