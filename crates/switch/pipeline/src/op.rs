//! What changes in the readers' copies: one variant for each kind of change, cheap to clone, because each
//! is applied to two copies.

use std::sync::Arc;

use millrace_flow::FieldSet;
use millrace_flow::classify::Slot;
use millrace_types::{GroupId, MeterId, PortNo, TableId};

use crate::{
    FdbEntry, FlowCachePolicy, FlowEntry, FragmentMode, LiveTrace, Port, ReadyGroup, ReadyMeter, Station,
    Tunnels,
};

/// One change to a [`Forwarding`](crate::Forwarding).
#[derive(Clone, Debug)]
pub enum Op {
    /// Put an entry into its table, at this slot. If the table has an entry with the same match and
    /// priority at another slot, that one is gone from lookups.
    Insert {
        /// Where.
        slot: Slot,
        /// What.
        entry: Arc<FlowEntry>,
    },
    /// Change the entry at this slot to one with the same match, priority and table.
    Replace {
        /// Where.
        slot: Slot,
        /// What.
        entry: Arc<FlowEntry>,
    },
    /// Forget the entry at this slot, unless another has taken its place in the table already.
    Remove {
        /// Where.
        slot: Slot,
    },
    /// Forget all entries of all tables.
    Clear,
    /// Add or change a port.
    Port(Arc<Port>),
    /// Remove a port.
    RemovePort(PortNo),
    /// Add or change a group.
    Group(Arc<ReadyGroup>),
    /// Remove a group.
    RemoveGroup(GroupId),
    /// Add or change a meter.
    Meter(Arc<ReadyMeter>),
    /// Remove a meter.
    RemoveMeter(MeterId),
    /// Learn a station, or learn that it has moved.
    Learn(Arc<FdbEntry>),
    /// Forget a station.
    Forget(Station),
    /// Forget all stations.
    FlushFdb,
    /// What happens to packets that match nothing: with `standalone`, NORMAL; else they are dropped. On
    /// when the controllers are lost and the bridge is `fail-standalone`.
    Standalone(bool),
    /// Whether a packet whose TTL runs out makes a packet-in, or is just dropped.
    InvalidTtlToController(bool),
    /// Wait for packets.
    ArmTrace(Arc<LiveTrace>),
    /// Stop waiting.
    DisarmTrace(u64),
    /// How many tables there are: `0..len`. Entries in tables beyond must be gone.
    Tables {
        /// Number of tables, 1 to 255.
        len: u8,
    },
    /// All tunnels, instead of those before.
    Tunnels(Arc<Tunnels>),
    /// By which fields select groups tell flows apart.
    SelectFields(FieldSet),
    /// What becomes of IP fragments.
    Fragments(FragmentMode),
    /// Whether workers keep the paths of packets.
    FlowCache(FlowCachePolicy),
    /// Arrange a table for lookups: it has been at rest, so that this is worth its time. No packet's verdict changes.
    Settle(TableId),
}
