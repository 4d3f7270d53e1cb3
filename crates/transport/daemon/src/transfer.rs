//! One transfer of a grant: its slot among the concurrent transfers, its progress, and its line in the audit
//! log.

use crate::activity::{Activity, Counter, RunningTransfer, outcome_index};
use crate::audit::{Audit, AuditLine};
use millrace_courier::Outcome;
use millrace_courier::access::TransferObserver;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The direction of a transfer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Direction {
    /// The peer writes.
    Write,
    /// The peer reads.
    Read,
}

impl Direction {
    /// Returns the name in metrics and logs.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Direction::Write => "write",
            Direction::Read => "read",
        }
    }
}

/// The counters of a grant in one direction.
#[derive(Debug, Default)]
pub(crate) struct DirectionCounters {
    pub(crate) running: AtomicUsize,
    pub(crate) bytes: Counter,
    pub(crate) outcomes: [Counter; 4],
}

/// An admitted transfer. Dropping it frees its slot.
pub(crate) struct Transfer {
    counters: Arc<[DirectionCounters; 2]>,
    direction: Direction,
    activity: Arc<Activity>,
    audit: Arc<Audit>,
    number: u64,
    /// Verified bytes that need not be counted any more: they are in the counters, or were present before the
    /// transfer.
    counted: u64,
}

impl Transfer {
    pub(crate) fn begin(
        counters: Arc<[DirectionCounters; 2]>,
        direction: Direction,
        activity: Arc<Activity>,
        audit: Arc<Audit>,
        running: RunningTransfer,
    ) -> Transfer {
        counters[direction as usize]
            .running
            .fetch_add(1, Ordering::Relaxed);
        let number = activity.begin(running);
        Transfer {
            counters,
            direction,
            activity,
            audit,
            number,
            counted: 0,
        }
    }

    fn count(&mut self, verified: u64) {
        let before = core::mem::replace(&mut self.counted, verified);
        self.counters[self.direction as usize]
            .bytes
            .add(verified.saturating_sub(before));
    }
}

impl TransferObserver for Transfer {
    fn on_accept(&mut self, present: u64) {
        self.counted = present;
    }

    fn on_progress(&mut self, verified: u64, bytes: u64, rate_bps: u64) {
        self.count(verified);
        let mut transfers = self.activity.transfers.lock();
        if let Some(running) = transfers.get_mut(&self.number) {
            (running.verified_bytes, running.bytes, running.rate_bps) = (verified, bytes, rate_bps);
        }
    }

    fn on_end(&mut self, outcome: &Outcome, verified: u64) {
        self.count(verified);
        self.counters[self.direction as usize].outcomes[outcome_index(outcome)].add(1);
        let running = self.activity.transfers.lock().get(&self.number).cloned();
        if let Some(running) = running {
            let seconds = running.started.elapsed().as_secs_f64();
            self.audit.append(&AuditLine {
                grant: &running.grant,
                verb: running.verb,
                key: &running.key,
                path: &running.path,
                outcome,
                verified_bytes: verified,
                seconds,
            });
            tracing::info!(
                grant = running.grant,
                verb = running.verb,
                key = running.key,
                ?outcome,
                verified,
                "transfer ended"
            );
        }
    }
}

impl Drop for Transfer {
    fn drop(&mut self) {
        self.activity.end(self.number);
        self.counters[self.direction as usize]
            .running
            .fetch_sub(1, Ordering::Relaxed);
    }
}
