//! Comparison of the filters of the exchange with the rules that peers announce and the prefixes that
//! accounts own.

use std::collections::{BTreeMap, BTreeSet};

use millrace_ix_model::{
    AccountId, Exchange, Filter, FilterId, FilterOrigin, FilterState, Operation, Prefix, Reason, Timestamp,
    filter_rank, reason,
};
use millrace_ix_plan::filter_entries;

use crate::controller::{Budget, Compared, FilterController};
use crate::ownership::{Finding, Index};
use crate::reference::{PREFIX, peer_of};
use crate::rule::Desired;

/// The words between the reason of a refusal and the object that is missing.
const MISSING: &str = "; missing: ";

/// The largest number of live filters of an account.
const FILTERS_MAX: usize = 500;
/// The largest number of refused BGP rules of an account that are kept for display.
const REFUSED_MAX: usize = 500;
/// The largest number of entries of an account's filters in one switch.
const ENTRIES_MAX: usize = 20_000;

/// The orders that make the filters equal to the rules.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Round {
    /// The orders; each depends only on earlier orders for the same filter.
    pub operations: Vec<Operation>,
    /// The time of the next comparison, unless an event causes an earlier one.
    pub again_at: Option<Timestamp>,
}

impl Round {
    fn again(&mut self, at: Timestamp) {
        self.again_at = Some(self.again_at.map_or(at, |before| before.min(at)));
    }
}

/// The counts of an account's filters and entries.
#[derive(Default)]
struct Load {
    /// The number of live filters.
    live: usize,
    /// The number of refused BGP rules.
    refused: usize,
    /// The number of entries that the live filters need in one switch.
    entries: usize,
}

/// The state of one comparison.
struct Comparison {
    index: Index,
    loads: BTreeMap<AccountId, Load>,
    now: Timestamp,
    round: Round,
}

const fn is_live(state: &FilterState) -> bool {
    matches!(
        state,
        FilterState::Checked | FilterState::Active | FilterState::Suspended(_)
    )
}

const fn is_of_bgp(origin: FilterOrigin) -> bool {
    matches!(origin, FilterOrigin::Rtbh | FilterOrigin::Flowspec)
}

/// Returns the number of entries of a filter in one switch, or the reason why switches cannot implement it. The count
/// ends at the largest number of entries.
fn entries<'a>(
    matches: impl Iterator<Item = &'a millrace_ix_model::FilterMatch>,
    extensions: bool,
) -> Result<usize, Reason> {
    let mut sum = 0;
    for matching in matches {
        sum += filter_entries(matching, extensions)?;
        if sum > ENTRIES_MAX {
            break;
        }
    }
    Ok(sum)
}

impl FilterController {
    /// Compares the rules and prefixes that have changed since the last call with the filters. Returns the
    /// orders that are due.
    pub fn reconcile(&mut self, exchange: &Exchange, now: Timestamp) -> Round {
        let mut comparison = Comparison {
            index: Index::new(exchange),
            loads: BTreeMap::new(),
            now,
            round: Round::default(),
        };
        let dirty = core::mem::take(&mut self.dirty);
        self.lost.retain(|id, _| exchange.filters.contains_key(id));
        self.entries.retain(|id, _| exchange.filters.contains_key(id));
        let mut by_reference: BTreeMap<&str, (FilterId, &Filter)> = BTreeMap::new();
        let mut others: Vec<(FilterId, &Filter)> = Vec::new();
        for (id, filter) in &exchange.filters {
            let load = comparison.loads.entry(filter.account).or_default();
            if is_live(&filter.state) {
                load.live += 1;
                let extensions = self.settings.extensions;
                let of_matches = *self
                    .entries
                    .entry(*id)
                    .or_insert_with(|| entries(filter.matches(), extensions).unwrap_or(0));
                load.entries += of_matches * comparison.index.sources(&filter.peers);
            } else if is_of_bgp(filter.origin) {
                load.refused += 1;
            }
            match &filter.external_ref {
                Some(reference) if is_of_bgp(filter.origin) && reference.starts_with(PREFIX) => {
                    by_reference.insert(reference, (*id, filter));
                }
                _ => others.push((*id, filter)),
            }
        }
        let overlaps = |destination: Prefix| {
            dirty
                .prefixes
                .iter()
                .any(|prefix| prefix.covers(destination) || destination.covers(*prefix))
        };
        let mut references = dirty.rules;
        if dirty.all {
            references.extend(self.rules.keys().cloned());
            references.extend(by_reference.keys().map(|reference| (*reference).to_owned()));
        } else if !dirty.prefixes.is_empty() {
            references.extend(
                by_reference
                    .iter()
                    .filter(|(_, (_, filter))| overlaps(filter.matching.destination))
                    .map(|(reference, _)| (*reference).to_owned()),
            );
        }
        // Filters in their hold time are compared in every call, so that the end of the hold time is noticed.
        let held: BTreeSet<FilterId> = self.lost.keys().copied().collect();
        references.extend(
            by_reference
                .iter()
                .filter(|(_, (id, _))| held.contains(id))
                .map(|(reference, _)| (*reference).to_owned()),
        );
        for reference in references {
            let filter = by_reference.get(reference.as_str()).copied();
            self.compare_rule(&reference, filter, &mut comparison);
        }
        for (id, filter) in others {
            if dirty.all || held.contains(&id) || overlaps(filter.matching.destination) {
                self.compare_owner(id, filter, &mut comparison);
            }
        }
        comparison.round
    }

