//! When workers cache traversals.

/// Policy for the workers' caches of traversals, which repeat them without lookups. The cache changes no packet and no
/// counter.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum FlowCachePolicy {
    /// The cache is off.
    Off,
    /// The cache is on while it saves time.
    #[default]
    Auto,
    /// The cache is always on: for tests and measurements.
    Always,
}
