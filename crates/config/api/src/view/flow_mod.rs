//! Flow entries that an operator adds, changes, removes and saves, counters that are reset, and MAC addresses that are
//! forgotten.

use serde::{Deserialize, Serialize};

/// The command of a flow_mod.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum FlowModCommand {
    /// Adds entries; an entry with the same table, match and priority is replaced.
    Add,
    /// Changes the instructions of entries.
    Modify,
    /// Removes entries.
    Delete,
}

/// Flow_mods, applied in order, all or none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct FlowMods {
    /// The command, for all entries.
    pub command: FlowModCommand,
    /// If true, a change or removal selects the entry with exactly this match and priority; else all entries with this
    /// match or a narrower one (OpenFlow 1.3.5, section 6.4).
    #[serde(default)]
    pub strict: bool,
    /// The entries as ovs-ofctl writes them, 1 to 10000: `priority=10,tcp,tp_dst=80,actions=output:2`. Ports may
    /// be given by name in `in_port`, `out_port` and `output`.
    pub flows: Vec<String>,
    /// The author of the change, for the log.
    #[serde(default)]
    pub author: String,
}

/// The result of flow_mods.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
pub struct FlowModsDone {
    /// The number of entries added.
    pub added: u64,
    /// The number of entries changed, or replaced by an addition.
    pub modified: u64,
    /// The number of entries removed, including those that a full table evicted.
    pub removed: u64,
}

/// The flow entries whose counters are reset. An omitted field selects all entries.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ResetFlowCounters {
    /// Only entries of this table.
    #[serde(default)]
    pub table: Option<u8>,
    /// Only entries with this match or a narrower one.
    #[serde(default, rename = "match")]
    pub matching: Option<String>,
    /// Only entries with this cookie, `VALUE` or `VALUE/MASK`.
    #[serde(default)]
    pub cookie: Option<String>,
}

/// The port whose counters are reset.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ResetPortCounters {
    /// The name or number of the port; all ports if omitted.
    #[serde(default)]
    pub port: Option<String>,
}

/// The saved state of a bridge.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
pub struct FlowsSaved {
    /// The name of the bridge.
    pub bridge: String,
    /// The number of flow entries.
    pub flows: u64,
    /// The number of groups.
    pub groups: u64,
    /// The number of meters.
    pub meters: u64,
    /// The file on the daemon's machine.
    pub file: String,
}

/// The MAC addresses that a bridge forgets; all if no field is given.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct FlushMacs {
    /// Only addresses of this VLAN, 0 to 4094; 0 is that of untagged frames of ports without a VLAN.
    #[serde(default)]
    pub vlan: Option<u16>,
    /// Only addresses of this port, by name or number.
    #[serde(default)]
    pub port: Option<String>,
}

/// The number of MAC addresses that were forgotten.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
pub struct MacsFlushed {
    /// The number of addresses.
    pub removed: u64,
}

/// The number of counters that were reset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
pub struct CountersReset {
    /// The number of flow entries or ports.
    pub reset: u64,
}
