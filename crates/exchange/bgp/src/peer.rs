//! A peer: its consecutive sessions, and its routes.

use core::net::Ipv4Addr;

use millrace_types::{Duration, Time};

use crate::family::{Family, FamilySet};
use crate::message::{MessageType, write_message};
use crate::notification::{Cease, Notification};
use crate::rib::{Change, Exceeded, Limits, Rib, RouteCounts};
use crate::session::{End, Event, Session, SessionSettings, State, keeps_new_connection};
use crate::update::Problem;

/// The time for which a peer is refused after it has exceeded a limit.
const PENALTY: Duration = Duration::from_secs(60);
/// The maximum number of faults that are kept for display.
const PROBLEMS_MAX: usize = 20;

/// The settings of a peer and of the connections that it opens.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PeerSettings {
    /// The settings of its sessions.
    pub session: SessionSettings,
    /// The maximum number and size of its routes.
    pub limits: Limits,
}

/// The state of a peer, for display.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PeerState {
    /// The state of the session: `idle`, `open_sent`, `open_confirm` or `established`.
    pub session: &'static str,
    /// The time of the last change of that state.
    pub since: Time,
    /// The families of the established session.
    pub families: FamilySet,
    /// The number of prefixes.
    pub unicast: usize,
    /// The number of flow specifications.
    pub flowspec: usize,
    /// The peer's BGP Identifier.
    pub router_id: Option<Ipv4Addr>,
    /// The reason why the last session ended.
    pub last_error: Option<String>,
    /// The newest faults that did not end the session, oldest first.
    pub problems: Vec<Problem>,
}

/// The graceful restart that the peer of the current session has announced.
#[derive(Clone, Copy, Debug, Default)]
struct Restart {
    /// The families whose routes are kept when the connection is lost.
    families: FamilySet,
    /// The time for which they are kept.
    time: Duration,
}

/// A peer with its routes.
#[derive(Debug)]
pub struct Peer {
    settings: PeerSettings,
    session: Option<Session>,
    rib: Rib,
    changes: Vec<Change>,
    families: FamilySet,
    /// The families whose End-of-RIB has arrived in the current session.
    ended: FamilySet,
    /// The families with stale routes. Stale routes are kept until the peer announces them again, at most
    /// until `stale_deadline`.
    stale: FamilySet,
    stale_deadline: Option<Time>,
    restart: Option<Restart>,
    router_id: Option<Ipv4Addr>,
    penalty_end: Option<Time>,
    since: Time,
    last_error: Option<String>,
    problems: Vec<Problem>,
}

impl Peer {
    /// Returns a peer without connection and routes.
    pub fn new(settings: PeerSettings, now: Time) -> Peer {
        Peer {
            settings,
            session: None,
            rib: Rib::default(),
            changes: Vec::new(),
            families: FamilySet::default(),
            ended: FamilySet::default(),
            stale: FamilySet::default(),
            stale_deadline: None,
            restart: None,
            router_id: None,
            penalty_end: None,
            since: now,
            last_error: None,
            problems: Vec::new(),
        }
    }

    /// Accepts a new connection of the peer. Returns the last bytes to send on the previous connection, if
    /// there is one.
    ///
    /// # Errors
    /// The last bytes to send on the new connection, if it collides with the previous one, or if the peer has
    /// recently exceeded a limit.
    pub fn accept(&mut self, now: Time) -> Result<Option<Vec<u8>>, Vec<u8>> {
        let farewell = |reason: Cease| {
            let mut bytes = Vec::new();
            write_message(
                MessageType::Notification,
                &Notification::cease(reason).body(),
                &mut bytes,
            );
            bytes
        };
        if self.penalty_end.is_some_and(|end| end > now) {
            return Err(farewell(Cease::MaximumPrefixes));
        }
        let mut last_words = None;
        if let Some(mut first) = self.session.take() {
            let peer_id = first.peer_open().map(|open| open.router_id);
            let local_id = self.settings.session.router_id;
            if !keeps_new_connection(first.state(), self.restart.is_some(), local_id, peer_id) {
                self.session = Some(first);
                return Err(farewell(Cease::ConnectionCollision));
            }
            if first.state() == State::Established {
                // The peer has restarted without closing the connection (RFC 4724, section 5).
                first.connection_lost();
            } else {
                first.cease(Cease::ConnectionCollision);
            }
            last_words = Some(first.take_output());
            self.session = Some(first);
            self.drain(now);
        }
        self.session = Some(Session::new(self.settings.session.clone(), now));
        self.since = now;
        Ok(last_words)
    }

