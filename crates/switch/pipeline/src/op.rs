//! The changes of the readers' copies: one variant for each kind of change, cheap to clone, because each is applied
//! to two copies.

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
    /// Inserts an entry into its table at this slot. An entry of the table with the same match and priority at
    /// another slot is no longer found by lookups.
    Insert {
        /// Where.
        slot: Slot,
        /// What.
        entry: Arc<FlowEntry>,
    },
    /// Replaces the entry at this slot by one with the same match, priority and table.
    Replace {
        /// Where.
        slot: Slot,
        /// What.
        entry: Arc<FlowEntry>,
    },
    /// Removes the entry at this slot from the table, unless another slot has its match and priority by now.
    Remove {
        /// Where.
        slot: Slot,
    },
    /// Removes all entries of all tables.
    Clear,
    /// Adds or changes a port.
    Port(Arc<Port>),
    /// Removes a port.
    RemovePort(PortNo),
    /// Adds or changes a group.
    Group(Arc<ReadyGroup>),
    /// Removes a group.
    RemoveGroup(GroupId),
    /// Adds or changes a meter.
    Meter(Arc<ReadyMeter>),
    /// Removes a meter.
    RemoveMeter(MeterId),
    /// Adds a MAC address, or moves it to another port.
    Learn(Arc<FdbEntry>),
    /// Removes a MAC address.
    Forget(Station),
    /// Removes all MAC addresses.
    FlushFdb,
    /// Forwards packets that match nothing by NORMAL, or drops them. On when the controllers are lost and the bridge
    /// is `fail-standalone`.
    Standalone(bool),
    /// Makes a packet-in of a packet whose TTL runs out, or drops it.
    InvalidTtlToController(bool),
    /// Arms a trace.
    ArmTrace(Arc<LiveTrace>),
    /// Disarms a trace.
    DisarmTrace(u64),
    /// Sets the number of tables, `0..len`. Tables beyond have no entries.
    Tables {
        /// Number of tables, 1 to 255.
        len: u8,
    },
    /// Replaces all tunnels.
    Tunnels(Arc<Tunnels>),
    /// Sets the fields by which select groups tell flows apart.
    SelectFields(FieldSet),
    /// Sets the treatment of IP fragments.
    Fragments(FragmentMode),
    /// Sets whether workers cache traversals.
    FlowCache(FlowCachePolicy),
    /// Optimizes a table that has not changed for a while for lookups. No result of a lookup changes.
    Settle(TableId),
}
