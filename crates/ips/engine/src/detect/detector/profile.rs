//! The cost of rules and of groups of the prefilter: evaluations, matches, and time of a sample of them.
//!
//! Two clock readings for each evaluation would cost more than most evaluations, so only every Nth is timed.

use std::collections::BTreeMap;

use super::Detector;

/// Binary logarithm of the sampling interval: one evaluation of 16 is timed.
const SAMPLE_SHIFT: u32 = 4;

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

    fn add(&mut self, sample: Option<u64>, hits: u64, bytes: u64) {
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
    clock: Clock,
    count: u32,
    costs: Costs,
}

/// A measurement in progress: the time at its start, if it is timed.
pub(super) struct Sample(Option<u64>);

impl Detector {
    /// Counts the cost of rules and groups from now on.
    pub fn profile(&mut self, clock: Clock) {
        self.profile = Some(Box::new(Profile {
            clock,
            count: 0,
            costs: Costs::default(),
        }));
    }

    /// Returns the costs, and ends the profile.
    pub fn take_profile(&mut self) -> Costs {
        self.profile
            .take()
            .map(|profile| profile.costs)
            .unwrap_or_default()
    }

    /// Begins a measurement; `None` if there is no profile.
    #[inline]
    pub(super) fn begin_sample(&mut self) -> Option<Sample> {
        let profile = self.profile.as_deref_mut()?;
        profile.count = profile.count.wrapping_add(1);
        let is_timed = profile.count & ((1 << SAMPLE_SHIFT) - 1) == 0;
        Some(Sample(is_timed.then(profile.clock)))
    }

    /// Ends the measurement of an evaluation.
    #[inline]
    pub(super) fn end_rule(&mut self, sample: Option<Sample>, rule: u32, is_match: bool) {
        if let (Some(Sample(start)), Some(profile)) = (sample, self.profile.as_deref_mut()) {
            let nanos = start.map(|start| (profile.clock)().saturating_sub(start));
            let cost = profile.costs.rules.entry(rule).or_default();
            cost.add(nanos, u64::from(is_match), 0);
        }
    }

    /// Ends the measurement of a scan.
    #[inline]
    pub(super) fn end_group(&mut self, sample: Option<Sample>, group: GroupId, hits: usize, bytes: usize) {
        if let (Some(Sample(start)), Some(profile)) = (sample, self.profile.as_deref_mut()) {
            let nanos = start.map(|start| (profile.clock)().saturating_sub(start));
            let cost = profile.costs.groups.entry(group).or_default();
            cost.add(nanos, hits as u64, bytes as u64);
        }
    }
}
