//! Offload to a classifying device: the trait of such devices, and one port's use of it (ADR 61).
//!
//! ```text
//!   bridge's thread:  PortOffload = Planner + Governor + state of the device     [port]
//!        |   ^   \                                              |   ^
//!  commands  |    \ level (atomic)                    submit    |   | outcomes
//!        v   |     v                                            v   |
//!   worker: PortMarks = Slots, samples            Offload: a device   [crate::io::nic], [crate::io::flow_entries]
//! ```
//! Nobody waits for a device: operations go into a queue, and outcomes come back. A change of a flow table writes nothing to a
//! device, unless it changes the bits by which tables tell packets apart. The exception is the end of a drop ([`DeviceDrops`]).

mod drops;
#[cfg_attr(
    not(any(feature = "dpdk", test)),
    allow(dead_code, reason = "only devices of DPDK have rules")
)]
pub(crate) mod fences;
pub(crate) mod key;
pub(crate) mod port;
#[cfg_attr(
    not(any(feature = "dpdk", test)),
    allow(dead_code, reason = "only devices of DPDK have rules")
)]
pub(crate) mod rule;
mod status;

use std::sync::Arc;

use millrace_flow::{FlowKey, FlowMask};
use millrace_offload::Outcome;

pub use drops::{DeviceDrops, DropOperation};
pub use status::{MarkedKey, OffloadBy, OffloadEntries, OffloadMode, OffloadSettings, OffloadStatus};

/// The abilities of a device that is there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OffloadCapabilities {
    /// The number of the connection with the device. Another number means that it has lost all entries.
    pub session: u64,
    /// The number of entries that it holds.
    pub entries: usize,
    /// The width of a mark in bits, 16 to 32.
    pub mark_bits: u32,
    /// The bits that its entries compare.
    pub fields: EntryFields,
    /// True if the device belongs to the trusted base: a NIC whose entries are compared with its reference model, in a process
    /// of the same user.
    pub is_trusted: bool,
}

/// The bits that the entries of a device compare.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EntryFields {
    /// Those by which the tables tell packets apart, and no others.
    Masked,
    /// All bits of each field by which the tables tell packets apart.
    Whole,
}

/// An operation on a device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum DeviceOperation {
    /// Removes all entries. Entries submitted later compare these bits.
    Reset {
        /// The number of the reset; outcomes of operations submitted before carry another one.
        number: u64,
        mask: FlowMask,
    },
    /// Marks packets that equal a key in the bits of the last reset.
    Install { slot: u32, mark: u32, key: FlowKey },
    /// Removes the entry of a slot. The outcome follows when all queues have seen all packets that may have its mark.
    Remove { slot: u32 },
}

/// The outcome of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DeviceOutcome {
    /// The device is empty, and uses the bits of this reset.
    Reset { number: u64 },
    /// The outcome for a slot.
    Slot {
        /// The number of the reset before the operation.
        reset: u64,
        slot: u32,
        outcome: Outcome,
    },
}

/// A device with entries. No method waits.
pub trait Offload {
    /// Returns the abilities of the device, while it is there.
    fn capabilities(&self) -> Option<OffloadCapabilities>;

    /// Submits an operation. Returns false if the queue is full.
    fn submit(&mut self, operation: DeviceOperation) -> bool;

    /// Returns the next outcome.
    fn poll(&mut self) -> Option<DeviceOutcome>;

    /// Returns the drops of the device that is there; `None` if it does not count by entry what it drops.
    fn drops(&self) -> Option<Arc<DeviceDrops>> {
        None
    }
}
