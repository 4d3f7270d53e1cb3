//! The policy that decides when workers cache traversals.

/// Policy for the workers' caches of traversals. Packets that hit the cache repeat a traversal without table
/// lookups. The cache does not change the treatment of packets or the counters.
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