    /// Handles bytes that were received on the connection.
    pub fn receive(&mut self, bytes: &[u8], now: Time) {
        if let Some(session) = &mut self.session {
            session.receive(bytes, now);
        }
        self.drain(now);
    }

    /// Records that the connection is closed.
    pub fn connection_lost(&mut self, now: Time) {
        if let Some(session) = &mut self.session {
            session.connection_lost();
        }
        self.drain(now);
    }

    /// Ends the session with a Cease.
    pub fn cease(&mut self, reason: Cease, now: Time) {
        if let Some(session) = &mut self.session {
            session.cease(reason);
        }
        self.drain(now);
    }

    /// Asks the peer to announce its routes again.
    pub fn refresh(&mut self) {
        if let Some(session) = &mut self.session {
            for family in self.families.iter() {
                session.refresh(family);
            }
        }
    }

    /// Runs the timers that are due.
    pub fn poll(&mut self, now: Time) {
        if let Some(session) = &mut self.session {
            session.poll(now);
        }
        self.drain(now);
        if self.stale_deadline.is_some_and(|deadline| deadline <= now) {
            self.stale_deadline = None;
            for family in core::mem::take(&mut self.stale).iter() {
                self.rib.clear_stale(family, &mut self.changes);
            }
        }
    }

    /// Returns the time of the next timer.
    pub fn deadline(&self) -> Option<Time> {
        let session = self.session.as_ref().and_then(Session::deadline);
        [session, self.stale_deadline].into_iter().flatten().min()
    }

    /// Returns and removes the bytes to send.
    pub fn take_output(&mut self) -> Vec<u8> {
        self.session
            .as_mut()
            .map(Session::take_output)
            .unwrap_or_default()
    }

    /// Returns true if the owner should keep the connection open.
    pub fn is_open(&self) -> bool {
        self.session
            .as_ref()
            .is_some_and(|session| session.state() != State::Closed)
    }

    /// Returns and removes the route changes since the last call.
    pub fn take_changes(&mut self) -> Vec<Change> {
        core::mem::take(&mut self.changes)
    }

    /// Returns true if the peer has announced all routes of all families of the session.
    pub fn has_all_routes(&self) -> bool {
        !self.families.is_empty() && self.ended == self.families
    }

    /// Returns the routes.
    pub const fn rib(&self) -> &Rib {
        &self.rib
    }

    /// Returns the state for display.
    pub fn state(&self) -> PeerState {
        let RouteCounts { unicast, flowspec } = self.rib.counts();
        let session = match self.session.as_ref().map(Session::state) {
            None | Some(State::Closed) => "idle",
            Some(State::OpenSent) => "open_sent",
            Some(State::OpenConfirm) => "open_confirm",
            Some(State::Established) => "established",
        };
        PeerState {
            session,
            since: self.since,
            families: self.families,
            unicast,
            flowspec,
            router_id: self.router_id,
            last_error: self.last_error.clone(),
            problems: self.problems.clone(),
        }
    }

