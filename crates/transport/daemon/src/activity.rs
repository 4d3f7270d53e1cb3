//! Running transfers and counters, for metrics and status.

use millrace_courier::{Outcome, RefuseCode};
use parking_lot::Mutex;
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// A transfer that runs.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct RunningTransfer {
    pub(crate) grant: String,
    pub(crate) verb: &'static str,
    pub(crate) key: String,
    pub(crate) path: String,
    pub(crate) verified_bytes: u64,
    pub(crate) bytes: u64,
    pub(crate) rate_bps: u64,
    #[serde(skip)]
    pub(crate) started: Instant,
}

/// The names of outcomes, in the order of counters.
pub(crate) const OUTCOMES: [&str; 4] = ["delivered", "refused", "integrity", "resumable"];

/// Returns the index of an outcome in [`OUTCOMES`].
pub(crate) fn outcome_index(outcome: &Outcome) -> usize {
    match outcome {
        Outcome::Delivered => 0,
        Outcome::Refused { .. } => 1,
        Outcome::Integrity { .. } => 2,
        Outcome::Resumable { .. } => 3,
    }
}

/// The kinds of refusals, in the order of counters.
pub(crate) const REFUSALS: [RefuseCode; 6] = [
    RefuseCode::NotAdmitted,
    RefuseCode::Version,
    RefuseCode::Manifest,
    RefuseCode::Files,
    RefuseCode::Quota,
    RefuseCode::Busy,
];

/// A counter that only grows.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, value: u64) {
        self.0.fetch_add(value, Ordering::Relaxed);
    }

    pub(crate) fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The counters of the daemon, and its running transfers.
#[derive(Debug, Default)]
pub(crate) struct Activity {
    pub(crate) transfers: Mutex<BTreeMap<u64, RunningTransfer>>,
    next: AtomicU64,
    pub(crate) refusals: [Counter; 6],
    pub(crate) reloads: [Counter; 2],
}

impl Activity {
    /// Adds a transfer; returns its number.
    pub(crate) fn begin(&self, transfer: RunningTransfer) -> u64 {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.transfers.lock().insert(number, transfer);
        number
    }

    /// Removes a transfer.
    pub(crate) fn end(&self, number: u64) -> Option<RunningTransfer> {
        self.transfers.lock().remove(&number)
    }

    /// Counts a refusal.
    pub(crate) fn refused(&self, code: RefuseCode) {
        if let Some(at) = REFUSALS.iter().position(|known| *known == code) {
            self.refusals[at].add(1);
        }
    }

    /// Counts an attempt to load the configuration again.
    pub(crate) fn reloaded(&self, valid: bool) {
        self.reloads[usize::from(!valid)].add(1);
    }
}
