//! Observation of a packet in the pipeline, for `millrace trace` and for packet samples. Other packets have [`NoObserver`], which
//! compiles to nothing.

use millrace_flow::Action;
use millrace_types::{PortNo, TableId};

use crate::{DropReason, FlowEntry, Group, Meter};

/// The reason why NORMAL forwards packets without the tables.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NormalReason {
    /// No controller is connected, and the bridge is standalone.
    NoController,
    /// The configuration of their port or VLAN.
    Configured,
}

pub(crate) trait Observer<P> {
    /// True if the packet is real: the bridge learns its source, and live traces record it.
    const IS_REAL: bool;

    /// True if the observer needs every step. The worker then takes no short cuts.
    const IS_WATCHING: bool;

    /// Notes that the packet was looked up.
    fn lookup(&mut self, table: TableId, entry: Option<&FlowEntry>) {
        let _ = (table, entry);
    }

    /// Notes that an action is about to be executed.
    fn action(&mut self, action: &Action, from_set: bool) {
        let _ = (action, from_set);
    }

    /// Notes that the bucket of this index is about to be executed.
    fn bucket(&mut self, group: &Group, bucket: usize) {
        let _ = (group, bucket);
    }

    /// Notes that the packet passed a meter, and that the band of this index was applied to it.
    fn meter(&mut self, meter: &Meter, band: Option<usize>) {
        let _ = (meter, band);
    }

    /// Notes the packet after an action.
    fn packet(&mut self, packet: &P) {
        let _ = packet;
    }

    /// Notes that the packet, or a copy, was dropped.
    fn dropped(&mut self, reason: DropReason) {
        let _ = reason;
    }

    /// Notes that the packet is a fragment and waits for others.
    fn kept_fragment(&mut self) {}

    /// Notes that NORMAL forwards the packet without the tables.
    fn without_tables(&mut self, reason: NormalReason) {
        let _ = reason;
    }

    /// Notes that NORMAL looked up the destination, and found this port.
    fn mac_lookup(&mut self, port: Option<PortNo>) {
        let _ = port;
    }
}

/// The observer that ignores everything.
pub(crate) struct NoObserver;

impl<P> Observer<P> for NoObserver {
    const IS_REAL: bool = true;
    const IS_WATCHING: bool = false;
}
