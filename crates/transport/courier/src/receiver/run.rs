//! The loop of the receiver.

use super::admission::ticket_addresses;
use super::options::{ReceiveError, ReceiveOptions};
use super::progress::PROGRESS;
use super::state::{Admission, Peer, Server, Stage};
use crate::clock::{Clock, wait};
use crate::control::{CODE_ERROR, Control, LinkId};
use crate::event::{Event, Outcome};
use crate::files::{FilesError, Store};
use crate::identity::{Identity, random};
use crate::io::{DatagramIo, UdpIo};
use crate::ticket::Ticket;
use millrace_transport::packet::Head;
use millrace_transport::receiver::Receiver;
use std::collections::HashMap;
use std::os::fd::BorrowedFd;
use std::time::{Instant, SystemTime};

/// The number of bursts read before the other side of the loop has its turn.
const BATCH: usize = 64;

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
    let io = UdpIo::bind(address).map_err(|error| ReceiveError::Listen { address, error })?;
    receive_over(Box::new(io), store, identity, options, stop, events)
}

/// Receives files as [`receive`] does, over any backend; the address to listen at is the backend's.
///
/// # Errors
/// If no sender could be served.
pub fn receive_over(
    io: Box<dyn DatagramIo>,
    store: &mut dyn Store,
    identity: &Identity,
    options: ReceiveOptions,
    stop: Option<BorrowedFd<'_>>,
    events: &mut dyn FnMut(Event),
) -> Result<Vec<Outcome>, ReceiveError> {
    let local = io.local_address()?;
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
        io,
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

impl Server<'_> {
    /// Runs the loop until the user stops it, or until the first sender is done if there shall be no other.
    fn run(&mut self, stop: Option<BorrowedFd<'_>>) -> Result<(), ReceiveError> {
        let mut progress_at = Instant::now() + PROGRESS;
        loop {
            let received = self.receive()?;
            while let Some((link, event)) = self.control.poll_event() {
                self.on_link_event(link, event);
            }
            let now = Instant::now();
            self.serve(now)?;
            if self.io.next_timeout().is_some_and(|at| at <= now) {
                self.io.on_timeout(now)?;
            }
            if self.control.next_timeout().is_some_and(|at| at <= now) {
                self.control.on_timeout(now);
            }
            while let Some((to, datagram)) = self.control.poll_transmit(now) {
                self.io.send(to, &datagram)?;
            }
            self.io.flush()?;
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
                self.io.next_timeout(),
                Some(progress_at),
            ];
            let until = next.into_iter().flatten().min().unwrap_or(progress_at);
            if wait(self.io.descriptor(), stop, until)? {
                self.stop();
                while let Some((to, datagram)) = self.control.poll_transmit(Instant::now()) {
                    self.io.send(to, &datagram)?;
                }
                self.io.flush()?;
                return Ok(());
            }
        }
    }

    /// Takes datagrams; returns true if there may be more. Datagrams of unknown connections leave no state.
    fn receive(&mut self) -> Result<bool, ReceiveError> {
        let mut failed = Vec::new();
        for _ in 0..BATCH {
            let Some(mut burst) = self.io.receive()? else {
                return self.fail(failed).map(|()| false);
            };
            let (now, time) = (Instant::now(), self.clock.now());
            let (from, marked) = (burst.from, burst.congestion_experienced);
            for datagram in burst.datagrams() {
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
                if let Err(error) = session.datagram(time, head.packet_type, datagram, marked) {
                    failed.push((*link, error));
                }
            }
        }
        self.fail(failed).map(|()| true)
    }

    /// Ends the sessions whose files cannot be written.
    fn fail(&mut self, failed: Vec<(LinkId, FilesError)>) -> Result<(), ReceiveError> {
        for (link, error) in failed {
            self.abandon(link, &error);
        }
        Ok(())
    }

    /// Lets the sinks work, sends answers and feedback, and drops links that are overdue.
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
                            self.io.send(remote, &packet)?;
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

    /// Lets the sinks write their journals, and ends all sessions.
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
}
