//! Flow entries that an operator adds, changes and removes, and counters set to zero.

use serde::{Deserialize, Serialize};

/// What is done with flow entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum FlowModCommand {
    /// Adds entries; one with the same table, match and priority is replaced.
    Add,
    /// Changes the instructions of entries.
    Modify,
    /// Removes entries.
    Delete,
}

/// Changes of flow entries, applied in order, all or none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct FlowMods {
    /// What is done.
    pub command: FlowModCommand,
    /// If true, a change or removal selects the entry with exactly this match and priority; else all entries
    /// whose match is this one or narrower (OpenFlow 1.3.5, section 6.4).
    #[serde(default)]
    pub strict: bool,
    /// The entries as ovs-ofctl writes them, 1 to 10000: `priority=10,tcp,tp_dst=80,actions=output:2`. Ports may
    /// be given by name in `in_port`, `out_port` and `output`.
    pub flows: Vec<String>,
    /// Who makes the change, for the log.
    #[serde(default)]
    pub author: String,
}

/// What changed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
pub struct FlowModsDone {
    /// Entries added.
    pub added: u64,
    /// Entries changed, or replaced by an addition.
    pub modified: u64,
    /// Entries removed, also those that a full table evicted.
    pub removed: u64,
}

/// The flow entries whose counters are set to zero; all that is not given selects every entry.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ResetFlowCounters {
    /// Only entries of this table.
    #[serde(default)]
    pub table: Option<u8>,
    /// Only entries whose match is this one or narrower.
    #[serde(default, rename = "match")]
    pub matching: Option<String>,
    /// Only entries with this cookie, `VALUE` or `VALUE/MASK`.
    #[serde(default)]
    pub cookie: Option<String>,
}

/// The port whose counters are set to zero.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ResetPortCounters {
    /// Its name or number; all ports unless given.
    #[serde(default)]
    pub port: Option<String>,
}

/// How many counters were set to zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
pub struct CountersReset {
    /// Flow entries, or ports.
    pub reset: u64,
}
