//! The filters whose entries a change may alter.
//!
//! The priority of a filter depends on the overlapping filters of its account. Their priorities depend on
//! further filters. Two filters overlap only if one of their destinations contains the other. The filters of
//! an account therefore fall into independent parts: one below each destination that no other destination
//! contains. For a change, only the parts that it touches are planned: once as they were before, and once as
//! they are after it.

use std::collections::{BTreeMap, BTreeSet};

use millrace_ix_model::{AccountId, Exchange, Filter, FilterMatch, Ports, Prefix};

use super::{ENTRIES_MAX, is_planned};
use crate::service::{Settings, has_entries};

/// Filters to plan.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum FilterScope {
    /// The filters of all accounts.
    All,
    /// The filters of the selected parts, for each account.
    Within(BTreeMap<AccountId, Part>),
}

/// A part of the filters of an account.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Part {
    /// All filters of the account.
    Whole,
    /// The filters with destinations within any of these prefixes.
    Destinations(BTreeSet<Prefix>),
}

impl FilterScope {
    /// Returns the scope of the filters with entries that may differ between the exchange `old` at the time
    /// `then` and the exchange `new` at the time `now`.
    pub(crate) fn of_change(
        (old, then): (&Exchange, &Settings),
        (new, now): (&Exchange, &Settings),
    ) -> FilterScope {
        if old.switches != new.switches && !old.switches.keys().eq(new.switches.keys()) {
            return FilterScope::All;
        }
        let mut parts = BTreeMap::new();
        for account in concerned_by_ends(old, new) {
            parts.insert(account, Part::Whole);
        }
        let mut changed: BTreeMap<AccountId, BTreeSet<Prefix>> = BTreeMap::new();
        for id in old.filters.differing(&new.filters) {
            for filter in [old, new].into_iter().filter_map(|side| side.filters.get(&id)) {
                let destinations = changed.entry(filter.account).or_default();
                destinations.insert(filter.matching.destination);
            }
        }
        if then.now != now.now {
            for filter in new.filters.values() {
                if is_planned(filter, then) != is_planned(filter, now) {
                    let destinations = changed.entry(filter.account).or_default();
                    destinations.insert(filter.matching.destination);
                }
            }
        }
        changed.retain(|account, _| !parts.contains_key(account));
        if !changed.is_empty() {
            parts.extend(parts_around(&changed, [(old, then), (new, now)]));
        }
        FilterScope::Within(parts)
    }

    /// Returns true if the scope has no filter.
    pub(crate) fn is_empty(&self) -> bool {
        matches!(self, FilterScope::Within(parts) if parts.is_empty())
    }

    /// Returns true if a filter is in the scope.
    pub(crate) fn contains(&self, filter: &Filter) -> bool {
        let FilterScope::Within(parts) = self else {
            return true;
        };
        match parts.get(&filter.account) {
            None => false,
            Some(Part::Whole) => true,
            Some(Part::Destinations(prefixes)) => {
                let destination = filter.matching.destination;
                prefixes.iter().any(|prefix| prefix.covers(destination))
            }
        }
    }
}

/// Returns the accounts with filters that are bound to ends that differ.
fn concerned_by_ends(old: &Exchange, new: &Exchange) -> BTreeSet<AccountId> {
    let bound = |side: &Exchange, id| {
        let config = side.configs.get(&id).filter(|config| has_entries(side, config));
        config.map(|config| (config.account, config.index))
    };
    let mut ends = old.configs.differing(&new.configs);
    for service in old.services.differing(&new.services) {
        ends.extend(
            [old, new]
                .into_iter()
                .flat_map(|side| side.ends(service).map(|(end, _)| end)),
        );
    }
    let ends = ends.into_iter().filter(|id| bound(old, *id) != bound(new, *id));
    let moved: BTreeSet<AccountId> = ends
        .flat_map(|id| [bound(old, id), bound(new, id)])
        .flatten()
        .map(|(account, _)| account)
        .collect();
    if moved.is_empty() {
        return moved;
    }
    let filters = old.filters.values().chain(new.filters.values());
    let concerned =
        filters.filter(|filter| moved.contains(&filter.account) || !filter.peers.is_disjoint(&moved));
    concerned.map(|filter| filter.account).collect()
}

/// Returns the parts of the filters of accounts that contain changed destinations. An account that may exceed
/// its maximum number of entries is planned as a whole, because each of its filters then affects whether
/// later filters fit.
fn parts_around(
    changed: &BTreeMap<AccountId, BTreeSet<Prefix>>,
    sides: [(&Exchange, &Settings); 2],
) -> BTreeMap<AccountId, Part> {
    let mut widest: BTreeMap<AccountId, BTreeMap<Prefix, Prefix>> = changed
        .iter()
        .map(|(account, prefixes)| {
            (
                *account,
                prefixes.iter().map(|prefix| (*prefix, *prefix)).collect(),
            )
        })
        .collect();
    let mut entries: BTreeMap<AccountId, [usize; 2]> = BTreeMap::new();
    for (index, (side, settings)) in sides.into_iter().enumerate() {
        for filter in side.filters.values() {
            let Some(widest) = widest.get_mut(&filter.account) else {
                continue;
            };
            if !is_planned(filter, settings) {
                continue;
            }
            let destination = filter.matching.destination;
            for (prefix, widest) in widest {
                if destination.len() < widest.len() && destination.covers(*prefix) {
                    *widest = destination;
                }
            }
            entries.entry(filter.account).or_default()[index] += entries_at_most(side, filter);
        }
    }
    let part = |(account, widest): (AccountId, BTreeMap<Prefix, Prefix>)| {
        let is_small = entries
            .get(&account)
            .is_none_or(|counts| counts.iter().all(|count| *count <= ENTRIES_MAX));
        let part = if is_small {
            Part::Destinations(widest.into_values().collect())
        } else {
            Part::Whole
        };
        (account, part)
    };
    widest.into_iter().map(part).collect()
}

