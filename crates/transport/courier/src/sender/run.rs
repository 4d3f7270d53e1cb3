//! The sender's event loop: sockets, timers and the source.

use super::options::{SendError, SendOptions, Stragglers, Target};
use super::state::{Peer, Reader, Sender, SharedPacing, Stage};
use crate::clock::{Clock, Readable, precise_timers, wait};
use crate::control::Control;
use crate::event::{Event, Outcome};
use crate::files::Source;
use crate::identity::{Identity, random};
use crate::inbox::{Command, Inbox};
use crate::io::{DatagramIo, UdpIo, headers};
use crate::message::Offer;
use crate::pool::reader;
use crate::progress::PROGRESS;
use crate::shared_rate::{RateSlots, SharedRate};
use millrace_transport::flow::{USUAL_MTU, initial_payload};
use millrace_transport::packet::DATA_OVERHEAD;
use millrace_transport::seal::{Algorithm, ContentKey};
use millrace_transport::sender::{CACHE_SIZE, Group, Sealer, SlabCache};
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

/// The time in which closed links can notify their peers.
const LINGER: Duration = Duration::from_secs(1);

/// Sends the files of a source to all targets. Returns the outcome for each. `stop`: readable when the user
/// stops the transfer.
///
/// # Errors
/// If the transfer cannot continue for any of the targets.
pub fn send(
    source: &mut dyn Source,
    identity: &Identity,
    targets: Vec<Target>,
    options: SendOptions,
    stop: Option<BorrowedFd<'_>>,
    events: &mut dyn FnMut(Event),
) -> Result<Vec<Outcome>, SendError> {
    let io = bind_for(&targets)?;
    send_over(Box::new(io), source, identity, targets, options, stop, events)
}

/// Returns a socket from which all targets can be reached.
pub(crate) fn bind_for(targets: &[Target]) -> std::io::Result<UdpIo> {
    let mut addresses = targets.iter().flat_map(|target| &target.addresses);
    let local = if addresses.all(SocketAddr::is_ipv4) {
        IpAddr::V4(Ipv4Addr::UNSPECIFIED)
    } else {
        IpAddr::V6(Ipv6Addr::UNSPECIFIED)
    };
    UdpIo::bind(SocketAddr::new(local, 0))
}

/// Sends files as [`send`] does, over any backend.
///
/// # Errors
/// If the transfer cannot continue for any of the targets.
pub fn send_over(
    io: Box<dyn DatagramIo>,
    source: &mut dyn Source,
    identity: &Identity,
    targets: Vec<Target>,
    options: SendOptions,
    stop: Option<BorrowedFd<'_>>,
    events: &mut dyn FnMut(Event),
) -> Result<Vec<Outcome>, SendError> {
    let inbox = Inbox::new()?.1;
    let session = SenderSpec {
        io,
        identity,
        targets,
        options,
        shared_rate: None,
    };
    session.run(source, stop, &inbox, events)
}

/// The parameters that apply to the whole transfer.
pub(crate) struct SenderSpec<'a> {
    pub(crate) io: Box<dyn DatagramIo>,
    pub(crate) identity: &'a Identity,
    pub(crate) targets: Vec<Target>,
    pub(crate) options: SendOptions,
    /// The rate that this transfer shares with others.
    pub(crate) shared_rate: Option<Arc<SharedRate>>,
}

