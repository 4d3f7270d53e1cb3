//! The results of a lookup of a burst.

use millrace_flow::classify::{BURST, Slot};

use crate::Counters;
use crate::action_summary::{ActionSummary, Kinds};
use crate::counters::EntryCell;

/// The results of a lookup, by packet.
pub(crate) struct LookupResults<'a> {
    pub(crate) slots: [Option<Slot>; BURST],
    pub(crate) summaries: [&'a ActionSummary; BURST],
    pub(crate) cells: [&'a EntryCell; BURST],
    /// The kinds of the summaries.
    pub(crate) kinds: Kinds,
}

impl<'a> LookupResults<'a> {
    /// Returns the results of a lookup that finds no entry.
    #[inline(always)]
    pub(crate) fn nothing(counters: &'a Counters) -> Self {
        LookupResults {
            slots: [None; BURST],
            summaries: [&ActionSummary::VACANT; BURST],
            cells: [counters.discard_cell(); BURST],
            kinds: Kinds::default(),
        }
    }
}
