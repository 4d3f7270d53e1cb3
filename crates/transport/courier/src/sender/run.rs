//! The loop of the sender.

use super::options::{SendError, SendOptions, Target};
use super::progress::PROGRESS;
use super::state::{Sender, Stage};
use crate::clock::{Clock, wait};
use crate::control::Control;
use crate::event::{Event, Outcome};
use crate::files::Source;
use crate::identity::{Identity, random};
use crate::io::{DatagramIo, UdpIo, headers};
use crate::message::Offer;
use millrace_transport::packet::DATA_OVERHEAD;
use millrace_transport::seal::{Algorithm, ContentKey};
use millrace_transport::sender::{CACHE_SIZE, Group};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

/// The time that closed links get to tell their peers.
const LINGER: Duration = Duration::from_secs(1);
/// Payload of a full packet at an MTU of 1,500 bytes, a multiple of 16.
const PAYLOAD: [(u16, u16); 2] = [(28, 1_424), (48, 1_408)];

/// Sends the files of a source to all targets; returns how it ended for each. `stop`: readable when the user stops it.
///
/// # Errors
/// If it cannot go on for any of them.
pub fn send(
    source: &mut dyn Source,
    identity: &Identity,
    targets: Vec<Target>,
    options: SendOptions,
    stop: Option<BorrowedFd<'_>>,
    events: &mut dyn FnMut(Event),
) -> Result<Vec<Outcome>, SendError> {
    let mut addresses = targets.iter().flat_map(|target| &target.addresses);
    let local = if addresses.all(SocketAddr::is_ipv4) {
        IpAddr::V4(Ipv4Addr::UNSPECIFIED)
    } else {
        IpAddr::V6(Ipv6Addr::UNSPECIFIED)
    };
    let io = UdpIo::bind(SocketAddr::new(local, 0))?;
    send_over(Box::new(io), source, identity, targets, options, stop, events)
}

/// Sends files as [`send`] does, over any backend.
///
/// # Errors
/// If it cannot go on for any of the targets.
pub fn send_over(
    io: Box<dyn DatagramIo>,
    source: &mut dyn Source,
    identity: &Identity,
    targets: Vec<Target>,
    options: SendOptions,
    stop: Option<BorrowedFd<'_>>,
    events: &mut dyn FnMut(Event),
) -> Result<Vec<Outcome>, SendError> {
    let addresses = || targets.iter().flat_map(|target| &target.addresses);
    let only_v4 = io.local_address()?.is_ipv4();
    let headers = addresses().map(headers).max().unwrap_or(28);
    let payload = PAYLOAD
        .iter()
        .find(|(known, _)| *known == headers)
        .map_or(1_408, |(_, payload)| *payload);
    let chacha = !has_aes();
    let secret = random()?;
    let algorithm = if chacha {
        Algorithm::ChaCha20Poly1305
    } else {
        Algorithm::Aes128Gcm
    };
    let content = ContentKey::new(algorithm, &secret)?;
    let layout = source.layout();
    let mut group = Group::new(layout, payload, content, CACHE_SIZE);
    let clock = Clock::start();
    let packet_size = u64::from(payload) + u64::from(headers) + DATA_OVERHEAD as u64;
    group.set_uplink(options.rate, packet_size, clock.now());
    let mut sender = Sender {
        io,
        control: Control::new(identity, false)?,
        clock,
        identity,
        source,
        options,
        group,
        offer: Offer {
            payload,
            chacha,
            secret,
        },
        headers,
        peers: Vec::new(),
        outgoing: Vec::new(),
        events,
        reading: Duration::ZERO,
        waiting: Duration::ZERO,
    };
    for target in targets {
        sender.dial(target, only_v4)?;
    }
    sender.run(stop)?;
    Ok(sender
        .peers
        .into_iter()
        .map(|peer| match peer.stage {
            Stage::Ended(outcome) => outcome,
            _ => Outcome::Resumable {
                reason: "stopped".into(),
            },
        })
        .collect())
}

/// Returns true if this processor has instructions for AES; without them, ChaCha20 is faster.
fn has_aes() -> bool {
    #[cfg(target_arch = "x86_64")]
    return std::arch::is_x86_feature_detected!("aes");
    #[cfg(not(target_arch = "x86_64"))]
    return cfg!(target_arch = "aarch64");
}

impl Sender<'_> {
    /// Runs the loop until all peers have ended and their links are closed, or until the user stops it.
    fn run(&mut self, stop: Option<BorrowedFd<'_>>) -> Result<(), SendError> {
        let mut progress_at = Instant::now() + PROGRESS;
        let mut linger: Option<Instant> = None;
        loop {
            self.receive()?;
            while let Some((link, event)) = self.control.poll_event() {
                self.on_link_event(link, event)?;
            }
            let checking = self.check_haves()?;
            let now = Instant::now();
            self.on_timeouts(now)?;
            let sending = self.transmit()?;
            while let Some((to, datagram)) = self.control.poll_transmit(now) {
                self.io.send(to, &datagram)?;
            }
            self.io.flush()?;
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
                if self.control.len() == 0 || now >= until {
                    return Ok(());
                }
            }
            if checking || sending {
                continue;
            }
            let next = [
                self.group.next_timeout().map(|at| self.clock.instant(at)),
                self.control.next_timeout(),
                self.io.next_timeout(),
                linger,
                Some(progress_at),
            ];
            let until = next.into_iter().flatten().min().unwrap_or(progress_at);
            let before = Instant::now();
            if wait(self.io.descriptor(), stop, until)? {
                self.end_all(&Outcome::Resumable {
                    reason: "stopped by the user".into(),
                });
                while let Some((to, datagram)) = self.control.poll_transmit(Instant::now()) {
                    self.io.send(to, &datagram)?;
                }
                self.io.flush()?;
                return Ok(());
            }
            self.waiting += before.elapsed();
        }
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
        for at in 0..self.peers.len() {
            match self.peers[at].stage {
                Stage::Dialing { until, .. } if now >= until => self.end(at, Outcome::Resumable {
                    reason: "no answer from the receiver; check that `millrace receive` runs and that UDP passes".into(),
                }),
                Stage::Running(member) if self.group.flow(member).is_none() => self.end(at, Outcome::Integrity {
                    reason: "the receiver acknowledged packets that were never sent".into(),
                }),
                _ => {}
            }
        }
        Ok(())
    }
}