impl SenderSpec<'_> {
    /// Sends a source. `inbox`: receivers that join later, and the command to end.
    pub(crate) fn run(
        self,
        source: &mut dyn Source,
        stop: Option<BorrowedFd<'_>>,
        inbox: &Inbox,
        events: &mut dyn FnMut(Event),
    ) -> Result<Vec<Outcome>, SendError> {
        let SenderSpec {
            io,
            identity,
            targets,
            options,
            shared_rate,
        } = self;
        let addresses = || targets.iter().flat_map(|target| &target.addresses);
        let only_v4 = io.local_address()?.is_ipv4();
        let headers = addresses().map(headers).max().unwrap_or(28);
        // Larger packets are tried on the path to each receiver.
        let mtu = addresses().map(|address| io.path_mtu(*address)).min();
        let payload = initial_payload(mtu.unwrap_or(USUAL_MTU), headers);
        let chacha = !has_aes();
        let secret = random()?;
        let algorithm = if chacha {
            Algorithm::ChaCha20Poly1305
        } else {
            Algorithm::Aes128Gcm
        };
        let content = ContentKey::new(algorithm, &secret)?;
        let (layout, manifest) = (source.layout(), source.manifest().to_vec());
        // A source that was sent before knows values already, and does not report them again.
        let known = (0..layout.extents()).filter_map(|extent| Some((extent, source.value(extent)?)));
        let values = known.collect();
        let unreadable = source.unreadable().len();
        for problem in source.unreadable() {
            events(Event::File {
                peer: "source".into(),
                file: None,
                path: None,
                problem: Some(problem.clone()),
            });
        }
        let mut group = Group::new(layout);
        let clock = Clock::start();
        let packet_size = u64::from(payload) + u64::from(headers) + DATA_OVERHEAD as u64;
        group.set_uplink(options.rate, packet_size, clock.now());
        let pacing = shared_rate.map(|rate| SharedPacing {
            slots: RateSlots::new(rate),
            uplink: None,
            packet_size,
        });
        let control = Control::new(identity, false, options.silence, options.key_log.clone())?;
        let (tasks, todo) = channel();
        let (done, replies) = channel();
        let waker = &inbox.waker;
        let mut sender = Sender {
            io,
            control,
            clock,
            identity,
            manifest,
            layout,
            group,
            pacing,
            cache: SlabCache::new(layout, CACHE_SIZE),
            reader: Reader {
                tasks,
                replies,
                requested: HashMap::new(),
                requests: 0,
                wanted: Vec::new(),
                spare: Vec::new(),
            },
            waker: Arc::clone(waker),
            values,
            withdrawn: Vec::new(),
            unreadable,
            paths: source.paths(),
            offer: Offer {
                payload,
                chacha,
                secret,
                requests: options.requests,
            },
            options,
            headers,
            only_v4,
            peers: Vec::new(),
            outgoing: Vec::new(),
            events,
            first_delivered: None,
            reported_at: Instant::now(),
            waiting: Duration::ZERO,
        };
        for target in targets {
            sender.add(target)?;
        }
        let sealer = Sealer::new(layout, content);
        std::thread::scope(|scope| {
            scope.spawn(move || reader::run(source, sealer, &todo, &done, waker));
            let result = sender.run(stop, inbox);
            // The reader ends when this end of the channel is dropped.
            let Sender { reader, peers, .. } = sender;
            drop(reader);
            result?;
            let stopped = || Outcome::Resumable {
                reason: "stopped".into(),
            };
            Ok(peers
                .into_iter()
                .map(|peer| peer.reported.unwrap_or_else(stopped))
                .collect())
        })
    }
}

/// Returns true if this processor has instructions for AES; without them, ChaCha20 is faster.
fn has_aes() -> bool {
    #[cfg(target_arch = "x86_64")]
    return std::arch::is_x86_feature_detected!("aes");
    #[cfg(not(target_arch = "x86_64"))]
    return cfg!(target_arch = "aarch64");
}

