//! Changes of the readers' copies: one variant for each type of change, cheap to clone, because each is applied to two
//! copies.

use std::sync::Arc;

use millrace_flow::FieldSet;
use millrace_flow::classify::Slot;
use millrace_types::{GroupId, MeterId, PortNo, TableId};

use crate::{
    CompiledGroup, CompiledMeter, FdbEntry, FdbKey, FlowCachePolicy, FlowEntry, FragmentMode, LiveTrace,
    Mirrors, NormalIngress, NormalSettings, OamPorts, Port, Standalone, Tunnels,
};

/// One change to a [`Forwarding`](crate::Forwarding).
#[derive(Clone, Debug)]
pub enum Op {
    /// Inserts an entry into its table at this slot. An entry of the table with the same match and priority at
    /// another slot is no longer found by lookups.
    Insert {
        slot: Slot,
        entry: Arc<FlowEntry>,
    },
    /// Replaces the entry at this slot by one with the same match, priority and table.
    Replace {
        slot: Slot,
        entry: Arc<FlowEntry>,
    },
    /// Removes the entry at this slot from the table, unless another slot has its match and priority by now.
    Remove {
        slot: Slot,
    },
    /// Removes all entries of all tables.
    Clear,
    /// Adds or changes a port.
    Port(Arc<Port>),
    RemovePort(PortNo),
    /// Adds or changes a group.
    Group(Arc<CompiledGroup>),
    RemoveGroup(GroupId),
    /// Adds or changes a meter.
    Meter(Arc<CompiledMeter>),
    RemoveMeter(MeterId),
    /// Adds a MAC address, or moves it to another port.
    Learn(Arc<FdbEntry>),
    /// Removes a MAC address.
    Forget(FdbKey),
    /// Removes all MAC addresses.
    FlushFdb,
    /// Sets the packets that NORMAL forwards because no controller is connected.
    Standalone(Standalone),
    /// Replaces the ports and VLANs whose packets NORMAL forwards without the flow tables.
    NormalIngress(Arc<NormalIngress>),
    /// Sets what NORMAL does in the whole bridge.
    NormalSettings(Arc<NormalSettings>),
    /// Replaces all mirrors.
    Mirrors(Arc<Mirrors>),
    /// Sets whether a packet with an invalid TTL causes a packet-in instead of being dropped.
    InvalidTtlToController(bool),
    ArmTrace(Arc<LiveTrace>),
    DisarmTrace(u64),
    /// Sets the number of tables, `0..len`. Tables beyond have no entries.
    Tables {
        /// Number of tables, 1 to 255.
        len: u8,
    },
    /// Replaces all tunnels.
    Tunnels(Arc<Tunnels>),
    /// Replaces the ports at which frames of OAM are taken.
    Oam(Arc<OamPorts>),
    /// Sets the fields whose hash chooses the bucket of a select group.
    SelectFields(FieldSet),
    /// Sets the treatment of IP fragments.
    Fragments(FragmentMode),
    /// Sets the policy for the workers' caches of traversals.
    FlowCache(FlowCachePolicy),
    /// Optimizes an idle table for lookups. The result of every lookup stays the same.
    Optimize(TableId),
}
