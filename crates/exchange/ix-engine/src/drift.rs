//! Entries of a switch that differ from the plan.

/// The difference of an entry from the plan.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Drift {
    /// The plan does not have the entry.
    Added,
    /// The switch does not have the entry.
    Removed,
    /// The switch has the entry with other properties.
    Changed,
}

/// An entry that differs from the plan.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Drifted<K> {
    pub key: K,
    /// The difference.
    pub drift: Drift,
}