impl Sender<'_> {
    /// Runs the loop. Notifies the receivers if the source cannot be read any more.
    fn run(&mut self, stop: Option<BorrowedFd<'_>>, inbox: &Inbox) -> Result<(), SendError> {
        let result = match self.serve(stop, inbox) {
            // A reader that has ended gives the reason in its last reply.
            Err(SendError::Reader) => self.on_replies().and(Err(SendError::Reader)),
            result => result,
        };
        match result {
            Err(SendError::Files(error)) => {
                let reason = error.to_string();
                self.end_all(&Outcome::Integrity { reason });
                self.send_control()
            }
            result => result,
        }
    }

    /// Runs the loop until all peers have ended and their links are closed, or until the user stops it.
    fn serve(&mut self, stop: Option<BorrowedFd<'_>>, inbox: &Inbox) -> Result<(), SendError> {
        precise_timers();
        let mut progress_at = Instant::now() + PROGRESS;
        let mut linger: Option<Instant> = None;
        let mut readable = true;
        loop {
            let more = readable && self.receive()?;
            readable = true;
            while let Some((link, event)) = self.control.poll_event() {
                self.on_link_event(link, event)?;
            }
            let answered = self.on_replies()?;
            let mut stopped = false;
            while let Some(command) = inbox.try_recv() {
                match command {
                    Command::Add(target) => self.add(target)?,
                    // A sender begins no further transfer in any case.
                    Command::Drain(_) => {}
                    Command::Stop => stopped = true,
                }
            }
            self.check_haves()?;
            self.answer_needs()?;
            let now = Instant::now();
            self.on_timeouts(now)?;
            self.request_slabs()?;
            let sending = self.transmit()?;
            self.send_control()?;
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
                if self.control.is_finished() || now >= until {
                    return Ok(());
                }
            } else {
                linger = None;
            }
            if !stopped && (more || answered || sending) {
                continue;
            }
            let next = [
                self.group.next_timeout().map(|at| self.clock.instant(at)),
                self.control.next_timeout(),
                self.io.next_timeout(),
                self.redial_at(),
                linger,
                Some(progress_at),
            ];
            let until = next.into_iter().flatten().min().unwrap_or(progress_at);
            let before = Instant::now();
            if let Some(woken) = self.wait(stop, until)? {
                readable = woken.io;
                stopped |= woken.stop;
            }
            if stopped {
                self.end_all(&Outcome::Resumable {
                    reason: "stopped by the user".into(),
                });
                return self.send_control();
            }
            self.waiting += before.elapsed();
        }
    }

    /// Waits for a datagram, an answer of the reader, a command, or a time. Returns `None` if an answer was
    /// there already.
    fn wait(&mut self, stop: Option<BorrowedFd<'_>>, until: Instant) -> Result<Option<Readable>, SendError> {
        self.waker.arm();
        // Earlier answers do not wake this thread, so they are handled first.
        if self.on_replies()? {
            self.waker.disarm();
            return Ok(None);
        }
        let fds = [Some(self.io.descriptor()), Some(self.waker.as_fd()), stop];
        let readable = wait(&fds, until)?;
        self.waker.disarm();
        Ok(Some(readable))
    }

    /// Sends the datagrams of the control channel.
    fn send_control(&mut self) -> Result<(), SendError> {
        while let Some((to, datagram)) = self.control.poll_transmit(Instant::now()) {
            self.io.send(to, &datagram)?;
        }
        Ok(self.io.flush()?)
    }

    /// Returns the time at which the first lost receiver is dialled again.
    fn redial_at(&self) -> Option<Instant> {
        let waits = self.peers.iter().filter_map(|peer| match peer.stage {
            Stage::Waiting { until } | Stage::Dialing { until, .. } => Some(until),
            _ => None,
        });
        waits.min()
    }

    /// Runs the timers that are due; ends peers that do not answer, and those that have left the group.
    fn on_timeouts(&mut self, now: Instant) -> Result<(), SendError> {
        if self.io.next_timeout().is_some_and(|at| at <= now) {
            self.io.on_timeout(now)?;
        }
        if self.control.next_timeout().is_some_and(|at| at <= now) {
            self.control.on_timeout(now);
        }
        let time = self.clock.now();
        if self.group.next_timeout().is_some_and(|at| at <= time) {
            self.group.on_timeout(time);
        }
        self.ping_silent_peers();
        for at in 0..self.peers.len() {
            match self.peers[at].stage {
                Stage::Dialing { until, .. } if now >= until => {
                    let reason =
                        "no answer from the receiver; check that `millrace receive` runs and that UDP passes";
                    self.on_lost(at, reason.into(), true);
                }
                Stage::Dialing { .. } => {
                    if let Some(refusal) = self.peers[at].ports.refusal() {
                        let reason = format!("{refusal}; check that `millrace receive` runs there");
                        self.close_dialed(at);
                        self.on_lost(at, reason, true);
                    }
                }
                Stage::Waiting { until } if now >= until => self.redial(at)?,
                Stage::Running(member) if self.group.flow(member).is_none() => {
                    let reason = "the receiver acknowledged packets that were never sent".into();
                    self.end(at, Outcome::Integrity { reason });
                }
                _ => {}
            }
        }
        self.detach_stragglers(now);
        Ok(())
    }

    /// Sends a packet of the control channel beside each probe of a flow whose feedback is overdue.
    fn ping_silent_peers(&mut self) {
        for peer in &mut self.peers {
            let (Stage::Running(member), Some(link)) = (&peer.stage, peer.link) else {
                continue;
            };
            let Some(stats) = self
                .group
                .flow(*member)
                .map(millrace_transport::flow::Flow::stats)
            else {
                continue;
            };
            if stats.probes > peer.probes {
                self.control.ping(link);
                peer.feedback_at_probe = Some(stats.feedback);
            }
            peer.probes = stats.probes;
        }
    }

    /// Ends the transfer to receivers that are too slow for the user.
    fn detach_stragglers(&mut self, now: Instant) {
        let delivered = |peer: &Peer| matches!(peer.stage, Stage::Ended(Outcome::Delivered));
        let late = match self.options.stragglers {
            Stragglers::Keep => false,
            Stragglers::Detach(time) => self
                .first_delivered
                .is_some_and(|at| now.saturating_duration_since(at) >= time),
            Stragglers::Quorum(wanted) => self.peers.iter().filter(|peer| delivered(peer)).count() >= wanted,
        };
        if late {
            self.end_all(&Outcome::Resumable {
                reason: "detached: other receivers have everything; send to it again to go on".into(),
            });
        }
    }
}
