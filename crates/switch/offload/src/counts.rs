//! The counters of the planner of an offload.

/// The counters of a planner since it was made, and its slots now.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PlannerCounts {
    /// Slots whose entry the device has.
    pub installed: usize,
    /// Slots whose installation or removal the device has yet to confirm.
    pub pending: usize,
    /// Slots that are never used again, because the device could not remove their entry.
    pub leaked: usize,
    /// The most slots that the planner fills: those of the device, or as many as fitted.
    pub limit: usize,
    /// Operations submitted.
    pub operations: u64,
    /// Installations refused because the device does not take such a pattern.
    pub refused_shape: u64,
    /// Installations refused because the device is full.
    pub refused_capacity: u64,
    /// Installations that failed, and may succeed later.
    pub refused_transient: u64,
    /// Sampled keys.
    pub samples: u64,
}
