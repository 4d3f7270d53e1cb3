//! The receiver's event loop: sockets, timers and the store.

use super::admission::ticket_addresses;
use super::options::{ReceiveError, ReceiveOptions};
use super::requests::{Fetch, Jobs};
use super::session::{End, Session};
use super::state::{Admission, FileDestination, Peer, Server, Stage};
use crate::clock::{Clock, precise_timers, wait};
use crate::control::{CODE_ERROR, Control, LinkId};
use crate::event::{Event, Outcome};
use crate::files::Store;
use crate::identity::{Identity, random};
use crate::inbox::{Command, Inbox};
use crate::io::{DatagramIo, UdpIo};
use crate::progress::PROGRESS;
use crate::ticket::Ticket;
use millrace_transport::packet::Head;
use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

/// The maximum number of bursts that are read before replies and timers are handled.
const BATCH: usize = 64;
/// Data count as flowing for this time after each data packet.
const FLOWING: Duration = Duration::from_millis(5);

/// Receives files into a store. Returns the outcome for each admitted sender. `stop`: readable when the user
/// stops the transfer.
///
/// # Errors
/// If no sender could be served.
pub fn receive(
    store: &dyn Store,
    identity: &Identity,
    options: ReceiveOptions,
    stop: Option<BorrowedFd<'_>>,
    events: &mut dyn FnMut(Event),
) -> Result<Vec<Outcome>, ReceiveError> {
    let address = options.listen;
    let io = UdpIo::bind(address).map_err(|error| ReceiveError::Listen { address, error })?;
    receive_over(Box::new(io), store, identity, options, stop, events)
}

/// Receives files as [`receive`] does, over any backend, at the backend's address.
///
/// # Errors
/// If no sender could be served.
pub fn receive_over(
    io: Box<dyn DatagramIo>,
    store: &dyn Store,
    identity: &Identity,
    options: ReceiveOptions,
    stop: Option<BorrowedFd<'_>>,
    events: &mut dyn FnMut(Event),
) -> Result<Vec<Outcome>, ReceiveError> {
    let inbox = Inbox::new()?.1;
    let spec = ReceiverSpec {
        io,
        identity,
        options,
        fetch: None,
    };
    spec.run(FileDestination::Store(store), stop, &inbox, events)
}

/// The parts of a receiver that all its senders share.
pub(crate) struct ReceiverSpec<'a> {
    pub(crate) io: Box<dyn DatagramIo>,
    pub(crate) identity: &'a Identity,
    pub(crate) options: ReceiveOptions,
    /// The request to a daemon, for a receiver that dials first.
    pub(crate) fetch: Option<Fetch>,
}

impl ReceiverSpec<'_> {
    /// Receives files. `inbox`: the commands that end the receiver.
    pub(crate) fn run(
        self,
        destination: FileDestination<'_>,
        stop: Option<BorrowedFd<'_>>,
        inbox: &Inbox,
        events: &mut dyn FnMut(Event),
    ) -> Result<Vec<Outcome>, ReceiveError> {
        let ReceiverSpec {
            io,
            identity,
            options,
            fetch,
        } = self;
        let local = io.local_address()?;
        let secret = random()?;
        let ticket = Ticket {
            expires: SystemTime::now() + options.expiry,
            key: identity.public_key(),
            secret,
            addresses: ticket_addresses(local, &options.addresses),
        };
        let control = Control::new(identity, true, options.silence, options.key_log.clone())?;
        let is_own = matches!(destination, FileDestination::Store(_)) && fetch.is_none();
        if fetch.is_none() {
            events(Event::Listening {
                ticket: if is_own { ticket.to_string() } else { String::new() },
                key: identity.public_key().to_string(),
                address: local.to_string(),
            });
        }
        let kept = options
            .kept_ticket()
            .and_then(|kept| kept.load(identity.public_key()));
        let kept = kept.map(|(ticket, owner)| Admission {
            ticket,
            owner: Some(owner),
            delivered: false,
        });
        let own = Admission {
            ticket,
            owner: None,
            delivered: false,
        };
        let admissions = [Some(own), kept];
        let admissions = admissions.into_iter().flatten().filter(|_| is_own).collect();
        // The writers of all sessions have ended when the scope ends. Verified extents are then durable.
        std::thread::scope(|scope| {
            let mut server = Server {
                clock: Clock::start(),
                control,
                io,
                identity,
                destination,
                scope,
                waker: Arc::clone(&inbox.waker),
                options,
                admissions,
                peers: HashMap::new(),
                lost: Vec::new(),
                finishing: Vec::new(),
                by_connection: HashMap::new(),
                outcomes: Vec::new(),
                jobs: Jobs::default(),
                fetching: None,
                drained_at: None,
                data_at: None,
                events,
            };
            if let Some(fetch) = fetch {
                server.dial(fetch, local.is_ipv4())?;
            }
            server.run(stop, inbox)?;
            Ok(server.outcomes)
        })
    }
}