    /// Returns the number of entries that a live BGP filter needs, as counted for its account. A BGP filter
    /// names no peers.
    fn entries_of(&self, id: FilterId) -> usize {
        self.entries.get(&id).copied().unwrap_or(0)
    }

    /// Returns the reason why an account may not have another live filter that needs `needed` entries.
    pub(crate) fn excess(
        &self,
        exchange: &Exchange,
        index: &Index,
        account: AccountId,
        needed: usize,
    ) -> Option<Reason> {
        let mut load = Load::default();
        let filters = exchange.filters.iter();
        for (id, filter) in filters.filter(|(_, filter)| filter.account == account && is_live(&filter.state))
        {
            let known = self.entries.get(id).copied();
            let of_matches =
                known.unwrap_or_else(|| entries(filter.matches(), self.settings.extensions).unwrap_or(0));
            load.live += 1;
            load.entries += of_matches * index.sources(&filter.peers);
        }
        load.excess(account, needed)
    }

    /// Takes one change from the account's budget. Delays the rule if the budget is empty.
    fn spend(&mut self, account: AccountId, reference: &str, comparison: &mut Comparison) -> bool {
        let rate = f64::from(self.settings.changes_per_sec);
        let now = comparison.now;
        let budget = self.budgets.entry(account).or_insert(Budget {
            tokens: rate,
            at: now,
        });
        let passed = now.since(budget.at).as_secs_f64();
        *budget = Budget {
            tokens: (budget.tokens + passed * rate).min(rate),
            at: now,
        };
        if budget.tokens < 1.0 {
            self.dirty.rules.insert(reference.to_owned());
            comparison
                .round
                .again(now.after(core::time::Duration::from_millis(50)));
            return false;
        }
        budget.tokens -= 1.0;
        true
    }

    fn compare_rule(
        &mut self,
        reference: &str,
        filter: Option<(FilterId, &Filter)>,
        comparison: &mut Comparison,
    ) {
        let account = self.account_of_rule(reference, &comparison.index);
        match (account, filter) {
            (None, None) => {
                self.withdrawn.remove(reference);
            }
            (None, Some((id, filter))) => {
                // The database has the rule, and its peer has not announced it since the start of the engine.
                let is_unheard = !self.rules.contains_key(reference) && !self.withdrawn.contains(reference);
                if is_unheard
                    && peer_of(reference).is_some_and(|peer| self.may_come_back(peer, comparison.now))
                {
                    let end = self.restart_end();
                    self.dirty.rules.insert(reference.to_owned());
                    comparison.round.again(end);
                } else if self.spend(filter.account, reference, comparison) {
                    self.withdrawn.remove(reference);
                    comparison.delete(id, filter, self.entries_of(id));
                }
            }
            (Some(account), Some((id, filter))) => {
                let compared = self.compare_content(reference, account, id, filter);
                if compared.is_equal {
                    self.compare_state(id, filter, compared.untranslatable, comparison);
                } else if self.spend(account, reference, comparison) {
                    comparison.delete(id, filter, self.entries_of(id));
                    self.create(reference, account, comparison);
                }
            }
            // A rule is translated only when it may become a filter, so that the cost of translations is limited, too.
            (Some(account), None) => {
                if self.spend(account, reference, comparison) {
                    self.create(reference, account, comparison);
                }
            }
        }
    }

