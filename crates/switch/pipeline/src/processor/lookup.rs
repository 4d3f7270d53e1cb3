//! From the packets of a burst to the entries that they match, and what is counted on the way.

use arrayvec::ArrayVec;
use millrace_flow::FlowKey;
use millrace_flow::classify::{Adaptive, BURST, Classifier, Slot, prefetch};
use millrace_types::TableId;
use millrace_wire::Packet;

use super::observe::Observer;
use super::run::Run;
use crate::counters::EntryCell;
use crate::gist::{Gist, Kind, Kinds};
use crate::{Counters, Egress};

/// What a lookup found, for one packet after the other.
pub(crate) struct Found<'a> {
    pub(crate) slots: [Option<Slot>; BURST],
    pub(crate) gists: [&'a Gist; BURST],
    pub(crate) cells: [&'a EntryCell; BURST],
    /// The kinds of the gists.
    pub(crate) kinds: Kinds,
}

impl<'a> Found<'a> {
    /// Nothing.
    #[inline(always)]
    pub(crate) fn nothing(counters: &'a Counters) -> Self {
        Found {
            slots: [None; BURST],
            gists: [&Gist::VACANT; BURST],
            cells: [counters.nowhere(); BURST],
            kinds: Kinds::default(),
        }
    }
}

impl<'a, P: Packet, E: Egress<P>, O: Observer<P>> Run<'a, P, E, O> {
    /// Looks up one key for a burst of packets that all have it, and counts them.
    pub(crate) fn look_up_once(
        &self,
        table: &Adaptive,
        key: &FlowKey,
        burst: &ArrayVec<P, BURST>,
    ) -> (Option<Slot>, &'a Gist) {
        let slot = table.lookup(key);
        let gist = slot.map_or(&Gist::VACANT, |slot| self.fwd.gist(slot));
        let packets = burst.len() as u64;
        let mut matches = 0;
        if let Some(slot) = slot {
            let bytes = burst.iter().map(|packet| packet.len() as u64).sum();
            self.counters.count_entry(slot, packets, bytes, self.now);
            matches = if gist.is_match() { packets } else { 0 };
        }
        self.counters.count_table(TableId(0), packets, matches);
        (slot, gist)
    }

    /// Finds the gists of the slots, and asks for what is needed of the entries of all packets before the first
    /// of them is looked at: with many entries each is far away, and so the latencies overlap.
    #[inline(always)]
    pub(crate) fn bring_near(&self, found: &mut Found<'a>, len: usize) {
        let Found {
            slots,
            gists,
            cells,
            kinds,
        } = found;
        let (slots, all, counters) = (&slots[..len], self.fwd.gists(), self.counters);
        for (slot, cell) in slots.iter().zip(cells) {
            let index = Slot::index_or_none(*slot);
            prefetch(all, index);
            *cell = counters.cell(index);
            cell.prefetch();
        }
        for (gist, slot) in gists.iter_mut().zip(slots) {
            *gist = all.get(Slot::index_or_none(*slot)).unwrap_or(&Gist::VACANT);
            kinds.add(gist.kind());
        }
        if kinds.has(Kind::Rewrite) {
            self.bring_rewrites_near(&gists[..len]);
        }
        if kinds.need_entries() {
            self.bring_entries_near(found, len);
        }
    }

    /// Prefetches the rewrites of gists, one cache line each.
    #[inline(always)]
    fn bring_rewrites_near(&self, gists: &[&Gist]) {
        let rewrites = self.fwd.rewrites();
        for gist in gists.iter().filter(|gist| gist.kind() == Kind::Rewrite) {
            prefetch(rewrites, gist.rewrite_index() as usize);
        }
    }

    #[inline(never)]
    fn bring_entries_near(&self, found: &Found<'a>, len: usize) {
        let slots = || {
            let pairs = found.slots[..len].iter().zip(&found.gists);
            let needed = pairs.filter(|(_, gist)| gist.needs_entry());
            needed.filter_map(|(slot, _)| *slot)
        };
        slots().for_each(|slot| self.fwd.prefetch_entry(slot));
        let entries = || slots().filter_map(|slot| self.fwd.entry(slot));
        entries().for_each(|entry| entry.prefetch());
        entries().for_each(|entry| entry.prefetch_actions());
    }

    /// Counts a packet for the entry that it met, and says whether that is a match.
    #[inline(always)]
    pub(crate) fn count(&self, packet: &P, found: &Found<'a>, at: usize) -> u64 {
        found.cells[at].count(1, packet.len() as u64, self.now);
        found.gists[at].is_match().into()
    }

    /// Counts the packets that one table saw.
    #[inline(always)]
    pub(crate) fn count_table(&mut self, table: TableId, len: usize, matches: u64) {
        self.counters.count_table(table, len as u64, matches);
        self.paths.visit(table, len);
    }
}