impl Server<'_, '_, '_> {
    /// Runs the loop until the user stops it. A receiver for one sender also ends when that sender is done.
    fn run(&mut self, stop: Option<BorrowedFd<'_>>, inbox: &Inbox) -> Result<(), ReceiveError> {
        precise_timers();
        let mut progress_at = Instant::now() + PROGRESS;
        loop {
            let received = self.receive()?;
            while let Some((link, event)) = self.control.poll_event() {
                self.on_link_event(link, event);
            }
            let now = Instant::now();
            self.serve(now)?;
            self.on_job_replies()?;
            if self.io.next_timeout().is_some_and(|at| at <= now) {
                self.io.on_timeout(now)?;
            }
            if self.control.next_timeout().is_some_and(|at| at <= now) {
                self.control.on_timeout(now);
            }
            self.send_control()?;
            if now >= progress_at {
                self.progress();
                self.forget_lost(now);
                self.check_fetch(now);
                self.probe_for_senders();
                self.control.end_handshakes(now);
                progress_at = now + PROGRESS;
            }
            if let Some(until) = self.drained_at
                && (now >= until || self.is_drained())
            {
                self.stop();
                return self.send_control();
            }
            if self.options.once && !self.outcomes.is_empty() && self.is_idle() {
                return Ok(());
            }
            if received {
                continue;
            }
            let sessions = self.peers.values().filter_map(|peer| match &peer.stage {
                Stage::Serving(session) => session.next_timeout(),
                _ => None,
            });
            let next = [
                sessions.min().map(|at| self.clock.instant(at)),
                self.control.next_timeout(),
                self.io.next_timeout(),
                Some(progress_at),
            ];
            let until = next.into_iter().flatten().min().unwrap_or(progress_at);
            self.gather_packets(now, until);
            self.waker.arm();
            // Earlier replies do not wake this thread, so they are handled first.
            self.serve(Instant::now())?;
            self.on_job_replies()?;
            let fds = [Some(self.io.descriptor()), Some(self.waker.as_fd()), stop];
            let mut stopped = wait(&fds, until)?.stop;
            self.waker.disarm();
            while let Some(command) = inbox.try_recv() {
                match command {
                    Command::Drain(time) => {
                        let until = Instant::now() + time;
                        self.drained_at.get_or_insert(until);
                    }
                    Command::Stop => stopped = true,
                    // Only sending sessions have targets.
                    Command::Add(_) => {}
                }
            }
            if stopped {
                self.stop();
                return self.send_control();
            }
        }
    }

    /// Sleeps for a moment while data flow, but not beyond `until`, so that one wake-up serves several
    /// packets.
    fn gather_packets(&mut self, now: Instant, until: Instant) {
        if self
            .data_at
            .is_none_or(|at| now.saturating_duration_since(at) >= FLOWING)
        {
            return;
        }
        let time = self.clock.time(now);
        let sessions = self.peers.values_mut().filter_map(|peer| match &mut peer.stage {
            Stage::Serving(session) => Some(session.gathering(time)),
            _ => None,
        });
        if let Some(gathering) = sessions.min() {
            std::thread::sleep(gathering.min(until.saturating_duration_since(now)));
        }
    }

    /// Sends the datagrams of the control channel.
    fn send_control(&mut self) -> Result<(), ReceiveError> {
        while let Some((to, datagram)) = self.control.poll_transmit(Instant::now()) {
            self.io.send(to, &datagram)?;
        }
        Ok(self.io.flush()?)
    }

    /// Receives datagrams; returns true if there may be more. Datagrams of unknown connections leave no
    /// state.
    fn receive(&mut self) -> Result<bool, ReceiveError> {
        for _ in 0..BATCH {
            let Some(mut burst) = self.io.receive()? else {
                return Ok(false);
            };
            let (now, time) = (Instant::now(), self.clock.now());
            let (from, marked) = (burst.from, burst.congestion_experienced);
            // A burst comes from one address, and nearly always belongs to one session.
            let mut current: Option<(u32, &mut Session<'_>)> = None;
            for datagram in burst.datagrams() {
                if datagram[0] & 0xc0 != 0 {
                    self.control.handle_datagram(now, from, datagram);
                    continue;
                }
                let Ok(head) = Head::decode(datagram) else {
                    continue;
                };
                if current
                    .as_ref()
                    .is_none_or(|(connection, _)| *connection != head.connection)
                {
                    let peer = self.by_connection.get(&head.connection);
                    current = match peer.and_then(|link| self.peers.get_mut(link)) {
                        Some(Peer {
                            stage: Stage::Serving(session),
                            ..
                        }) => Some((head.connection, session)),
                        _ => None,
                    };
                }
                if let Some((_, session)) = &mut current {
                    self.data_at = Some(now);
                    session.datagram(time, head.packet_type, datagram, marked);
                }
            }
        }
        Ok(true)
    }

    /// Handles the replies of the writers, sends feedback, and drops links that are overdue.
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
                Stage::Offered { until, .. } if now >= *until => {
                    let reason = "the sender did not go on with its offer";
                    self.end(
                        link,
                        Outcome::Resumable {
                            reason: reason.into(),
                        },
                    );
                    self.control.close(now, link, CODE_ERROR, reason);
                    self.peers.remove(&link);
                }
                Stage::Serving(session) => {
                    session.hand_over();
                    let mut tell = |event: Event| {
                        if let (Event::Accepted { present, .. }, Some(observer)) =
                            (&event, &mut peer.observer)
                        {
                            observer.on_accept(*present);
                        }
                        (self.events)(event);
                    };
                    let end = session.replies(link, &peer.name, self.identity, &mut self.control, &mut tell);
                    if let Some(remote) = remote {
                        for packet in session.feedback(time) {
                            self.io.send(remote, &packet)?;
                        }
                    }
                    match end {
                        Some(End::Outcome(outcome)) => self.end(link, outcome),
                        Some(End::Refused(code, error)) => self.refuse(link, code, error.to_string()),
                        Some(End::Failed(error)) => self.abandon(link, &error),
                        None => {}
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Sends a packet of the control channel to each sender whose data path is silent.
    fn probe_for_senders(&mut self) {
        let now = self.clock.now();
        for (link, peer) in &mut self.peers {
            if let Stage::Serving(session) = &mut peer.stage
                && session.is_probe_due(now)
            {
                self.control.ping(*link);
            }
        }
    }

    /// Ends all sessions; their writers make verified extents durable.
    fn stop(&mut self) {
        let links: Vec<LinkId> = self.peers.keys().copied().collect();
        for link in links {
            let reason = "stopped by the user".into();
            self.end(link, Outcome::Resumable { reason });
            self.control
                .close(Instant::now(), link, CODE_ERROR, "the receiver stopped");
        }
        self.jobs.stop();
        for session in &mut self.lost {
            session.until = Instant::now();
        }
        self.forget_lost(Instant::now());
    }
}
