//! The cost of rules and of groups of the prefilter: evaluations, matches, and time of a sample of them.
//!
//! Two clock readings for each evaluation would cost more than most evaluations, so only every Nth is timed.

use super::Detector;
use super::costs::{Clock, Costs, GroupId, Profile};

/// Binary logarithm of the sampling interval: one evaluation of 16 is timed.
const SAMPLE_SHIFT: u32 = 4;

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