    /// Compares the translation of a rule with a filter, unless this is the comparison of the last call.
    fn compare_content(
        &mut self,
        reference: &str,
        account: AccountId,
        id: FilterId,
        filter: &Filter,
    ) -> Compared {
        let known = self.rules.get(reference).and_then(|rule| rule.compared.as_ref());
        if let Some(known) = known.filter(|known| known.filter == id && known.account == account) {
            return known.clone();
        }
        let desired = self.desired(reference, account);
        let compared = Compared {
            filter: id,
            account,
            is_equal: desired
                .as_ref()
                .is_some_and(|desired| desired.matches_filter(filter)),
            untranslatable: desired.and_then(|desired| desired.untranslatable),
        };
        if let Some(rule) = self.rules.get_mut(reference) {
            rule.compared = Some(compared.clone());
        }
        compared
    }

    fn create(&mut self, reference: &str, account: AccountId, comparison: &mut Comparison) {
        let Some(desired) = self.desired(reference, account) else {
            return;
        };
        let state = self.first_state(&desired, comparison);
        let load = comparison.loads.entry(desired.account).or_default();
        if is_live(&state) {
            load.live += 1;
        } else {
            if load.refused >= REFUSED_MAX {
                return;
            }
            load.refused += 1;
        }
        comparison.round.operations.push(Operation::CreateFilter {
            account: Some(desired.account),
            matching: desired.matching,
            alternatives: desired.alternatives,
            peers: BTreeSet::new(),
            action: desired.action,
            origin: desired.origin,
            rank: filter_rank(desired.origin, desired.action),
            order: desired.order,
            state,
            valid_until: None,
            exempt_until: None,
            comment: Some(desired.comment),
            external_ref: Some(reference.to_owned()),
        });
    }

    fn first_state(&self, desired: &Desired, comparison: &mut Comparison) -> FilterState {
        let refused = FilterState::Refused;
        if let Some(reason) = &desired.untranslatable {
            return refused(reason.clone());
        }
        let matches = core::iter::once(&desired.matching).chain(&desired.alternatives);
        let needed = match entries(matches, self.settings.extensions) {
            Ok(needed) => needed,
            Err(reason) => return refused(reason),
        };
        let is_flowspec = desired.origin == FilterOrigin::Flowspec;
        let destination = desired.matching.destination;
        match self.ownership(
            &comparison.index,
            desired.account,
            destination,
            is_flowspec,
            comparison.now,
        ) {
            Finding::Owned { .. } => {}
            Finding::NotOwned { reason, missing } => return refused(reason.then(MISSING, missing)),
            Finding::Unknown { reason } => return refused(reason),
        }
        let load = comparison.loads.entry(desired.account).or_default();
        if let Some(reason) = load.excess(desired.account, needed) {
            return refused(reason);
        }
        load.entries += needed;
        FilterState::Active
    }

    /// Checks the ownership of a filter that was ordered on the page or over the API, and refuses one that an earlier
    /// version took and that switches cannot implement.
    fn compare_owner(&mut self, id: FilterId, filter: &Filter, comparison: &mut Comparison) {
        let is_over = filter.valid_until.is_some_and(|end| end <= comparison.now);
        if matches!(filter.state, FilterState::Active | FilterState::Suspended(_)) && !is_over {
            let untranslatable = match self.entries_of(id) {
                0 => entries(filter.matches(), self.settings.extensions).err(),
                _ => None,
            };
            self.compare_state(id, filter, untranslatable, comparison);
        }
    }

