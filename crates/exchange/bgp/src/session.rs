//! The session over one TCP connection (RFC 4271, section 8), which begins when the connection is open.
//!
//! ```text
//!   TCP open ──► OpenSent ── OPEN ──► OpenConfirm ── KEEPALIVE ──► Established
//!                   │                      │                            │   UPDATE, KEEPALIVE: hold timer restarts
//!                   └──────────────────────┴── NOTIFICATION, error, ────┴──► Closed
//!                                              hold timer
//! ```
//!
//! The receiver accepts connections and opens none. A peer without a session thus covers the states Idle,
//! Connect and Active.

use core::net::Ipv4Addr;
use std::collections::VecDeque;

use millrace_types::{Duration, Time};

use crate::capability::{AddPathMode, Capabilities, GracefulRestart};
use crate::family::{Family, FamilySet};
use crate::message::{
    EXTENDED_SIZE_MAX, HEADER_SIZE, MESSAGE_SIZE_MAX, MessageType, read_header, route_refresh, write_message,
};
use crate::notification::{Cease, Notification, OpenError, StateMachineError};
use crate::open::Open;
use crate::update::{Negotiated, Update};

/// The hold time until the peer's OPEN arrives (RFC 4271, section 8.2.2, suggests 4 minutes).
const OPEN_HOLD: Duration = Duration::from_secs(240);

/// The values of the local OPEN, and the values that the peer's OPEN must have.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SessionSettings {
    /// The AS number of the receiver.
    pub local_as: u32,
    /// The BGP Identifier of the receiver.
    pub router_id: Ipv4Addr,
    /// The AS number that the peer must have.
    pub peer_as: u32,
    /// The hold time in seconds: 0 or at least 3.
    pub hold_secs: u16,
    pub families: FamilySet,
    /// True to receive several paths to a prefix (Add-Path, RFC 7911), as route servers send them.
    pub add_path: bool,
    /// True if AS_PATH must begin with the peer's AS number; false for a route server, which does not add its
    /// AS number.
    pub enforce_first_as: bool,
    /// The time for which routes are kept while the peer restarts, in seconds.
    pub restart_secs: u16,
}

/// The state of a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum State {
    /// The local OPEN is sent.
    OpenSent,
    /// The peer's OPEN is accepted.
    OpenConfirm,
    /// Routes are received.
    Established,
    /// The session has ended. The connection is to be closed after the output is sent.
    Closed,
}

/// An event of a session.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Event {
    /// The session is established.
    Established {
        /// The properties of the session.
        negotiated: Negotiated,
        /// The graceful restart of the peer.
        graceful_restart: Option<GracefulRestart>,
        /// The peer's BGP Identifier.
        router_id: Ipv4Addr,
    },
    Update(Box<Update>),
    /// The session has ended.
    Closed(End),
}

/// The end of a session.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum End {
    /// The peer sent a NOTIFICATION.
    Received(Notification),
    /// The receiver sent a NOTIFICATION.
    Sent(Notification),
    /// The connection was closed without a NOTIFICATION.
    ConnectionLost,
}

/// A session over one TCP connection.
#[derive(Debug)]
pub(crate) struct Session {
    settings: SessionSettings,
    state: State,
    input: Vec<u8>,
    output: Vec<u8>,
    events: VecDeque<Event>,
    negotiated: Option<Negotiated>,
    peer_open: Option<Open>,
    hold: Option<Duration>,
    hold_deadline: Option<Time>,
    keepalive_deadline: Option<Time>,
}

impl Session {
    /// Returns the session of a connection that was just opened. The output begins with OPEN.
    pub(crate) fn new(settings: SessionSettings, now: Time) -> Session {
        let families = settings.families;
        let restart = GracefulRestart {
            has_restarted: false,
            restart_secs: settings.restart_secs,
            families,
            preserved: FamilySet::default(),
        };
        let add_path = families
            .iter()
            .filter(|family| settings.add_path && !family.is_flowspec())
            .map(|family| (family, AddPathMode::Receive))
            .collect();
        let open = Open {
            asn: settings.local_as,
            hold_secs: settings.hold_secs,
            router_id: settings.router_id,
            capabilities: Capabilities {
                families,
                has_other_families: false,
                route_refresh: true,
                extended_messages: true,
                graceful_restart: Some(restart),
                four_octet_asn: Some(settings.local_as),
                add_path,
            },
        };
        let mut output = Vec::new();
        write_message(MessageType::Open, &open.body(), &mut output);
        Session {
            settings,
            state: State::OpenSent,
            input: Vec::new(),
            output,
            events: VecDeque::new(),
            negotiated: None,
            peer_open: None,
            hold: None,
            hold_deadline: Some(now + OPEN_HOLD),
            keepalive_deadline: None,
        }
    }

