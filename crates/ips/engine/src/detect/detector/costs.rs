//! The costs of rules and of groups of the prefilter.

use std::collections::BTreeMap;

/// A clock: returns the nanoseconds since an arbitrary time.
pub type Clock = fn() -> u64;

/// The cost of a rule, or of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Cost {
    /// Number of evaluations, or of scans.
    pub checks: u64,
    /// Number of evaluations that matched; for a group, the number of rules that its scans found.
    pub hits: u64,
    /// Bytes that were scanned; 0 for rules.
    pub bytes: u64,
    /// Number of evaluations that were timed.
    pub samples: u64,
    /// Time of the evaluations that were timed, in nanoseconds.
    pub sampled_nanos: u64,
}

impl Cost {
    /// Returns the mean time of an evaluation in nanoseconds; `None` if none was timed.
    pub fn mean_nanos(&self) -> Option<f64> {
        (self.samples > 0).then(|| self.sampled_nanos as f64 / self.samples as f64)
    }

    /// Returns the time of all evaluations in nanoseconds, extrapolated from the sample.
    pub fn total_nanos(&self) -> f64 {
        self.mean_nanos().unwrap_or(0.0) * self.checks as f64
    }

    #[inline]
    pub(super) fn add(&mut self, sample: Option<u64>, hits: u64, bytes: u64) {
        self.checks += 1;
        self.hits += hits;
        self.bytes += bytes;
        if let Some(nanos) = sample {
            self.samples += 1;
            self.sampled_nanos += nanos;
        }
    }
}

/// A group of the prefilter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum GroupId {
    /// Payload of packets, by class: TCP, UDP, ICMP, others.
    Packets(u8),
    /// Data of streams.
    Stream,
    /// A buffer with transforms, by its index in [`Ruleset::hooks`](crate::detect::Ruleset::hooks).
    Hook(u16),
}

/// The costs since the profile began.
#[derive(Debug, Clone, Default)]
pub struct Costs {
    /// Rules by their index.
    pub rules: BTreeMap<u32, Cost>,
    pub groups: BTreeMap<GroupId, Cost>,
}

/// A profile in progress.
#[derive(Debug)]
pub(super) struct Profile {
    pub(super) clock: Clock,
    pub(super) count: u32,
    pub(super) costs: Costs,
}
