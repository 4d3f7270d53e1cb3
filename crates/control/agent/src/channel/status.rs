//! The states of channels, for `millrace show controllers`, the REST API and metrics.

use core::sync::atomic::Ordering;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use millrace_openflow::roles::Role;
use millrace_types::{Duration, Time};
use parking_lot::Mutex;

use crate::controllers::{ChannelCounters, LogLimit};
use crate::observe::{Observation, Observer};

/// The side that opened a channel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ChannelKind {
    /// The switch, as the configuration asks (`tcp:`).
    Active,
    /// The switch, in addition to its main connection (OpenFlow 1.3.5, section 6.3.5).
    Auxiliary,
    /// None: a listener of the switch (`ptcp:`).
    Listener,
    /// A controller, by connecting to a listener.
    Accepted,
}

/// The progress of a connection between switch and controller.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ChannelState {
    /// Connecting, or exchanging HELLO.
    Connecting,
    /// Up.
    Connected,
    /// Waiting before the next attempt.
    Waiting {
        /// The duration of the whole pause.
        pause: Duration,
    },
    /// Listening for controllers.
    Listening,
}

/// The target and state of an OpenFlow channel, as `show controllers` prints them.
#[derive(Clone, Debug)]
pub struct ChannelStatus {
    /// The number of the channel, unique in its bridge since the bridge was added.
    pub number: u64,
    /// The configured target: `tcp:127.0.0.1:6653`.
    pub target: String,
    /// The side that opened the channel.
    pub kind: ChannelKind,
    pub state: ChannelState,
    /// Time in this state.
    pub since: Duration,
    /// The address of the controller; for a listener its own address, with the port that the kernel chose.
    pub address: Option<SocketAddr>,
    /// The role of a connected controller.
    pub role: Option<Role>,
    /// The reason why the latest attempt or connection ended, and the next step.
    pub last_error: Option<String>,
    /// Messages received.
    pub messages_in: u64,
    /// Messages sent.
    pub messages_out: u64,
    /// Messages that were dropped because the controller did not keep up.
    pub dropped: u64,
}

struct Line {
    target: String,
    kind: ChannelKind,
    state: ChannelState,
    changed: Instant,
    address: Option<SocketAddr>,
    last_error: Option<String>,
    tally: Arc<ChannelCounters>,
}

/// The states of all channels of a bridge, written by the tasks of the channels.
pub struct ChannelTable {
    bridge: String,
    began: Instant,
    /// Limits the log lines about requests that cannot be decoded.
    refusals: Mutex<LogLimit>,
    lines: Mutex<(u64, BTreeMap<u64, Line>)>,
    observer: OnceLock<Observer>,
}

impl ChannelTable {
    pub(super) fn new(bridge: String) -> ChannelTable {
        ChannelTable {
            bridge,
            began: Instant::now(),
            refusals: Mutex::default(),
            lines: Mutex::default(),
            observer: OnceLock::new(),
        }
    }

    /// Sets the observer of the channels. The first call counts.
    pub(crate) fn observe(&self, observer: Observer) {
        // A second observer would be a mistake of the caller, and changes nothing.
        let _first = self.observer.set(observer);
    }

    fn report(&self) {
        if let Some(observer) = self.observer.get() {
            observer(&Observation::Channels { bridge: &self.bridge });
        }
    }

    /// Returns the name of the bridge.
    pub(super) fn bridge(&self) -> &str {
        &self.bridge
    }

    /// Adds a channel to the table. Dropping the returned entry removes it.
    pub(crate) fn line(
        self: &Arc<Self>,
        target: String,
        kind: ChannelKind,
        state: ChannelState,
    ) -> ChannelEntry {
        let tally = Arc::new(ChannelCounters::default());
        let line = Line {
            target,
            kind,
            state,
            changed: Instant::now(),
            address: None,
            last_error: None,
            tally: Arc::clone(&tally),
        };
        let mut lines = self.lines.lock();
        lines.0 += 1;
        let key = lines.0;
        lines.1.insert(key, line);
        ChannelEntry {
            channel_table: Arc::clone(self),
            key,
            tally,
        }
    }

    /// Returns the status of all channels, oldest first.
    pub fn read(&self) -> Vec<ChannelStatus> {
        let lines = self.lines.lock();
        let status = |(number, line): (&u64, &Line)| ChannelStatus {
            number: *number,
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
        lines.1.iter().map(status).collect()
    }
}

/// The entry of one channel in a [`ChannelTable`].
pub(crate) struct ChannelEntry {
    channel_table: Arc<ChannelTable>,
    key: u64,
    tally: Arc<ChannelCounters>,
}

impl ChannelEntry {
    pub(super) fn bridge(&self) -> &str {
        &self.channel_table.bridge
    }

    /// Returns `None` if a log line that a peer causes must be suppressed now. Otherwise returns the number
    /// of lines suppressed since the last written line.
    pub(super) fn admits_log(&self) -> Option<u64> {
        let now = Time::ZERO + self.channel_table.began.elapsed();
        self.channel_table.refusals.lock().admit(now)
    }

    pub(crate) fn tally(&self) -> &Arc<ChannelCounters> {
        &self.tally
    }

    fn change(&self, change: impl FnOnce(&mut Line)) {
        if let Some(line) = self.channel_table.lines.lock().1.get_mut(&self.key) {
            change(line);
        }
    }

    pub(crate) fn set_state(&self, state: ChannelState) {
        self.change(|line| {
            line.state = state;
            line.changed = Instant::now();
        });
        self.channel_table.report();
    }

    pub(crate) fn set_address(&self, address: Option<SocketAddr>) {
        self.change(|line| line.address = address);
    }

    pub(crate) fn set_error(&self, error: Option<String>) {
        self.change(|line| line.last_error = error);
    }
}

impl Drop for ChannelEntry {
    fn drop(&mut self) {
        self.channel_table.lines.lock().1.remove(&self.key);
        self.channel_table.report();
    }
}