    /// Returns the state.
    pub(crate) const fn state(&self) -> State {
        self.state
    }

    /// Returns the peer's OPEN; `None` before it is accepted.
    pub(crate) const fn peer_open(&self) -> Option<&Open> {
        self.peer_open.as_ref()
    }

    /// Returns and removes the bytes to send.
    pub(crate) fn take_output(&mut self) -> Vec<u8> {
        core::mem::take(&mut self.output)
    }

    /// Returns the next event.
    pub(crate) fn next_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Handles bytes that were received on the connection.
    pub(crate) fn receive(&mut self, bytes: &[u8], now: Time) {
        if self.state == State::Closed {
            return;
        }
        self.input.extend_from_slice(bytes);
        let mut start = 0;
        while self.state != State::Closed {
            let size_max = match &self.negotiated {
                Some(negotiated) if negotiated.has_extended_messages => EXTENDED_SIZE_MAX,
                _ => MESSAGE_SIZE_MAX,
            };
            let unread = self.input.get(start..).unwrap_or_default();
            let message = match read_header(unread, size_max) {
                Ok(Some(header)) if unread.len() >= header.size => header,
                Ok(_) => break,
                Err(notification) => {
                    self.close(notification);
                    break;
                }
            };
            let body = unread.get(HEADER_SIZE..message.size).unwrap_or_default().to_vec();
            start += message.size;
            if let Err(notification) = self.message(message.kind, &body, now) {
                self.close(notification);
            }
        }
        self.input.drain(..start.min(self.input.len()));
        debug_assert!(self.input.len() <= EXTENDED_SIZE_MAX || self.state == State::Closed);
    }

    /// Records that the peer or the network has closed the connection.
    pub(crate) fn connection_lost(&mut self) {
        if self.state != State::Closed {
            self.end(End::ConnectionLost);
        }
    }

    /// Ends the session with a Cease.
    pub(crate) fn cease(&mut self, reason: Cease) {
        if self.state != State::Closed {
            self.close(Notification::cease(reason));
        }
    }

    /// Asks the peer to announce all routes of a family again, if the peer supports ROUTE-REFRESH.
    pub(crate) fn refresh(&mut self, family: Family) {
        let supports_refresh = self
            .peer_open
            .as_ref()
            .is_some_and(|open| open.capabilities.route_refresh);
        if self.state == State::Established && supports_refresh {
            let body = route_refresh(family);
            write_message(MessageType::RouteRefresh, &body, &mut self.output);
        }
    }

    /// Returns the time of the next timer.
    pub(crate) fn deadline(&self) -> Option<Time> {
        [self.hold_deadline, self.keepalive_deadline]
            .into_iter()
            .flatten()
            .min()
            .filter(|_| self.state != State::Closed)
    }

    /// Runs the timers that are due.
    pub(crate) fn poll(&mut self, now: Time) {
        if self.state == State::Closed {
            return;
        }
        if self.hold_deadline.is_some_and(|deadline| deadline <= now) {
            self.close(Notification::hold_timer());
            return;
        }
        if self.keepalive_deadline.is_some_and(|deadline| deadline <= now) {
            self.send_keepalive(now);
        }
    }

    fn message(&mut self, kind: MessageType, body: &[u8], now: Time) -> Result<(), Notification> {
        match (self.state, kind) {
            (_, MessageType::Notification) => {
                self.end(Notification::decode(body).map_or(End::ConnectionLost, End::Received));
                Ok(())
            }
            (State::OpenSent, MessageType::Open) => self.open(body, now),
            (State::OpenSent, _) => Err(unexpected(StateMachineError::UnexpectedInOpenSent, kind)),
            (State::OpenConfirm, MessageType::Keepalive) => {
                self.establish(now);
                Ok(())
            }
            (State::OpenConfirm, _) => Err(unexpected(StateMachineError::UnexpectedInOpenConfirm, kind)),
            (State::Established, MessageType::Keepalive) => {
                self.restart_hold(now);
                Ok(())
            }
            (State::Established, MessageType::Update) => {
                self.restart_hold(now);
                let negotiated = self
                    .negotiated
                    .as_ref()
                    .ok_or(Notification::state_machine(StateMachineError::Unspecific))?;
                let update = Update::decode(body, negotiated)?;
                self.events.push_back(Event::Update(Box::new(update)));
                Ok(())
            }
            // A ROUTE-REFRESH is ignored, because the receiver announces no routes.
            (State::Established, MessageType::RouteRefresh) | (State::Closed, _) => Ok(()),
            (State::Established, MessageType::Open) => {
                Err(unexpected(StateMachineError::UnexpectedInEstablished, kind))
            }
        }
    }