    fn compare_state(
        &mut self,
        id: FilterId,
        filter: &Filter,
        untranslatable: Option<Reason>,
        comparison: &mut Comparison,
    ) {
        let now = comparison.now;
        let mut update = |state: FilterState| {
            if state != filter.state {
                comparison.round.operations.push(Operation::UpdateFilter {
                    filter: id,
                    state: Some(state),
                    rank: None,
                    valid_until: None,
                });
            }
        };
        if let Some(reason) = untranslatable {
            update(FilterState::Refused(reason));
            return;
        }
        let is_exempt = filter.exempt_until.is_some_and(|end| end > now);
        let is_flowspec = filter.origin == FilterOrigin::Flowspec;
        let finding = if is_exempt {
            Finding::Owned { evidence: Vec::new() }
        } else {
            self.ownership(
                &comparison.index,
                filter.account,
                filter.matching.destination,
                is_flowspec,
                now,
            )
        };
        match (&filter.state, finding) {
            (FilterState::Active, Finding::Owned { .. }) => {
                self.lost.remove(&id);
            }
            (FilterState::Active, Finding::NotOwned { reason, missing }) => {
                let since = *self.lost.entry(id).or_insert(now);
                let end = since.after(self.settings.hold);
                if now < end {
                    comparison.round.again(end);
                } else {
                    self.lost.remove(&id);
                    update(FilterState::Suspended(reason.then(MISSING, missing)));
                }
            }
            (FilterState::Suspended(_), Finding::Owned { .. }) => update(FilterState::Active),
            (FilterState::Refused(_), Finding::Owned { .. }) => {
                let extensions = self.settings.extensions;
                let needed = entries(filter.matches(), extensions);
                let load = comparison.loads.entry(filter.account).or_default();
                match needed.map(|needed| (needed, load.excess(filter.account, needed))) {
                    Ok((needed, None)) => {
                        load.live += 1;
                        load.entries += needed;
                        comparison.round.operations.push(Operation::UpdateFilter {
                            filter: id,
                            state: Some(FilterState::Active),
                            rank: None,
                            valid_until: None,
                        });
                    }
                    Ok((_, Some(reason))) | Err(reason) => update(FilterState::Refused(reason)),
                }
            }
            (FilterState::Refused(_), Finding::NotOwned { reason, missing }) => {
                update(FilterState::Refused(reason.then(MISSING, missing)));
            }
            (FilterState::Refused(_), Finding::Unknown { reason }) => {
                update(FilterState::Refused(reason));
            }
            // Unknown evidence changes nothing.
            (_, _) => {}
        }
    }
}

impl Comparison {
    fn delete(&mut self, id: FilterId, filter: &Filter, entries: usize) {
        let load = self.loads.entry(filter.account).or_default();
        if is_live(&filter.state) {
            load.live = load.live.saturating_sub(1);
            load.entries = load.entries.saturating_sub(entries);
        } else {
            load.refused = load.refused.saturating_sub(1);
        }
        self.round.operations.push(Operation::DeleteFilter { filter: id });
    }
}

impl Load {
    /// Returns the reason why the account may not have another live filter.
    fn excess(&self, account: AccountId, needed: usize) -> Option<Reason> {
        if self.live >= FILTERS_MAX {
            return Some(reason::filters_full(account, FILTERS_MAX));
        }
        (self.entries + needed > ENTRIES_MAX).then(|| reason::filter_entries_full(ENTRIES_MAX))
    }
}

#[cfg(test)]
mod tests {
    use millrace_ix_model::FilterAction;

    use super::*;

    #[test]
    fn page_drops_apply_before_bgp_and_page_counts_behind_it() {
        let rank = filter_rank;
        let shape = FilterAction::Shape { rate_kbps: 1000 };
        let order = [
            rank(FilterOrigin::Page, FilterAction::Drop),
            rank(FilterOrigin::Api, shape),
            rank(FilterOrigin::Rtbh, FilterAction::Drop),
            rank(FilterOrigin::Page, FilterAction::Count),
        ];
        assert!(order.is_sorted_by(|one, other| one < other), "{order:?}");
        assert_eq!(
            rank(FilterOrigin::Flowspec, FilterAction::Count),
            rank(FilterOrigin::Rtbh, FilterAction::Drop),
            "among BGP rules the order of RFC 8955 decides"
        );
    }
}
