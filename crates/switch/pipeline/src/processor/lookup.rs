//! Lookup of a burst in a table, and counting of the results.

use arrayvec::ArrayVec;
use millrace_flow::FlowKey;
use millrace_flow::classify::{Adaptive, BURST, Classifier, Slot, prefetch};
use millrace_types::TableId;
use millrace_wire::Packet;

use super::lookup_results::LookupResults;
use super::observe::Observer;
use super::run::Run;
use crate::Egress;
use crate::action_summary::{ActionSummary, Kind};

impl<'a, P: Packet, E: Egress<P>, O: Observer<P>> Run<'a, P, E, O> {
    /// Looks up one key that all packets of a burst share, and counts them.
    pub(crate) fn look_up_once(
        &self,
        table: &Adaptive,
        key: &FlowKey,
        burst: &ArrayVec<P, BURST>,
    ) -> (Option<Slot>, &'a ActionSummary) {
        let slot = table.lookup(key);
        let summary = slot.map_or(&ActionSummary::VACANT, |slot| self.fwd.summary(slot));
        let packets = burst.len() as u64;
        let mut matches = 0;
        if let Some(slot) = slot {
            let bytes = burst.iter().map(|packet| packet.len() as u64).sum();
            self.counters.count_entry(slot, packets, bytes, self.now);
            matches = if summary.is_match() { packets } else { 0 };
        }
        self.counters.count_table(TableId(0), packets, matches);
        (slot, summary)
    }

    /// Finds the action summaries of the slots, and prefetches the data of the entries that the packets need,
    /// so that the cache misses of a burst overlap.
    #[inline(always)]
    pub(crate) fn prefetch(&self, found: &mut LookupResults<'a>, len: usize) {
        let LookupResults {
            slots,
            summaries,
            cells,
            kinds,
        } = found;
        let (slots, all, counters) = (&slots[..len], self.fwd.summaries(), self.counters);
        for (slot, cell) in slots.iter().zip(cells) {
            let index = Slot::index_or_none(*slot);
            prefetch(all, index);
            *cell = counters.cell(index);
            cell.prefetch();
        }
        for (summary, slot) in summaries.iter_mut().zip(slots) {
            *summary = all
                .get(Slot::index_or_none(*slot))
                .unwrap_or(&ActionSummary::VACANT);
            kinds.add(summary.kind());
        }
        if kinds.has(Kind::Rewrite) {
            self.prefetch_rewrites(&summaries[..len]);
        }
        if kinds.need_entries() {
            self.bring_entries_near(found, len);
        }
    }

    /// Prefetches the rewrites of summaries, one cache line each.
    #[inline(always)]
    fn prefetch_rewrites(&self, summaries: &[&ActionSummary]) {
        let rewrites = self.fwd.rewrites();
        for summary in summaries.iter().filter(|summary| summary.kind() == Kind::Rewrite) {
            prefetch(rewrites, summary.rewrite_index() as usize);
        }
    }

    #[inline(never)]
    fn bring_entries_near(&self, found: &LookupResults<'a>, len: usize) {
        let slots = || {
            let pairs = found.slots[..len].iter().zip(&found.summaries);
            let needed = pairs.filter(|(_, summary)| summary.needs_entry());
            needed.filter_map(|(slot, _)| *slot)
        };
        slots().for_each(|slot| self.fwd.prefetch_entry(slot));
        let entries = || slots().filter_map(|slot| self.fwd.entry(slot));
        entries().for_each(|entry| entry.prefetch());
        entries().for_each(|entry| entry.prefetch_actions());
    }

    /// Counts a packet for its entry. Returns 1 if it counts as matched, else 0.
    #[inline(always)]
    pub(crate) fn count(&self, packet: &P, found: &LookupResults<'a>, at: usize) -> u64 {
        found.cells[at].count(1, packet.len() as u64, self.now);
        found.summaries[at].is_match().into()
    }

    /// Counts the packets that a table looked up.
    #[inline(always)]
    pub(crate) fn count_table(&mut self, table: TableId, len: usize, matches: u64) {
        self.counters.count_table(table, len as u64, matches);
        self.traversals.visit(table, len);
    }
}