    fn open(&mut self, body: &[u8], now: Time) -> Result<(), Notification> {
        let open = Open::decode(body)?;
        let settings = &self.settings;
        if open.asn != settings.peer_as {
            return Err(Notification::open(OpenError::BadPeerAs));
        }
        let is_internal = open.asn == settings.local_as;
        // Two speakers in different ASes may have the same BGP Identifier (RFC 6286), but two speakers in one
        // AS may not.
        if is_internal && open.router_id == settings.router_id {
            return Err(Notification::open(OpenError::BadBgpIdentifier));
        }
        // A speaker without the Multiprotocol capability has IPv4 unicast only.
        let capabilities = &open.capabilities;
        let offered = if capabilities.families.is_empty() && !capabilities.has_other_families {
            FamilySet::default().with(Family::Ipv4Unicast)
        } else {
            capabilities.families
        };
        let families = settings.families.intersection(offered);
        if families.is_empty() {
            return Err(Notification::open(OpenError::UnsupportedCapability));
        }
        let sends_paths = |family: &Family| {
            settings.add_path
                && !family.is_flowspec()
                && open
                    .capabilities
                    .add_path
                    .get(family)
                    .is_some_and(|mode| mode.sends())
        };
        let hold_secs = settings.hold_secs.min(open.hold_secs);
        self.hold = (hold_secs > 0).then(|| Duration::from_secs(u64::from(hold_secs)));
        self.negotiated = Some(Negotiated {
            families,
            add_path: families.iter().filter(sends_paths).collect(),
            has_four_octets: open.capabilities.four_octet_asn.is_some(),
            has_extended_messages: open.capabilities.extended_messages,
            is_internal,
            first_as: (settings.enforce_first_as && !is_internal).then_some(open.asn),
        });
        self.peer_open = Some(open);
        self.state = State::OpenConfirm;
        self.restart_hold(now);
        self.send_keepalive(now);
        Ok(())
    }

    fn establish(&mut self, now: Time) {
        self.state = State::Established;
        self.restart_hold(now);
        let (Some(negotiated), Some(open)) = (&self.negotiated, &self.peer_open) else {
            return;
        };
        for family in negotiated.families.iter() {
            write_message(
                MessageType::Update,
                &Update::end_of_rib_body(family),
                &mut self.output,
            );
        }
        self.events.push_back(Event::Established {
            negotiated: negotiated.clone(),
            graceful_restart: open.capabilities.graceful_restart.clone(),
            router_id: open.router_id,
        });
    }

    fn restart_hold(&mut self, now: Time) {
        self.hold_deadline = self.hold.map(|hold| now + hold);
    }

    fn send_keepalive(&mut self, now: Time) {
        write_message(MessageType::Keepalive, &[], &mut self.output);
        self.keepalive_deadline = self.hold.map(|hold| now + hold / 3);
    }

    /// Sends a NOTIFICATION and ends the session.
    fn close(&mut self, notification: Notification) {
        write_message(MessageType::Notification, &notification.body(), &mut self.output);
        self.end(End::Sent(notification));
    }

    fn end(&mut self, end: End) {
        self.state = State::Closed;
        self.input = Vec::new();
        self.events.push_back(Event::Closed(end));
    }
}

/// Returns the error for a message of a type that the state does not permit; its data is the type (RFC 6608, section 4).
fn unexpected(error: StateMachineError, kind: MessageType) -> Notification {
    Notification::state_machine(error).with_data(&[kind as u8])
}

/// Returns true if a second connection of the same peer replaces the first (RFC 4271, section 6.8; RFC 4724,
/// section 5). The peer opened both connections. While the first is in OpenConfirm, the second replaces it if
/// the peer's BGP Identifier is greater than the local one.
pub(crate) fn keeps_new_connection(
    first: State,
    peer_restarts_gracefully: bool,
    local_id: Ipv4Addr,
    peer_id: Option<Ipv4Addr>,
) -> bool {
    match first {
        State::Closed | State::OpenSent => true,
        State::OpenConfirm => peer_id.is_none_or(|peer_id| peer_id > local_id),
        State::Established => peer_restarts_gracefully,
    }
}
