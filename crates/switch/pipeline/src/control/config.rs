//! The configuration of the control half.

use millrace_types::TableId;

use super::fdb::FdbConfig;
use crate::FlowCachePolicy;

/// The configuration of the control half.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ControlConfig {
    /// Number of tables, 1 to 255.
    pub tables: u8,
    /// Maximum number of entries in one table.
    pub max_entries: u32,
    /// The key of every hash; should be random.
    pub seed: u64,
    /// The MAC table.
    pub fdb: FdbConfig,
    /// Policy for the workers' caches of traversals.
    pub flow_cache: FlowCachePolicy,
    /// True if matches may use the extensions of Open vSwitch to OpenFlow 1.3.5
    /// ([`Match::extension`](millrace_flow::Match::extension)).
    pub match_extensions: bool,
}

impl Default for ControlConfig {
    fn default() -> ControlConfig {
        ControlConfig {
            tables: TableId::MAX.0,
            max_entries: 4_000_000,
            seed: 0,
            fdb: FdbConfig::default(),
            flow_cache: FlowCachePolicy::default(),
            match_extensions: true,
        }
    }
}
