//! Flow entries and the tables that hold them.

use core::fmt;
use core::str::FromStr;

use serde::{Deserialize, Serialize};

/// One field of a match.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
pub struct MatchField {
    /// The name in OpenFlow 1.3.5, section 7.2.3.7, in lower case: `ipv4_src`.
    pub field: String,
    /// The value, hexadecimal.
    pub value: String,
    /// The bits that must be equal, hexadecimal; `null` for all.
    #[serde(default)]
    pub mask: Option<String>,
}

/// One action.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Action {
    /// Send to a port.
    Output {
        /// The OpenFlow number of the port; it may be a reserved port.
        port: u32,
        /// The number of bytes to send to the controller; `null` for other ports.
        #[serde(default)]
        max_len: Option<u16>,
    },
    /// Process through a group.
    Group {
        /// The group.
        group: u32,
    },
    /// Choose the egress queue.
    SetQueue {
        /// The queue.
        queue: u32,
    },
    /// Set the MPLS TTL.
    SetMplsTtl {
        /// The TTL.
        ttl: u8,
    },
    /// Decrement the MPLS TTL.
    DecMplsTtl,
    /// Set the IPv4 TTL or the IPv6 hop limit.
    SetNwTtl {
        /// The TTL.
        ttl: u8,
    },
    /// Decrement the IPv4 TTL or the IPv6 hop limit.
    DecNwTtl,
    /// Copy the TTL outwards.
    CopyTtlOut,
    /// Copy the TTL inwards.
    CopyTtlIn,
    /// Push a VLAN tag.
    PushVlan {
        /// The EtherType of the tag.
        ethertype: u16,
    },
    /// Pop the outermost VLAN tag.
    PopVlan,
    /// Push an MPLS shim header.
    PushMpls {
        /// The EtherType of the header.
        ethertype: u16,
    },
    /// Pop the outermost MPLS shim header.
    PopMpls {
        /// The EtherType of the payload.
        ethertype: u16,
    },
    /// Push a PBB service instance header.
    PushPbb {
        /// The EtherType of the header.
        ethertype: u16,
    },
    /// Pop the outermost PBB service instance header.
    PopPbb,
    /// Set a field.
    SetField {
        /// The name in OpenFlow 1.3.5, section 7.2.3.7, in lower case.
        field: String,
        /// The value, hexadecimal.
        value: String,
    },
}

/// A change of the metadata between tables.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
pub struct WriteMetadata {
    /// The value, hexadecimal.
    pub value: String,
    /// The bits that change, hexadecimal.
    pub mask: String,
}

/// The instructions of a flow entry, in the order of execution (OpenFlow 1.3.5, section 5.9).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
pub struct Instructions {
    /// The meter that packets pass first.
    #[serde(default)]
    pub meter: Option<u32>,
    /// The actions to execute at once.
    #[serde(default)]
    pub apply_actions: Option<Vec<Action>>,
    /// True if the action set is cleared.
    #[serde(default)]
    pub clear_actions: bool,
    /// The actions to merge into the action set.
    #[serde(default)]
    pub write_actions: Option<Vec<Action>>,
    /// The change of the metadata.
    #[serde(default)]
    pub write_metadata: Option<WriteMetadata>,
    /// The table in which processing continues.
    #[serde(default)]
    pub goto_table: Option<u8>,
}

/// A flow entry.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
pub struct Flow {
    /// The number of the table.
    pub table: u8,
    /// The priority; the highest one that matches is used.
    pub priority: u16,
    /// The cookie of the controller, hexadecimal.
    pub cookie: String,
    /// The match as ovs-ofctl writes it; empty if every packet matches.
    #[serde(rename = "match")]
    pub matching: String,
    /// The fields of the match.
    pub fields: Vec<MatchField>,
    /// The instructions as ovs-ofctl writes them after `actions=`.
    pub actions: String,
    /// The instructions.
    pub instructions: Instructions,
    /// The number of packets that matched.
    pub packets: u64,
    /// The size of the packets that matched in bytes.
    pub bytes: u64,
    /// The time since the entry was added, in seconds.
    pub duration_seconds: f64,
    /// The time without a packet after which the entry is removed, in seconds; 0 for never.
    pub idle_timeout: u16,
    /// The time after which the entry is removed, in seconds; 0 for never.
    pub hard_timeout: u16,
    /// The flags (OpenFlow 1.3.5, section 7.3.4.1), in lower case: `send_flow_rem`.
    #[serde(default)]
    pub flags: Vec<String>,
}

/// The end of a page of flow entries; opaque to clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct FlowCursor {
    /// The number of the table.
    pub table: u8,
    /// The position in the order of the table after which the next page begins. Entries that are neither
    /// added nor removed meanwhile appear exactly once.
    pub position: u64,
}

/// The error for text that is not a cursor.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a cursor: expected the value of `next` of the previous page")]
pub struct FlowCursorError(String);

impl fmt::Display for FlowCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.table, self.position)
    }
}

impl FromStr for FlowCursor {
    type Err = FlowCursorError;

    fn from_str(text: &str) -> Result<FlowCursor, FlowCursorError> {
        let parts = text.split_once('.');
        let cursor = parts.and_then(|(table, position)| Some((table.parse().ok()?, position.parse().ok()?)));
        let bad = || FlowCursorError(text.chars().take(32).collect());
        cursor
            .map(|(table, position)| FlowCursor { table, position })
            .ok_or_else(bad)
    }
}

/// One page of flow entries.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
pub struct FlowPage {
    /// The entries.
    pub flows: Vec<Flow>,
    /// The cursor of the next page, for the parameter `after`; `null` on the last page.
    #[serde(default)]
    pub next: Option<String>,
}

/// A flow table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
pub struct Table {
    /// The number of the table.
    pub table: u8,
    /// The number of flow entries.
    pub entries: u64,
    /// The largest number of flow entries.
    pub max_entries: u64,
    /// The number of packets looked up.
    pub lookups: u64,
    /// The number of packets that matched an entry.
    pub matches: u64,
    /// The structure in which packets are looked up: `linear`, `hash`, `tuples`…
    pub classifier: String,
    /// The memory of entries and structure in bytes; `null` if it is not counted.
    #[serde(default)]
    pub memory_bytes: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_prints_and_parses_back_and_anything_else_is_refused() {
        let cursor = FlowCursor {
            table: 3,
            position: u64::MAX,
        };
        assert_eq!(cursor.to_string().parse(), Ok(cursor));
        for text in ["", ".", "1", "256.0", "1.-1", "1.2.3"] {
            assert!(text.parse::<FlowCursor>().is_err(), "{text}");
        }
    }
}
