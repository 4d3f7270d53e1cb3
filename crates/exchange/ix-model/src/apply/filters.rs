//! Orders of filters. The caller decides about ownership and precedence.

use core::time::Duration;

use super::{Order, Outcome};
use crate::exchange::ObjectId;
use crate::filter::{Filter, FilterAction, FilterState};
use crate::id::FilterId;
use crate::operation::Operation;
use crate::reason;
use crate::refusal::{Refusal, RefusalCode};
use crate::time::Timestamp;

/// The largest number of filters of an account.
const FILTERS_MAX: usize = 500;
/// The largest number of matches of a filter in addition to its first match.
const ALTERNATIVES_MAX: usize = 2_000;
/// The longest validity of a filter.
pub const FILTER_VALIDITY_MAX: Duration = Duration::from_secs(30 * 86_400);

impl Order<'_> {
    pub(super) fn filters(&mut self, operation: Operation) -> Outcome {
        let kind = operation.kind();
        match operation {
            Operation::CreateFilter {
                account,
                matching,
                alternatives,
                peers,
                action,
                origin,
                rank,
                order,
                state,
                valid_until,
                exempt_until,
                comment,
                external_ref,
            } => {
                let account = self.account_or_own(account)?;
                self.draft.check_account(self.actor, kind, account)?;
                if let Some((field, reason)) = matching.contradiction() {
                    return Err(Refusal::invalid(&format!("matching.{field}"), reason));
                }
                if alternatives.len() > ALTERNATIVES_MAX {
                    let reason = reason::matches_max(ALTERNATIVES_MAX);
                    return Err(Refusal::invalid("alternatives", reason));
                }
                for (index, alternative) in alternatives.iter().enumerate() {
                    if let Some((field, reason)) = alternative.contradiction() {
                        return Err(Refusal::invalid(
                            &format!("alternatives[{index}].{field}"),
                            reason,
                        ));
                    }
                    if !matching.destination.covers(alternative.destination) {
                        let reason = reason::destination_within(matching.destination);
                        return Err(Refusal::invalid(
                            &format!("alternatives[{index}].destination"),
                            reason,
                        ));
                    }
                }
                if exempt_until.is_some() && !self.actor.is_operator() && !self.actor.is_system() {
                    let reason = reason::exception_by_operator();
                    return Err(Refusal::new(RefusalCode::Forbidden, reason).field("exempt_until"));
                }
                if (action == FilterAction::Shape { rate_kbps: 0 }) {
                    return Err(Refusal::invalid("action.rate_kbps", reason::shape_rate_min()));
                }
                if let Some(peer) = peers.iter().find(|peer| !self.knows_account(**peer)) {
                    return Err(Refusal::not_found(*peer).field("peers"));
                }
                self.check_validity(valid_until)?;
                let own = move |filter: &Filter| filter.account == account;
                self.check_external_ref::<FilterId>(external_ref.as_deref(), |filter| {
                    filter.external_ref.as_deref().filter(|_| own(filter))
                })?;
                let is_live = |state: &FilterState| {
                    matches!(
                        state,
                        FilterState::Checked | FilterState::Active | FilterState::Suspended(_)
                    )
                };
                let live = self
                    .draft
                    .all::<FilterId>()
                    .filter(|(_, filter)| own(filter) && is_live(&filter.state))
                    .count();
                if is_live(&state) && live >= FILTERS_MAX {
                    let reason = reason::filters_full(account, FILTERS_MAX);
                    return Err(Refusal::new(RefusalCode::Exhausted, reason).object(account));
                }
                self.draft.create::<FilterId>(Filter {
                    account,
                    matching,
                    alternatives,
                    peers,
                    action,
                    origin,
                    rank,
                    order,
                    state,
                    valid_until,
                    exempt_until,
                    comment,
                    external_ref,
                });
                Ok(())
            }
            Operation::UpdateFilter {
                filter: id,
                state,
                rank,
                valid_until,
            } => {
                self.draft.check(self.actor, kind, ObjectId::from(id))?;
                self.check_validity(valid_until)?;
                let mut filter = self.object(id)?;
                if filter.state == FilterState::Expired && !self.actor.is_system() {
                    return Err(Refusal::conflict(reason::filter_ended(id)).object(id));
                }
                filter.state = state.unwrap_or(filter.state);
                filter.rank = rank.unwrap_or(filter.rank);
                filter.valid_until = valid_until.or(filter.valid_until);
                self.draft.put(id, filter);
                Ok(())
            }
            Operation::DeleteFilter { filter } => {
                self.draft.check(self.actor, kind, filter.into())?;
                self.draft.delete(filter);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn check_validity(&self, valid_until: Option<Timestamp>) -> Outcome {
        match valid_until {
            Some(until) if until <= self.now || until.since(self.now) > FILTER_VALIDITY_MAX => {
                Err(Refusal::invalid("valid_until", reason::filter_validity()))
            }
            _ => Ok(()),
        }
    }
}
