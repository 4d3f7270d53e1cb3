//! The state of a receiver: the peers, their stages, and the end of each.

use super::options::ReceiveOptions;
use super::requests::{Fetching, Jobs};
use super::session::{Session, SetId};
use crate::access::{Access, TransferObserver};
use crate::clock::Clock;
use crate::control::{CODE_DONE, CODE_ERROR, Control, LinkId};
use crate::event::{Event, Outcome, left_out};
use crate::files::{FilesError, Store};
use crate::identity::{Identity, PublicKey};
use crate::io::DatagramIo;
use crate::message::{Class, Message, Offer};
use crate::pool::Waker;
use crate::refusal::RefuseCode;
use crate::ticket::Ticket;
use std::collections::HashMap;
use std::sync::Arc;
use std::thread::{Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

/// The time that a sender may take from the handshake to its offer, and to close the link at the end.
pub(super) const GREETING: Duration = Duration::from_secs(10);

/// The minimum age of an answer before its link may be closed for a new link of the same key: 16 requests in
/// a row take several round trips, and longer than this.
const ANSWER_TIME: Duration = Duration::from_millis(50);

/// The maximum number of links of one key without a session. A sender dials up to eight addresses of a
/// receiver at once.
pub(super) const LINKS_OF_KEY_MAX: usize = 16;

/// A ticket that admits one sender.
pub(super) struct Admission {
    pub(super) ticket: Ticket,
    pub(super) owner: Option<PublicKey>,
    /// The owner's transfer is delivered: from now on the expiry of the ticket counts for the owner, too.
    pub(super) delivered: bool,
}

/// The stage of a link.
pub(super) enum Stage<'scope> {
    Greeting {
        until: Instant,
    },
    /// This receiver dialled a daemon and asked for files.
    Asking,
    /// A thread answers the peer's request.
    Requested,
    Offered {
        /// When the sender must have sent its offer, or the next part of its manifest.
        until: Instant,
        /// The path at which the sender wants to store its files.
        into: Vec<u8>,
        offer: Option<Offer>,
        manifest: Vec<u8>,
    },
    Serving(Box<Session<'scope>>),
    /// The sender closes the link; after `until`, the receiver closes it.
    Ended {
        until: Instant,
        /// The session of a complete transfer. Its journal stays until the sender has confirmed the receipt
        /// by closing the link. A sender that crashes earlier comes back and finds everything present.
        complete: Option<Box<Session<'scope>>>,
    },
}

/// The destination of files, and the access rules.
#[derive(Clone, Copy)]
pub(crate) enum FileDestination<'a> {
    /// One store; a ticket or a list of keys admits senders.
    Store(&'a dyn Store),
    /// A daemon: access rules give each peer a separate store.
    Access(&'a dyn Access),
}

/// A sender, admitted or not.
pub(super) struct Peer<'scope> {
    pub(super) key: PublicKey,
    pub(super) name: String,
    pub(super) stage: Stage<'scope>,
    pub(super) started: Instant,
    /// Observes a transfer that a daemon admitted.
    pub(super) observer: Option<Box<dyn TransferObserver>>,
}

/// A session whose sender was lost, and may come back.
pub(super) struct LostSession<'scope> {
    pub(super) key: PublicKey,
    pub(super) name: String,
    pub(super) set: SetId,
    /// Makes verified extents durable, and ends.
    pub(super) worker: Option<ScopedJoinHandle<'scope, ()>>,
    pub(super) started: Instant,
    pub(super) until: Instant,
    pub(super) verified_bytes: u64,
    /// The outcome if the sender does not come back.
    pub(super) outcome: Outcome,
    pub(super) observer: Option<Box<dyn TransferObserver>>,
}

/// The writer of a session that ended before everything was in place. It makes verified extents durable, and
/// a new session of the same files waits for it.
pub(super) struct FinishingSession<'scope> {
    key: PublicKey,
    set: SetId,
    worker: ScopedJoinHandle<'scope, ()>,
}

/// The state of a receiver for all its senders.
pub(super) struct Server<'a, 'scope, 'env> {
    pub(super) clock: Clock,
    pub(super) io: Box<dyn DatagramIo>,
    pub(super) control: Control,
    pub(super) identity: &'scope Identity,
    pub(super) destination: FileDestination<'scope>,
    pub(super) scope: &'scope Scope<'scope, 'env>,
    pub(super) waker: Arc<Waker>,
    pub(super) options: ReceiveOptions,
    pub(super) admissions: Vec<Admission>,
    pub(super) peers: HashMap<LinkId, Peer<'scope>>,
    pub(super) lost: Vec<LostSession<'scope>>,
    pub(super) finishing: Vec<FinishingSession<'scope>>,
    pub(super) by_connection: HashMap<u32, LinkId>,
    pub(super) outcomes: Vec<Outcome>,
    pub(super) jobs: Jobs<'scope>,
    pub(super) fetching: Option<Fetching>,
    /// The latest time at which the receiver ends, once it begins no further transfer.
    pub(super) drained_at: Option<Instant>,
    /// The time of the last data packet.
    pub(super) data_at: Option<Instant>,
    pub(super) events: &'a mut dyn FnMut(Event),
}

