//! A session: the window of an attached function, as a DAQ module uses it. It attaches again when the switch has detached it,
//! and maps Snort's verdicts.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::{Duration, Instant};

use millrace_nf::attach::{AttachError, AttachedSocket, Attachment};
use millrace_nf::shm::{ReceivedPacket, Unordered};
use millrace_nf::table::KeyedHash;
use millrace_nf::{Counters, Direction, ShunAction, Verdict};
use thiserror::Error;

use crate::SnortVerdict;
use crate::options::Options;

/// The pause between two attempts to attach.
const RETRY: Duration = Duration::from_millis(100);
/// Time limit for the answer of the switch. The switch waits for up to half a second after a function has failed.
const ANSWER: Duration = Duration::from_secs(2);
/// The interval of heartbeats without packets, and of counters.
const TICK: Duration = Duration::from_millis(100);

/// The names of the counters, which the switch shows.
const COUNTERS: [&str; 10] = [
    "received",
    "passed",
    "blocked",
    "replaced",
    "whitelisted",
    "blacklisted",
    "ignored",
    "retried",
    "injected",
    "shuns_ended",
];
/// The index of the counter of the first verdict, in the order of [`SnortVerdict`].
const FIRST_VERDICT: usize = 1;
const RECEIVED: usize = 0;
const INJECTED: usize = 8;
const SHUNS_ENDED: usize = 9;

/// The reason why a session cannot start.
#[derive(Debug, Error)]
pub enum SessionError {
    /// The switch cannot be reached, or refuses.
    #[error(transparent)]
    Attach(#[from] AttachError),
}

/// A packet that Snort has.
#[derive(Debug, Clone, Copy)]
pub struct Packet {
    /// The number of the window: a packet of a window that was given up cannot be answered.
    generation: u64,
    /// The location of the packet.
    pub received: ReceivedPacket,
}

impl Packet {
    /// Returns the direction of the packet.
    pub fn direction(&self) -> Direction {
        self.received.kind.direction
    }
}

/// A window, with its number.
struct Window {
    generation: u64,
    queue: Unordered,
    /// `None` once the switch has detached the function. The window stays while Snort has packets in it.
    socket: Option<AttachedSocket>,
}

/// The connection of one thread of Snort to its instance of a hop.
pub struct Session {
    options: Options,
    /// The key of the hash that detects changes after the first segment. It is random, so that nobody can choose bytes
    /// with equal hashes. `None` if Snort changes no packets.
    rest_key: Option<KeyedHash>,
    counters: Counters,
    /// All windows in use. The newest window is the last element.
    windows: Vec<Window>,
    generation: u64,
    next_attempt: Instant,
    next_tick: Instant,
    /// The reason for which the last attempt failed; empty if it succeeded.
    error: String,
}

impl Session {
    /// Returns a session that is not attached yet.
    pub fn new(options: Options) -> Session {
        let now = Instant::now();
        let random = || RandomState::new().build_hasher().finish();
        Session {
            rest_key: options.is_inline.then(|| KeyedHash::new(random())),
            options,
            counters: Counters::new(&COUNTERS),
            windows: Vec::new(),
            generation: 0,
            next_attempt: now,
            next_tick: now,
            error: String::new(),
        }
    }

    /// Attaches to the hop.
    ///
    /// # Errors
    /// [`SessionError`]; the next call of [`receive`](Session::receive) tries again.
    pub fn attach(&mut self) -> Result<(), SessionError> {
        self.next_attempt = Instant::now() + RETRY;
        let (socket, instance) = (&self.options.socket, self.options.instance);
        let attachment = Attachment::new(socket, instance, &COUNTERS, ANSWER)?;
        let (socket, end) = attachment.into_parts();
        end.beat();
        self.generation += 1;
        self.windows.push(Window {
            generation: self.generation,
            queue: Unordered::new(end, self.rest_key),
            socket: Some(socket),
        });
        Ok(())
    }

    /// Returns true if the session is attached.
    pub fn is_attached(&self) -> bool {
        self.windows.last().is_some_and(|window| window.socket.is_some())
    }

    /// Returns the reason why the last attempt to attach again failed; empty if it succeeded, or if there was none.
    pub fn error(&self) -> &str {
        &self.error
    }

    /// Returns the next packet, if one waits. Attaches again if the switch has detached the function.
    pub fn receive(&mut self) -> Option<Packet> {
        if !self.is_attached() {
            self.attach_again();
        }
        let window = self.windows.last_mut().filter(|window| window.socket.is_some())?;
        window.queue.end().beat();
        let received = window.queue.receive()?;
        self.counters.add(RECEIVED, 1);
        Some(Packet {
            generation: window.generation,
            received,
        })
    }

