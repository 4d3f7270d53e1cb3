//! The state of the follower, for `millrace show ovsdb`.

use std::time::Instant;

use millrace_ovs::{Fault, Severity};
use parking_lot::Mutex;

/// The phase of the follower.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Phase {
    /// No database is configured.
    #[default]
    Off,
    /// Connecting, or waiting before the next attempt.
    Connecting,
    /// Connected, without the lock.
    WaitingForLock,
    /// The switch realises the database.
    Following,
}

/// The state of the follower.
#[derive(Debug, Clone, Default)]
pub struct Status {
    /// The address of the server.
    pub server: Option<String>,
    pub phase: Phase,
    /// The time at which the phase began.
    pub since: Option<Instant>,
    /// The reason why the last connection or attempt ended.
    pub last_error: Option<String>,
    /// The reason why the desired state waits for the store.
    pub waits_for: Option<String>,
    /// The number of the desired state in the database.
    pub next_cfg: Option<i64>,
    /// The number of the desired state that was reached.
    pub cur_cfg: Option<i64>,
    /// The number of monitored rows, and their memory in bytes.
    pub rows: usize,
    pub memory: usize,
    /// The number of connections and of committed transactions since the start.
    pub connections: u64,
    pub transactions: u64,
    /// The differences between rows and the switch.
    pub faults: Vec<Fault>,
}

/// A [`Status`] that its task writes.
#[derive(Debug, Default)]
pub(crate) struct Shared(Mutex<Status>);

impl Shared {
    pub(crate) fn read(&self) -> Status {
        self.0.lock().clone()
    }

    pub(crate) fn change(&self, change: impl FnOnce(&mut Status)) {
        change(&mut self.0.lock());
    }

    pub(crate) fn phase(&self, phase: Phase) {
        let mut status = self.0.lock();
        if status.phase != phase {
            status.phase = phase;
            status.since = Some(Instant::now());
        }
    }

    pub(crate) fn off(&self) {
        *self.0.lock() = Status::default();
    }

    pub(crate) fn connecting(&self, server: &str) {
        self.phase(Phase::Connecting);
        self.0.lock().server = Some(server.to_owned());
    }

    /// Notes the end of a connection or attempt. Returns true if the reason is another one than before.
    pub(crate) fn failed(&self, reason: &str) -> bool {
        self.phase(Phase::Connecting);
        let mut status = self.0.lock();
        let is_new = status.last_error.as_deref() != Some(reason);
        status.last_error = Some(reason.to_owned());
        is_new
    }

    /// Replaces the faults, and logs those that are new.
    pub(crate) fn faults(&self, faults: &[Fault]) {
        let mut status = self.0.lock();
        for fault in faults.iter().filter(|fault| !status.faults.contains(fault)) {
            match fault.severity {
                Severity::Refused => {
                    tracing::warn!(row = %fault.row, reason = fault.reason, "a row is not in effect");
                }
                Severity::Ignored => {
                    tracing::info!(row = %fault.row, reason = fault.reason, "a setting has no effect");
                }
            }
        }
        faults.clone_into(&mut status.faults);
    }
}