/// Lets the writer of a session end. A new session of the same sender waits for it.
pub(super) fn finish_writer<'scope>(
    finishing: &mut Vec<FinishingSession<'scope>>,
    key: PublicKey,
    session: Session<'scope>,
) {
    let set = session.set;
    if let Some(worker) = session.finish() {
        finishing.retain(|earlier| !earlier.worker.is_finished());
        finishing.push(FinishingSession { key, set, worker });
    }
}

impl<'scope> Server<'_, 'scope, '_> {
    /// Returns true if no admitted sender remains, and none may come back.
    pub(super) fn is_idle(&self) -> bool {
        let greets = |peer: &Peer<'_>| matches!(peer.stage, Stage::Greeting { .. } | Stage::Asking);
        self.lost.is_empty() && self.peers.values().all(greets)
    }

    /// Returns true if no transfer runs. Lost senders do not count.
    pub(super) fn is_drained(&mut self) -> bool {
        let runs = |peer: &Peer<'_>| {
            matches!(
                peer.stage,
                Stage::Requested
                    | Stage::Offered { .. }
                    | Stage::Serving(_)
                    | Stage::Ended {
                        complete: Some(_),
                        ..
                    }
            )
        };
        !self.peers.values().any(runs) && self.jobs.is_idle()
    }

    /// Returns the time by which a sender must have sent the next part of its offer. An outage that is
    /// shorter than the limit on silence does not end the offer.
    pub(super) fn offer_until(&self) -> Instant {
        Instant::now() + 2 * self.options.silence
    }

    /// Returns true if a session of a key runs, waits for its sender, or is about to end.
    pub(super) fn has_session(&self, key: PublicKey) -> bool {
        let serves = |peer: &Peer<'_>| {
            matches!(
                peer.stage,
                Stage::Serving(_)
                    | Stage::Ended {
                        complete: Some(_),
                        ..
                    }
            )
        };
        self.peers.values().any(|peer| peer.key == key && serves(peer))
            || self.lost.iter().any(|session| session.key == key)
            || self
                .finishing
                .iter()
                .any(|session| session.key == key && !session.worker.is_finished())
    }

    /// Returns the number of links of a key that have no session.
    pub(super) fn links_without_session(&self, key: PublicKey) -> usize {
        let waits = |peer: &&Peer<'_>| peer.key == key && !matches!(peer.stage, Stage::Serving(_));
        self.peers.values().filter(waits).count()
    }

    /// Closes the oldest answered link of a key that is still open here. The peer's close of a FETCH link
    /// never arrives here, because it goes to the socket of the sending session. The peer must have received
    /// the answer, and the answer must be older than [`ANSWER_TIME`]. Returns false if there is no such link.
    pub(super) fn close_answered(&mut self, now: Instant, key: PublicKey) -> bool {
        let answered = self.peers.iter().filter_map(|(link, peer)| match &peer.stage {
            Stage::Ended {
                until,
                complete: None,
            } if peer.key == key && now + GREETING >= *until + ANSWER_TIME => Some((*until, *link)),
            _ => None,
        });
        let taken = answered.filter(|(_, link)| self.control.backlog(*link, Class::Answers) == 0);
        let Some((_, link)) = taken.min_by_key(|(until, _)| *until) else {
            return false;
        };
        self.control.close(now, link, CODE_DONE, "");
        self.peers.remove(&link);
        true
    }

    /// Ends a session because its files cannot be written.
    pub(super) fn abandon(&mut self, link: LinkId, error: &FilesError) {
        let text = error.to_string();
        self.control.send(link, &Message::Failed { text });
        let reason = error.to_string();
        self.end(link, Outcome::Resumable { reason });
    }

    /// Ends a session, with a reason for the sender's user.
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
        let ended = |complete| Stage::Ended {
            until: Instant::now() + GREETING,
            complete,
        };
        let mut withdrawn = 0;
        let bytes = match std::mem::replace(&mut peer.stage, ended(None)) {
            stage @ Stage::Ended { .. } => {
                peer.stage = stage;
                return;
            }
            // Unknown peers, and requests, get no event.
            Stage::Greeting { .. } | Stage::Requested | Stage::Asking => return,
            Stage::Offered { .. } => 0,
            Stage::Serving(session) => {
                self.by_connection.remove(&session.connection);
                let bytes = session.verified_bytes;
                if outcome == Outcome::Delivered {
                    withdrawn = session.withdrawn;
                    peer.stage = ended(Some(session));
                } else {
                    finish_writer(&mut self.finishing, peer.key, *session);
                }
                bytes
            }
        };
        // The ticket of a transfer that is delivered is kept until the sender has the receipt.
        if let (Outcome::Refused { .. } | Outcome::Integrity { .. }, Some(kept)) =
            (&outcome, self.options.kept_ticket())
        {
            kept.forget();
        }
        let outcome = if withdrawn > 0 {
            left_out(withdrawn)
        } else {
            outcome
        };
        if let Some(mut observer) = peer.observer.take() {
            observer.on_end(&outcome, bytes);
        }
        let event = Event::Done {
            peer: peer.name.clone(),
            outcome: outcome.clone(),
            bytes,
            sent: None,
            seconds: peer.started.elapsed().as_secs_f64(),
        };
        self.outcomes.push(outcome);
        (self.events)(event);
    }

    /// Keeps a session with a silent sender until the sender comes back, or the patience ends.
    pub(super) fn lose(&mut self, link: LinkId, reason: String) {
        let Some(peer) = self.peers.remove(&link) else {
            return;
        };
        let Stage::Serving(session) = peer.stage else {
            self.peers.insert(link, peer);
            return self.end(link, Outcome::Resumable { reason });
        };
        self.by_connection.remove(&session.connection);
        (self.events)(Event::Lost {
            peer: peer.name.clone(),
            reason: reason.clone(),
        });
        self.lost.push(LostSession {
            key: peer.key,
            name: peer.name,
            set: session.set,
            started: peer.started,
            until: Instant::now() + self.options.patience,
            verified_bytes: session.verified_bytes,
            outcome: Outcome::Resumable { reason },
            worker: session.finish(),
            observer: peer.observer,
        });
        self.ask_again();
    }

    /// Ends sessions whose senders did not come back in time.
    pub(super) fn forget_lost(&mut self, now: Instant) {
        let (late, lost) = std::mem::take(&mut self.lost)
            .into_iter()
            .partition(|session: &LostSession<'_>| now >= session.until);
        self.lost = lost;
        for LostSession {
            name,
            started,
            verified_bytes,
            outcome,
            observer,
            ..
        } in late
        {
            if let Some(mut observer) = observer {
                observer.on_end(&outcome, verified_bytes);
            }
            self.outcomes.push(outcome.clone());
            (self.events)(Event::Done {
                peer: name,
                outcome,
                bytes: verified_bytes,
                sent: None,
                seconds: started.elapsed().as_secs_f64(),
            });
        }
    }

    /// Returns the writers of sessions of a sender that were lost or have ended. They may still use files that a new session has,
    /// too.
    pub(super) fn ending_writers(&mut self, key: PublicKey) -> Vec<ScopedJoinHandle<'scope, ()>> {
        let lost = self.lost.iter_mut().filter(|session| session.key == key);
        let mut writers: Vec<_> = lost.filter_map(|session| session.worker.take()).collect();
        let finishing = self.finishing.extract_if(.., |session| session.key == key);
        writers.extend(finishing.map(|session| session.worker));
        writers
    }

    /// Ends earlier sessions of a sender that comes back with the same files. Returns their writer; the new
    /// session must wait for it.
    pub(super) fn supersede(
        &mut self,
        link: LinkId,
        key: PublicKey,
        set: SetId,
    ) -> Option<ScopedJoinHandle<'scope, ()>> {
        let lost = self
            .lost
            .iter()
            .position(|session| session.key == key && session.set == set);
        if let Some(at) = lost {
            return self.lost.swap_remove(at).worker;
        }
        let same = |peer: &Peer<'_>| match &peer.stage {
            Stage::Serving(session)
            | Stage::Ended {
                complete: Some(session),
                ..
            } => session.set == set,
            _ => false,
        };
        let earlier = self
            .peers
            .iter()
            .find(|(other, peer)| **other != link && peer.key == key && same(peer))
            .map(|(other, _)| *other);
        let Some(earlier) = earlier else {
            let at = self
                .finishing
                .iter()
                .position(|session| session.key == key && session.set == set)?;
            return Some(self.finishing.swap_remove(at).worker);
        };
        self.control
            .close(Instant::now(), earlier, CODE_ERROR, "the sender came back");
        let peer = self.peers.remove(&earlier)?;
        match peer.stage {
            Stage::Serving(session)
            | Stage::Ended {
                complete: Some(session),
                ..
            } => {
                self.by_connection.remove(&session.connection);
                session.finish()
            }
            _ => None,
        }
    }
}
