//! What is to be said of a channel: for `millrace show controllers`, for the API, for metrics.

use core::sync::atomic::{AtomicU64, Ordering};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use millrace_openflow::roles::Role;
use millrace_types::{Duration, Time};

use super::log_limit::LogLimit;

/// Who opened a channel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ChannelKind {
    /// The switch, as the configuration asks (`tcp:`).
    Active,
    /// The switch, beside an active one (section 6.3.5).
    Auxiliary,
    /// Nobody yet: the switch listens (`ptcp:`).
    Listener,
    /// A controller, on a listener.
    Accepted,
}

/// How far a channel is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ChannelState {
    /// Connecting, or agreeing on a version.
    Connecting,
    /// Up.
    Connected,
    /// Waiting before the next attempt.
    Waiting {
        /// For how long in all.
        pause: Duration,
    },
    /// A listener that waits for controllers.
    Listening,
}

/// One channel.
#[derive(Clone, Debug)]
pub struct ChannelStatus {
    /// As configured: `tcp:127.0.0.1:6653`.
    pub target: String,
    /// Who opened it.
    pub kind: ChannelKind,
    /// How far it is.
    pub state: ChannelState,
    /// For how long it has been so.
    pub since: Duration,
    /// The address of the controller; of a listener its own, with the port that the system chose.
    pub address: Option<SocketAddr>,
    /// The role of a controller that is connected.
    pub role: Option<Role>,
    /// Why the last attempt or connection ended, with what to do about it.
    pub last_error: Option<String>,
    /// Messages received.
    pub messages_in: u64,
    /// Messages sent.
    pub messages_out: u64,
    /// Messages that were not sent because the controller did not keep up.
    pub dropped: u64,
}

/// Counts that the task of a connection and the control thread share.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) messages_in: AtomicU64,
    pub(crate) messages_out: AtomicU64,
    pub(crate) dropped: AtomicU64,
    /// Number of the role on the wire; 0 for none.
    role: AtomicU64,
}

impl Tally {
    pub(crate) fn set_role(&self, role: Option<Role>) {
        let raw = role.map_or(0, |role| u64::from(role.raw()));
        self.role.store(raw, Ordering::Relaxed);
    }

    fn role(&self) -> Option<Role> {
        Role::from_raw(self.role.load(Ordering::Relaxed) as u32)
    }
}

struct Line {
    target: String,
    kind: ChannelKind,
    state: ChannelState,
    changed: Instant,
    address: Option<SocketAddr>,
    last_error: Option<String>,
    tally: Arc<Tally>,
}

/// The states of all channels of a bridge, which their tasks write.
pub struct Board {
    bridge: String,
    began: Instant,
    /// Limits the log lines about requests that cannot be decoded.
    refusals: Mutex<LogLimit>,
    lines: Mutex<(u64, BTreeMap<u64, Line>)>,
}

impl Board {
    pub(super) fn new(bridge: String) -> Board {
        Board {
            bridge,
            began: Instant::now(),
            refusals: Mutex::default(),
            lines: Mutex::default(),
        }
    }

    /// Returns the name of the bridge.
    pub(super) fn bridge(&self) -> &str {
        &self.bridge
    }

    fn lines(&self) -> MutexGuard<'_, (u64, BTreeMap<u64, Line>)> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A line for one channel, which is there until the returned value is dropped.
    pub(crate) fn line(
        self: &Arc<Self>,
        target: String,
        kind: ChannelKind,
        state: ChannelState,
    ) -> BoardLine {
        let tally = Arc::new(Tally::default());
        let line = Line {
            target,
            kind,
            state,
            changed: Instant::now(),
            address: None,
            last_error: None,
            tally: Arc::clone(&tally),
        };
        let mut lines = self.lines();
        lines.0 += 1;
        let key = lines.0;
        lines.1.insert(key, line);
        BoardLine {
            board: Arc::clone(self),
            key,
            tally,
        }
    }

    /// All channels, the oldest first.
    pub fn read(&self) -> Vec<ChannelStatus> {
        let lines = self.lines();
        let status = |line: &Line| ChannelStatus {
            target: line.target.clone(),
            kind: line.kind,
            state: line.state,
            since: line.changed.elapsed(),
            address: line.address,
            role: line.tally.role(),
            last_error: line.last_error.clone(),
            messages_in: line.tally.messages_in.load(Ordering::Relaxed),
            messages_out: line.tally.messages_out.load(Ordering::Relaxed),
            dropped: line.tally.dropped.load(Ordering::Relaxed),
        };
        lines.1.values().map(status).collect()
    }
}

/// The line of one channel.
pub(crate) struct BoardLine {
    board: Arc<Board>,
    key: u64,
    tally: Arc<Tally>,
}

impl BoardLine {
    pub(super) fn bridge(&self) -> &str {
        &self.board.bridge
    }

    /// Returns the number of lines suppressed since the last admitted one if a refused request may be logged now, and
    /// `None` if it may not.
    pub(super) fn admits_refusal(&self) -> Option<u64> {
        let now = Time::ZERO + self.board.began.elapsed();
        let limit = self.board.refusals.lock();
        limit.unwrap_or_else(PoisonError::into_inner).admit(now)
    }

    pub(crate) fn tally(&self) -> &Arc<Tally> {
        &self.tally
    }

    fn change(&self, change: impl FnOnce(&mut Line)) {
        if let Some(line) = self.board.lines().1.get_mut(&self.key) {
            change(line);
        }
    }

    pub(crate) fn set_state(&self, state: ChannelState) {
        self.change(|line| {
            line.state = state;
            line.changed = Instant::now();
        });
    }

    pub(crate) fn set_address(&self, address: Option<SocketAddr>) {
        self.change(|line| line.address = address);
    }

    pub(crate) fn set_error(&self, error: Option<String>) {
        self.change(|line| line.last_error = error);
    }
}

impl Drop for BoardLine {
    fn drop(&mut self) {
        self.board.lines().1.remove(&self.key);
    }
}