    fn drain(&mut self, now: Time) {
        while let Some(event) = self.session.as_mut().and_then(Session::next_event) {
            match event {
                Event::Established {
                    negotiated,
                    graceful_restart,
                    router_id,
                } => {
                    self.since = now;
                    self.families = negotiated.families;
                    self.router_id = Some(router_id);
                    let restart = graceful_restart.unwrap_or_default();
                    // Without preserved forwarding state, the stale routes are removed at once (RFC 4724,
                    // section 4.2).
                    for family in self.stale.iter() {
                        if !restart.preserved.contains(family) {
                            self.rib.clear_stale(family, &mut self.changes);
                            self.stale = self.stale.without(family);
                        }
                    }
                    if !self.stale.is_empty() {
                        let wait = Duration::from_secs(u64::from(self.settings.session.restart_secs));
                        self.stale_deadline = Some(now + wait);
                    }
                    let secs = restart.restart_secs.min(self.settings.session.restart_secs);
                    let families = restart.families.intersection(negotiated.families);
                    self.restart = (secs > 0 && !families.is_empty()).then(|| Restart {
                        families,
                        time: Duration::from_secs(u64::from(secs)),
                    });
                }
                Event::Update(update) => self.update(*update, now),
                Event::Closed(end) => self.closed(&end, now),
            }
        }
    }

    fn update(&mut self, mut update: crate::update::Update, now: Time) {
        self.problems.append(&mut update.problems);
        let excess = self.problems.len().saturating_sub(PROBLEMS_MAX);
        self.problems.drain(..excess);
        let end_of_rib = update.end_of_rib;
        let applied = self.rib.apply(update, &self.settings.limits, &mut self.changes);
        if let Err(exceeded) = applied {
            let (reason, text) = match exceeded {
                Exceeded::Unicast => (
                    Cease::MaximumPrefixes,
                    format!("more than {} prefixes", self.settings.limits.unicast),
                ),
                Exceeded::Flowspec => (
                    Cease::MaximumPrefixes,
                    format!("more than {} flow specifications", self.settings.limits.flowspec),
                ),
                Exceeded::Memory => (
                    Cease::OutOfResources,
                    format!(
                        "routes need more than {} bytes of memory",
                        self.settings.limits.bytes
                    ),
                ),
            };
            self.penalty_end = Some(now + PENALTY);
            if let Some(session) = &mut self.session {
                session.cease(reason);
            }
            self.closed(&End::Sent(Notification::cease(reason)), now);
            self.last_error = Some(text);
            // `closed` has handled the end of the session, so the event that reports it is dropped.
            while self.session.as_mut().and_then(Session::next_event).is_some() {}
        }
        let Some(family) = end_of_rib else { return };
        if self.stale.contains(family) {
            self.rib.clear_stale(family, &mut self.changes);
            self.stale = self.stale.without(family);
            if self.stale.is_empty() {
                self.stale_deadline = None;
            }
        }
        self.ended = self.ended.with(family);
        self.changes.push(Change::EndOfRib(family));
    }

    fn closed(&mut self, end: &End, now: Time) {
        self.since = now;
        self.last_error = Some(match end {
            End::Received(notification) => format!("the peer ended the session: {notification}"),
            End::Sent(notification) => notification.to_string(),
            End::ConnectionLost => "the connection was closed".to_owned(),
        });
        // A NOTIFICATION removes the routes of its session. The loss of a connection alone does not remove
        // them. Stale routes stay until a new session is established, and a connection that ends earlier does
        // not affect them (RFC 4724, section 4.2).
        let was_established = !self.families.is_empty();
        let is_reset = was_established && *end != End::ConnectionLost;
        let restart = self.restart.take().filter(|_| !is_reset);
        let kept = restart.unwrap_or_default();
        let waiting = self.stale_deadline.is_some() && !is_reset;
        for family in Family::ALL {
            if kept.families.contains(family) {
                // Routes that are stale already are not kept for a second restart.
                if self.stale.contains(family) {
                    self.rib.clear_stale(family, &mut self.changes);
                }
                self.rib.mark_stale(family);
                self.stale = self.stale.with(family);
            } else if !(waiting && self.stale.contains(family)) {
                self.rib.clear(family, &mut self.changes);
                self.stale = self.stale.without(family);
            }
        }
        if !kept.families.is_empty() {
            self.stale_deadline = Some(now + kept.time);
        } else if self.stale.is_empty() {
            self.stale_deadline = None;
        }
        self.families = FamilySet::default();
        self.ended = FamilySet::default();
    }
}
