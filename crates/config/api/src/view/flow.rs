//! Flow entries and the tables that hold them.

use core::fmt;
use core::str::FromStr;

use serde::{Deserialize, Serialize};

/// One field of a match.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
pub struct MatchField {
    /// The name in the OpenFlow specification: `ipv4_src`.
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
        /// The OpenFlow number, perhaps of a reserved port.
        port: u32,
        /// Bytes for the controller, if the port is the controller.
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
        /// Its EtherType.
        ethertype: u16,
    },
    /// Pop the outermost VLAN tag.
    PopVlan,
    /// Push an MPLS shim header.
    PushMpls {
        /// Its EtherType.
        ethertype: u16,
    },
    /// Pop the outermost MPLS shim header.
    PopMpls {
        /// The EtherType of what remains.
        ethertype: u16,
    },
    /// Push a PBB service instance header.
    PushPbb {
        /// Its EtherType.
        ethertype: u16,
    },
    /// Pop the outermost PBB service instance header.
    PopPbb,
    /// Set a field.
    SetField {
        /// The name in the OpenFlow specification.
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

/// What a flow entry does, in the order of execution.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
pub struct Instructions {
    /// Pass through this meter first.
    #[serde(default)]
    pub meter: Option<u32>,
    /// Execute at once.
    #[serde(default)]
    pub apply_actions: Option<Vec<Action>>,
    /// Empty the action set.
    #[serde(default)]
    pub clear_actions: bool,
    /// Merge into the action set.
    #[serde(default)]
    pub write_actions: Option<Vec<Action>>,
    /// Change the metadata.
    #[serde(default)]
    pub write_metadata: Option<WriteMetadata>,
    /// Continue in this table.
    #[serde(default)]
    pub goto_table: Option<u8>,
}

/// A flow entry.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
pub struct Flow {
    /// Its table.
    pub table: u8,
    /// Higher wins.
    pub priority: u16,
    /// What the controller attached to it, hexadecimal.
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
    /// Packets that matched.
    pub packets: u64,
    /// Size of the packets that matched in bytes.
    pub bytes: u64,
    /// Seconds since it was installed.
    pub duration_seconds: f64,
    /// Seconds without a packet until it goes; 0 for never.
    pub idle_timeout: u16,
    /// Seconds after which it goes; 0 for never.
    pub hard_timeout: u16,
    /// Its flags (OpenFlow 1.3.5, section 7.3.4.1), in lower case: `send_flow_rem`.
    #[serde(default)]
    pub flags: Vec<String>,
}

/// Where a page of flow entries ended; opaque to clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct FlowCursor {
    /// The table.
    pub table: u8,
    /// The place in the table after which the next page begins, in whatever order the table keeps. An
    /// entry that is neither added nor removed meanwhile is shown exactly once.
    pub place: u64,
}

/// Text that is no cursor.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a cursor: expected the value of `next` of the page before")]
pub struct FlowCursorError(String);

impl fmt::Display for FlowCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.table, self.place)
    }
}

impl FromStr for FlowCursor {
    type Err = FlowCursorError;

    fn from_str(text: &str) -> Result<FlowCursor, FlowCursorError> {
        let parts = text.split_once('.');
        let cursor = parts.and_then(|(table, place)| Some((table.parse().ok()?, place.parse().ok()?)));
        let bad = || FlowCursorError(text.chars().take(32).collect());
        cursor
            .map(|(table, place)| FlowCursor { table, place })
            .ok_or_else(bad)
    }
}

/// One page of flow entries.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
pub struct FlowPage {
    /// The entries.
    pub flows: Vec<Flow>,
    /// To be given as `after` for the next page; `null` on the last.
    #[serde(default)]
    pub next: Option<String>,
}

/// A flow table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
pub struct Table {
    /// Its number.
    pub table: u8,
    /// Flow entries in it.
    pub entries: u64,
    /// The most it can hold.
    pub max_entries: u64,
    /// Packets looked up.
    pub lookups: u64,
    /// Packets that matched.
    pub matches: u64,
    /// The structure that its rules are looked up in: `linear`, `hash`, `tuples`…
    pub classifier: String,
    /// Bytes that entries and structure occupy, if counted.
    #[serde(default)]
    pub memory_bytes: Option<u64>,
}

#[cfg(feature = "server")]
mod from_flow {
    //! From the values of the data plane to what is shown.

    use super::{Action, Instructions, MatchField, WriteMetadata};
    use millrace_flow::Match;
    use millrace_types::PortNo;

    fn hex(value: impl core::fmt::LowerHex) -> String {
        format!("{value:#x}")
    }

    impl From<&millrace_flow::Action> for Action {
        fn from(action: &millrace_flow::Action) -> Action {
            use millrace_flow::Action as Given;
            match *action {
                Given::Output { port, max_len } => Action::Output {
                    port: port.raw(),
                    max_len: (port == PortNo::CONTROLLER).then_some(max_len),
                },
                Given::Group(group) => Action::Group { group: group.0 },
                Given::SetQueue(queue) => Action::SetQueue { queue: queue.0 },
                Given::SetMplsTtl(ttl) => Action::SetMplsTtl { ttl },
                Given::DecMplsTtl => Action::DecMplsTtl,
                Given::SetNwTtl(ttl) => Action::SetNwTtl { ttl },
                Given::DecNwTtl => Action::DecNwTtl,
                Given::CopyTtlOut => Action::CopyTtlOut,
                Given::CopyTtlIn => Action::CopyTtlIn,
                Given::PushVlan(kind) => Action::PushVlan { ethertype: kind.0 },
                Given::PopVlan => Action::PopVlan,
                Given::PushMpls(kind) => Action::PushMpls { ethertype: kind.0 },
                Given::PopMpls(kind) => Action::PopMpls { ethertype: kind.0 },
                Given::PushPbb(kind) => Action::PushPbb { ethertype: kind.0 },
                Given::PopPbb => Action::PopPbb,
                Given::SetField(set) => Action::SetField {
                    field: set.field().name().to_owned(),
                    value: hex(set.value()),
                },
            }
        }
    }

    impl From<&millrace_flow::Instructions> for Instructions {
        fn from(given: &millrace_flow::Instructions) -> Instructions {
            let list = |actions: &Option<Box<[millrace_flow::Action]>>| {
                actions
                    .as_deref()
                    .map(|actions| actions.iter().map(Action::from).collect())
            };
            Instructions {
                meter: given.meter.map(|meter| meter.0),
                apply_actions: list(&given.apply_actions),
                clear_actions: given.clear_actions,
                write_actions: list(&given.write_actions),
                write_metadata: given.write_metadata.map(|(value, mask)| WriteMetadata {
                    value: hex(value),
                    mask: hex(mask),
                }),
                goto_table: given.goto_table.map(|table| table.0),
            }
        }
    }

    /// The fields of a match.
    impl MatchField {
        /// Every field of `matching`.
        pub fn all(matching: &Match) -> Vec<MatchField> {
            let show = |given: millrace_flow::MatchField| MatchField {
                field: given.field.name().to_owned(),
                value: hex(given.value),
                mask: given.mask.map(hex),
            };
            matching.iter().map(show).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_prints_and_parses_back_and_anything_else_is_refused() {
        let cursor = FlowCursor {
            table: 3,
            place: u64::MAX,
        };
        assert_eq!(cursor.to_string().parse(), Ok(cursor));
        for text in ["", ".", "1", "256.0", "1.-1", "1.2.3"] {
            assert!(text.parse::<FlowCursor>().is_err(), "{text}");
        }
    }
}
