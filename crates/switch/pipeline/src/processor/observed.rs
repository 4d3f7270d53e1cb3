//! Observation of one packet of a burst, for packet samples: its path through the tables is recorded.
//!
//! The packet is looked up with the others by the same code, which is in the caches of the worker. The egress
//! calls of the observed packet are those between two flushes:
//!
//! ```text
//!  packets before it ---> flush | begin_notes: the observed packet ---> flush, end_notes | packets after it
//! ```
//!
//! A burst without an observed packet costs one branch for each table, and one for each packet that does not leave at once.

use arrayvec::ArrayVec;
use millrace_flow::classify::{BURST, Slot};
use millrace_types::PortNo;
use millrace_wire::Packet;

use super::Processor;
use super::observe::Observer;
use super::observed_packet::{Observation, ObservedPacket};
use super::packet_source::PacketSource;
use super::run::Run;
use super::traversal::Traversal;
use crate::{DropReason, Egress, Forwarding, FragmentMode};

impl Processor {
    /// Returns true if the tables get the packets of a port unchanged: no packet is held back, created or
    /// removed before.
    pub fn keeps_bursts(fwd: &Forwarding, in_port: PortNo) -> bool {
        fwd.fragments() == FragmentMode::Normal
            && fwd.mirrors().is_none()
            && fwd.oam().is_none_or(|oam| oam.find(in_port).is_none())
            && fwd.tunnels().is_none_or(|tunnels| !tunnels.has_underlay(in_port))
    }

    /// Begins to observe packet `at` of the next burst, or its only packet. The caller calls
    /// [`Self::end_observation`] after the burst.
    ///
    /// With `at`, the burst must come from a port that [keeps bursts](Self::keeps_bursts), and the processor
    /// notifies the egress when the observed packet is next ([`Egress::begin_notes`]). Without `at`, all egress
    /// calls belong to the packet.
    pub fn begin_observation(&mut self, at: Option<usize>) {
        self.scratch.observation = Observation {
            packets: at.map_or(u64::MAX, |at| 1 << at),
            is_noting: at.is_none(),
            ..Observation::NONE
        };
    }

    /// Ends the observation, and returns the recorded path of the packet.
    pub fn end_observation(&mut self) -> ObservedPacket {
        core::mem::replace(&mut self.scratch.observation, Observation::NONE).found
    }
}

impl<P: Packet, E: Egress<P>, O: Observer<P>> Run<'_, P, E, O> {
    /// Returns true if packet `i` of the burst is observed. Its egress calls begin now, and end with
    /// [`Self::end_notes`].
    #[inline(always)]
    pub(crate) fn begin_notes(&mut self, i: usize) -> bool {
        let is_observed = self.scratch.observation.has(i);
        if is_observed {
            self.switch_notes(true);
        }
        is_observed
    }

    /// Ends the notes, if the packet is observed.
    #[inline(always)]
    pub(crate) fn end_notes(&mut self, is_observed: bool) {
        if is_observed {
            self.switch_notes(false);
        }
    }

    #[cold]
    #[inline(never)]
    fn switch_notes(&mut self, is_noting: bool) {
        self.flush();
        self.scratch.observation.is_noting = is_noting;
        if is_noting {
            self.egress.begin_notes();
        } else {
            self.egress.end_notes();
        }
    }

    /// Sends packets of a burst with an observed packet out of their ports, and drops those without a port.
    #[cold]
    #[inline(never)]
    pub(crate) fn enqueue_observed(
        &mut self,
        burst: &mut ArrayVec<P, BURST>,
        port: impl Fn(usize) -> Option<PortNo>,
    ) {
        for (i, packet) in burst.drain(..).enumerate() {
            let is_observed = self.begin_notes(i);
            match port(i) {
                Some(port) => self.enqueue(i, packet, port),
                None => self.drop(PacketSource::Move(packet), DropReason::NoOutput),
            }
            self.end_notes(is_observed);
        }
    }

    /// Notes the entry that a lookup of the observed packet found.
    #[cold]
    #[inline(never)]
    pub(crate) fn note_entry(&mut self, slot: Option<Slot>) {
        if let Some(entry) = slot.and_then(|slot| self.fwd.entry(slot)) {
            let found = &mut self.scratch.observation.found;
            found.cookie = Some(entry.cookie());
            if let Some(change) = entry.write_metadata() {
                found.metadata = change.apply(found.metadata);
            }
        }
    }

    /// Notes the entries of the cached traversal that the observed packet takes. A replayed traversal is
    /// noted step by step instead.
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
        self.scratch.observation.found.drop_reason = Some(reason);
    }
}
