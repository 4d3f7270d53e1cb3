//! One packet processed with a report of its way through the tables, for packet samples.
//!
//! The packet is a burst of its own and takes the same code as any other burst, which is in the caches of the worker. The
//! stages of a burst note the entries that it meets: one branch for each table and burst otherwise.

use millrace_flow::classify::Slot;
use millrace_wire::Packet;

use super::Processor;
use super::observe::Observer;
use super::observed_packet::ObservedPacket;
use super::run::Run;
use super::traversal::Traversal;
use crate::{DropReason, Egress};

impl Processor {
    /// Begins to observe: the next burst has one packet, and [`Self::end_observation`] follows.
    pub fn begin_observation(&mut self) {
        self.scratch.observed = Some(ObservedPacket::default());
    }

    /// Ends the observation, and returns the way of the packet since it began.
    pub fn end_observation(&mut self) -> ObservedPacket {
        self.scratch.observed.take().unwrap_or_default()
    }
}

impl<P: Packet, E: Egress<P>, O: Observer<P>> Run<'_, P, E, O> {
    /// Returns true if the burst is one packet that is observed.
    #[inline(always)]
    pub(crate) fn is_observed(&self) -> bool {
        self.scratch.observed.is_some()
    }

    /// Notes the entry that a lookup of the observed packet found.
    #[cold]
    #[inline(never)]
    pub(crate) fn note_entry(&mut self, slot: Option<Slot>) {
        let entry = slot.and_then(|slot| self.fwd.entry(slot));
        if let (Some(entry), Some(observed)) = (entry, &mut self.scratch.observed) {
            observed.cookie = Some(entry.cookie());
            if let Some((value, mask)) = entry.write_metadata() {
                observed.metadata = observed.metadata & !mask | value & mask;
            }
        }
    }

    /// Notes the entries of the cached traversal that the observed packet takes. One that is replayed is noted step by step.
    #[cold]
    #[inline(never)]
    pub(crate) fn note_traversal(&mut self, words: Traversal<'_>) {
        for step in 0..words.len() {
            self.note_entry(Some(words.slot(step)));
        }
    }

    /// Notes that the observed packet, or a copy, was dropped.
    #[cold]
    #[inline(never)]
    pub(crate) fn note_drop(&mut self, reason: DropReason) {
        if let Some(observed) = &mut self.scratch.observed {
            observed.drop_reason = Some(reason);
        }
    }
}
