//! Entries that an operator has adopted: their numbers must not be given to anything else.
//!
//! The database does not know the objects of these entries, and a lookup in its pools finds their numbers free. An order that
//! got one of them would be joined with the paths of another tenant. The numbers are therefore noted as in use by switches,
//! when the operator decides, and after each listing that has such entries.

use millrace_ix_model::{Applied, ChangeSet, Exchange, NumberHold, PoolKind};
use millrace_ix_plan::Carried;

use crate::core::Core;
use crate::now::Now;

/// The largest number of identifiers that a decision skips. A switch may have any number in a cookie.
const IDS_SKIPPED_MAX: u32 = 1 << 20;

impl Core {
    /// Returns what the entries carry that the exchange does not know and leaves.
    pub(crate) fn carried_by_kept(&self) -> Carried {
        let mut carried = Carried::default();
        if self.engine.is_adopted() {
            let switches = self.exchange.switches.keys();
            for (id, entry) in switches.filter_map(|switch| self.engine.kept(switch.0)).flatten() {
                carried.add(id, entry);
            }
        }
        carried
    }

    /// Returns what the entries carry that the switches have and should not have.
    pub(crate) fn carried_by_unknown(&self) -> Carried {
        let mut carried = Carried::default();
        for switch in self.exchange.switches.keys() {
            let intended = self.engine.intended(switch.0);
            let differing = self.engine.differing(switch.0).into_iter().flatten();
            for (id, has) in differing {
                if let Some(entry) = has
                    && intended.is_none_or(|intended| !intended.contains_key(id))
                {
                    carried.add(id, entry);
                }
            }
        }
        carried
    }

    /// Returns the exchange with numbers noted as in use by switches, or `None` if all of them are.
    pub(crate) fn with_carried(&self, carried: &Carried) -> Option<Exchange> {
        let is_noted = |(kind, number): &(PoolKind, u32)| {
            let pool = self.exchange.pools.get(kind);
            pool.and_then(|pool| pool.released.get(number)) == Some(&NumberHold::InSwitches)
        };
        let new = carried.numbers.iter().filter(|number| !is_noted(number));
        let released: Vec<_> = new
            .map(|(kind, number)| (*kind, *number, Some(NumberHold::InSwitches)))
            .collect();
        let highest = self.exchange.last_id.saturating_add(IDS_SKIPPED_MAX);
        let last_id = carried.last_id.min(highest);
        if released.is_empty() && last_id <= self.exchange.last_id {
            return None;
        }
        let mut after = Exchange::clone(&self.exchange);
        after.commit(ChangeSet {
            released,
            last_id,
            ..ChangeSet::default()
        });
        Some(after)
    }

    /// Notes the numbers of kept entries after a listing. Identifiers are skipped by the operator's decision only: each listing
    /// of a hostile switch could skip more of them.
    pub(crate) fn note_kept(&mut self, kept: Carried, now: Now) {
        let carried = Carried { last_id: 0, ..kept };
        let Some(after) = self.with_carried(&carried) else {
            return;
        };
        let transaction = self.transaction(&after, &Applied::default());
        match self.commit(&transaction, now) {
            Ok(()) => self.replace(after, &Applied::default(), now),
            Err(error) => {
                tracing::error!(%error, "numbers of adopted entries are noted with the next listing");
            }
        }
    }
}