/// Returns an upper bound for the number of entries of a filter, for one end and in one switch.
fn entries_at_most(exchange: &Exchange, filter: &Filter) -> usize {
    // A range has at most 64 ports, or 30 masks.
    let ports = |ranges: &[Ports]| match ranges {
        [] => 1,
        [one] if one.first == one.last => 1,
        many => many.len() * 64,
    };
    let of_match = |matching: &FilterMatch| {
        let masks = ports(&matching.source_ports).saturating_mul(ports(&matching.destination_ports));
        // A match of only zeros needs two entries.
        masks.saturating_add(1)
    };
    let matches: usize = filter.matches().map(of_match).fold(0, usize::saturating_add);
    let copies = if filter.peers.is_empty() {
        1
    } else {
        let ends = exchange.configs.values();
        ends.filter(|config| filter.peers.contains(&config.account))
            .count()
    };
    matches.saturating_mul(copies)
}

#[cfg(test)]
mod tests {
    use millrace_ix_model::{FilterAction, FilterId, FilterOrigin, FilterState, Timestamp};

    use super::*;

    fn filter(destination: &str) -> Filter {
        Filter {
            account: AccountId(1),
            matching: FilterMatch::to(destination.parse().unwrap()),
            alternatives: Vec::new(),
            peers: BTreeSet::new(),
            action: FilterAction::Drop,
            origin: FilterOrigin::Api,
            rank: 100,
            order: String::new(),
            state: FilterState::Active,
            valid_until: None,
            exempt_until: None,
            comment: None,
            external_ref: None,
        }
    }

    /// Returns the filters in the scope of a change.
    fn scope(old: &Exchange, new: &Exchange) -> Vec<u32> {
        let settings = Settings {
            now: Timestamp::from_secs(1),
            extensions: false,
        };
        let scope = FilterScope::of_change((old, &settings), (new, &settings));
        let filters = new.filters.iter().filter(|(_, filter)| scope.contains(filter));
        filters.map(|(id, _)| id.0).collect()
    }

    #[test]
    fn a_change_concerns_the_filters_below_the_widest_destination_around_it() {
        let mut old = Exchange::default();
        for (number, destination) in (0..).zip([
            "10.0.0.0/24",
            "10.0.0.1/32",
            "10.0.0.128/25",
            "10.0.1.0/24",
            "10.0.1.1/32",
        ]) {
            old.filters.insert(FilterId(number), filter(destination));
        }
        let changed = |id: u32, change: &dyn Fn(&mut Filter)| {
            let mut new = old.clone();
            change(new.filters.get_mut(&FilterId(id)).unwrap());
            scope(&old, &new)
        };
        assert_eq!(scope(&old, &old), [0; 0]);
        assert_eq!(changed(1, &|filter| filter.rank = 5), [0, 1, 2]);
        assert_eq!(changed(4, &|filter| filter.rank = 5), [3, 4]);
        // Filters that are not in the switches do not merge parts.
        assert_eq!(changed(3, &|filter| filter.state = FilterState::Draft), [3, 4]);
        let mut new = old.clone();
        new.filters.insert(FilterId(9), filter("10.0.0.0/23"));
        assert_eq!(scope(&old, &new), [0, 1, 2, 3, 4, 9]);
        assert_eq!(scope(&new, &old), [0, 1, 2, 3, 4]);
    }

    #[test]
    fn an_account_near_its_limit_of_entries_is_planned_as_a_whole() {
        let mut old = Exchange::default();
        for number in 0..400 {
            let mut many = filter(&format!("10.{}.{}.0/32", number / 256, number % 256));
            many.matching.protocol = Some(17);
            many.matching.source_ports = vec![Ports { first: 1, last: 64 }];
            old.filters.insert(FilterId(number), many);
        }
        let mut new = old.clone();
        new.filters.insert(FilterId(999), filter("192.0.2.1/32"));
        assert_eq!(scope(&old, &new).len(), 401);
        let few: Exchange = {
            let mut few = old.clone();
            for number in 300..400 {
                few.filters.remove(&FilterId(number));
            }
            few
        };
        let mut new = few.clone();
        new.filters.insert(FilterId(999), filter("192.0.2.1/32"));
        assert_eq!(scope(&few, &new), [999]);
    }
}
