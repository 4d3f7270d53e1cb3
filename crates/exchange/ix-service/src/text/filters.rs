//! The filters of a text: the exceptions that operators have granted.
//!
//! Members order and end filters at any time, so their filters are no part of the operator's text. A filter whose owner is not
//! checked is an operator's decision, and is.

use std::collections::BTreeSet;

use millrace_ix_model::{
    AccountId, Exchange, Filter, FilterAction, FilterId, FilterMatch, FilterOrigin, FilterState, Operation,
    Refusal, Timestamp,
};
use serde::{Deserialize, Serialize};

/// A filter that an operator has exempted from the check of ownership.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FilterText {
    account: String,
    /// The accounts whose packets the filter concerns; all if empty.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    peers: BTreeSet<String>,
    rank: u32,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    order: String,
    exempt_until: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    valid_until: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    comment: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    external_ref: Option<String>,
    action: FilterAction,
    matching: FilterMatch,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    alternatives: Vec<FilterMatch>,
}

/// Returns the filters of an exchange that a text has; `None` if there are none.
pub(super) fn texts(exchange: &Exchange) -> Option<Vec<FilterText>> {
    let filters = exchange.filters.values();
    let mut texts: Vec<FilterText> = filters.filter_map(|filter| text(exchange, filter)).collect();
    texts.sort_by_key(|text| format!("{} {:?}", text.account, text));
    (!texts.is_empty()).then_some(texts)
}

fn text(exchange: &Exchange, filter: &Filter) -> Option<FilterText> {
    let is_ordered = matches!(filter.origin, FilterOrigin::Page | FilterOrigin::Api);
    let exempt_until = filter
        .exempt_until
        .filter(|_| is_ordered && filter.state == FilterState::Active)?;
    let name = |id: &AccountId| Some(exchange.accounts.get(id)?.name.clone());
    Some(FilterText {
        account: name(&filter.account)?,
        peers: filter.peers.iter().filter_map(name).collect(),
        rank: filter.rank,
        order: filter.order.clone(),
        exempt_until,
        valid_until: filter.valid_until,
        comment: filter.comment.clone(),
        external_ref: filter.external_ref.clone(),
        action: filter.action,
        matching: filter.matching.clone(),
        alternatives: filter.alternatives.clone(),
    })
}

impl FilterText {
    /// Returns true if the filter or its exception has ended.
    pub(super) fn is_over(&self, now: Timestamp) -> bool {
        self.exempt_until <= now || self.valid_until.is_some_and(|end| end <= now)
    }
}

/// Adds the operations for the filters of a text. A filter that differs is deleted and created again. `has_account` says if the text
/// has an account with a name.
pub(super) fn operations(
    wanted: &[FilterText],
    has_account: impl Fn(&str) -> bool,
    exchange: &Exchange,
    operations: &mut Vec<Operation>,
) -> Result<(), Refusal> {
    let filters = exchange.filters.iter();
    let mut present: Vec<(FilterId, FilterText)> = filters
        .filter_map(|(id, filter)| Some((*id, text(exchange, filter)?)))
        .collect();
    let mut missing = Vec::new();
    for filter in wanted {
        match present.iter().position(|(_, found)| found == filter) {
            Some(index) => drop(present.remove(index)),
            None => missing.push(filter),
        }
    }
    // References of orderers are unique: the filter that has one now goes first.
    let gone = present.into_iter().map(|(filter, _)| filter);
    operations.extend(gone.map(|filter| Operation::DeleteFilter { filter }));
    for filter in missing {
        let names = core::iter::once(&filter.account).chain(&filter.peers);
        let mut ids = Vec::new();
        for name in names {
            let mut accounts = exchange.accounts.iter();
            match accounts.find(|(_, account)| account.name == *name) {
                Some((id, _)) => ids.push(*id),
                // The account follows in a later round.
                None if has_account(name) => break,
                None => {
                    let reason = format!("nothing in the document has the name {name:?}");
                    return Err(Refusal::invalid("account", reason));
                }
            }
        }
        if ids.len() != 1 + filter.peers.len() {
            continue;
        }
        operations.push(Operation::CreateFilter {
            account: ids.first().copied(),
            peers: ids.into_iter().skip(1).collect(),
            matching: filter.matching.clone(),
            alternatives: filter.alternatives.clone(),
            action: filter.action,
            origin: FilterOrigin::Api,
            rank: filter.rank,
            order: filter.order.clone(),
            state: FilterState::Active,
            valid_until: filter.valid_until,
            exempt_until: Some(filter.exempt_until),
            comment: filter.comment.clone(),
            external_ref: filter.external_ref.clone(),
        });
    }
    Ok(())
}