    /// Sends a heartbeat, shows the counters, and notices that the switch has detached the function. The
    /// caller calls this while no packet waits, and sometimes otherwise.
    pub fn tick(&mut self) {
        let now = Instant::now();
        if now < self.next_tick {
            return;
        }
        self.next_tick = now + TICK;
        if let Some(window) = self.windows.last_mut() {
            while window.queue.shun_ended().is_some() {
                self.counters.add(SHUNS_ENDED, 1);
            }
            let end = window.queue.end();
            end.beat();
            end.show(&self.counters);
            let is_open = window.socket.as_ref().is_some_and(AttachedSocket::is_open);
            if !is_open || window.queue.end().is_stopped() {
                window.socket = None;
            }
        }
        self.windows
            .retain(|window| window.socket.is_some() || window.queue.outstanding() != 0);
    }

    fn attach_again(&mut self) {
        if Instant::now() >= self.next_attempt {
            self.error = self
                .attach()
                .err()
                .map_or_else(String::new, |error| error.to_string());
        }
    }

    /// Answers a packet with a verdict. The switch sees it after [`flush`](Session::flush). Snort replaces bytes in place, so
    /// the length of a packet cannot change. A packet with changes after its first segment, which the switch does not copy
    /// back, is dropped instead.
    pub fn finish(&mut self, packet: &Packet, verdict: SnortVerdict) {
        self.counters.add(FIRST_VERDICT + verdict as usize, 1);
        let (is_inline, idle) = (self.options.is_inline, self.options.shun_idle);
        let is_replaced = is_inline && verdict == SnortVerdict::Replace;
        let (verdict, shun) = match verdict {
            _ if !is_inline => (Verdict::Next, None),
            SnortVerdict::Pass | SnortVerdict::Replace => (Verdict::Next, None),
            SnortVerdict::Block => (Verdict::Drop, None),
            SnortVerdict::Whitelist | SnortVerdict::Ignore => (Verdict::Next, Some(ShunAction::Pass)),
            SnortVerdict::Blacklist => (Verdict::Drop, Some(ShunAction::Drop)),
            SnortVerdict::Retry if self.options.retry_passes => (Verdict::Next, None),
            SnortVerdict::Retry => (Verdict::Drop, None),
        };
        let Some(queue) = self.window(packet) else {
            return;
        };
        let verdict = match is_replaced && queue.has_changed_rest(&packet.received) {
            true => Verdict::Drop,
            false => verdict,
        };
        if let Some(action) = shun {
            queue.shun(&packet.received, action, idle);
        }
        queue.answer(&packet.received, verdict);
    }

    /// Makes answers and injected packets visible to the switch.
    pub fn flush(&mut self) {
        self.windows.iter_mut().for_each(|window| window.queue.publish());
    }

    /// Makes all answers and the counters visible to the switch, before the function ends.
    pub fn close(&mut self) {
        self.flush();
        if let Some(window) = self.windows.last_mut() {
            window.queue.end().show(&self.counters);
        }
    }

    /// Sends a packet in a direction, once the switch has taken `packet` back; without `packet`, once it has
    /// taken back all packets that were received. Returns false if there is no room, or the session is not
    /// attached.
    pub fn inject(&mut self, packet: Option<&Packet>, direction: Direction, frame: &[u8]) -> bool {
        let is_sent = match packet {
            Some(packet) => match self.window(packet) {
                Some(queue) => queue.send(Some(&packet.received), direction, frame),
                None => false,
            },
            None => match self.windows.last_mut().filter(|window| window.socket.is_some()) {
                Some(window) => window.queue.send(None, direction, frame),
                None => false,
            },
        };
        self.counters.add(INJECTED, u64::from(is_sent));
        is_sent
    }

    /// Returns the window of a packet.
    fn window(&mut self, packet: &Packet) -> Option<&mut Unordered> {
        let mut windows = self.windows.iter_mut();
        let window = windows.find(|window| window.generation == packet.generation)?;
        Some(&mut window.queue)
    }

    /// Returns the values of the counters of a session, by verdict.
    pub fn verdicts(&self) -> [u64; SnortVerdict::LEN] {
        let values = self.counters.read();
        core::array::from_fn(|index| values.get(FIRST_VERDICT + index).map_or(0, |(_, value)| *value))
    }

    /// Returns the number of packets received, and that of packets injected.
    pub fn totals(&self) -> (u64, u64) {
        let values = self.counters.read();
        let value = |index: usize| values.get(index).map_or(0, |(_, value)| *value);
        (value(RECEIVED), value(INJECTED))
    }

    /// Returns the number of packets that are received and not answered.
    pub fn outstanding(&self) -> usize {
        self.windows.iter().map(|window| window.queue.outstanding()).sum()
    }
}
