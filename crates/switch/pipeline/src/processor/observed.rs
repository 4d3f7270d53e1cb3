//! One packet processed on its own, with a report of its way through the tables, for packet samples.
//!
//! The packet is real: it is counted, learned from and sent as any other. It takes none of the short cuts that bursts take,
//! so that every step is seen; short cuts change no packet and no counter.

use arrayvec::ArrayVec;
use millrace_flow::classify::BURST;
use millrace_types::{Cookie, TableId, Time};
use millrace_wire::Packet;

use super::Processor;
use super::observe::Observer;
use super::origin::Origin;
use crate::{DropReason, Egress, FlowEntry, Forwarding};

/// The way of a packet through the tables.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ObservedPacket {
    /// The metadata behind the last table.
    pub metadata: u64,
    /// The cookie of the last entry that matched; `None` without one.
    pub cookie: Option<Cookie>,
    /// The reason of the last drop of the packet, or of a copy; `None` without one.
    pub drop_reason: Option<DropReason>,
}

impl<P> Observer<P> for ObservedPacket {
    const IS_REAL: bool = true;
    const IS_WATCHING: bool = true;

    fn lookup(&mut self, _: TableId, entry: Option<&FlowEntry>) {
        let Some(entry) = entry else { return };
        self.cookie = Some(entry.cookie());
        if let Some((value, mask)) = entry.write_metadata() {
            self.metadata = self.metadata & !mask | value & mask;
        }
    }

    fn dropped(&mut self, reason: DropReason) {
        self.drop_reason = Some(reason);
    }
}

impl Processor {
    /// Processes one packet as [`Processor::process_burst`] does, and returns its way through the tables.
    #[cold]
    #[inline(never)]
    pub fn process_observed<P: Packet, E: Egress<P>>(
        &mut self,
        fwd: &Forwarding,
        origin: impl Into<Origin>,
        packet: P,
        now: Time,
        egress: &mut E,
    ) -> ObservedPacket {
        let mut observed = ObservedPacket::default();
        let mut burst: ArrayVec<P, BURST> = ArrayVec::new();
        burst.push(packet);
        self.run(fwd, origin.into(), now, egress, &mut observed)
            .burst(&mut burst);
        observed
    }
}
