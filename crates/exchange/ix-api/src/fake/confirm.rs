//! Changes that wait for confirmation, for the exchange in memory.

use std::time::Duration;

use millrace_ix_model::{Actor, Exchange, ObjectId, Operation, Refusal, reason};
use millrace_ix_service::{OrderError, OrderRequest, Unconfirmed};
use millrace_ix_store::{AuditEntry, UnixMillis};

use super::{FakeExchange, State, now};

/// Returns a new entry for the list of unconfirmed changes. `exchange` is the state before the change.
pub(super) fn waiting(
    exchange: &Exchange,
    operations: &[Operation],
    within: Duration,
) -> Result<Unconfirmed, Refusal> {
    let inverses: Option<Vec<_>> = operations
        .iter()
        .map(|operation| operation.inverse(exchange))
        .collect();
    let (inverse, objects) = inverses
        .ok_or_else(|| Refusal::invalid("confirm_within", reason::confirmation_unsuited()))?
        .into_iter()
        .unzip();
    Ok(Unconfirmed {
        until: UnixMillis(now().after(within).millis()),
        inverse,
        objects,
    })
}

/// Removes a change from the list of unconfirmed changes, and records the decision in the audit chain. Any
/// actor that may order the inverse of the change may decide.
fn decide(state: &mut State, change: u64, actor: &Actor, action: &str) -> Result<Unconfirmed, OrderError> {
    let Some(waiting) = state.unconfirmed.get(&change).cloned() else {
        return Err(Refusal::conflict(reason::confirmation_none(change)).into());
    };
    for operation in &waiting.inverse {
        state.exchange.draft(actor, now(), operation.clone())?;
    }
    state.unconfirmed.remove(&change);
    let who = actor
        .user
        .map_or_else(|| "system".to_owned(), |user| user.to_string());
    state.decisions.insert(change, format!("{action} by {who}"));
    let note = AuditEntry {
        actor: who,
        action: action.to_owned(),
        object: waiting
            .objects
            .first()
            .map(ToString::to_string)
            .unwrap_or_default(),
        detail: serde_json::json!({ "change": change }),
    };
    FakeExchange::note(state, note);
    Ok(waiting)
}

impl FakeExchange {
    pub(super) fn confirm_change(&self, change: u64, actor: &Actor) -> Result<(), OrderError> {
        let mut state = self.state();
        let waiting = decide(&mut state, change, actor, "confirm")?;
        drop(state);
        let objects: Vec<ObjectId> = waiting.objects.into_iter().collect();
        self.tell("change", objects, Some(change));
        Ok(())
    }

    pub(super) fn revert_change(&self, change: u64, actor: Actor) -> Result<Option<u64>, OrderError> {
        let waiting = decide(&mut self.state(), change, &actor, "revert")?;
        let order = OrderRequest {
            actor,
            ..OrderRequest::of_system(waiting.inverse)
        };
        Ok(self.execute(order)?.change)
    }

    /// Reverts all changes that wait for confirmation, as if their time had ended.
    pub fn expire_unconfirmed(&self) {
        let changes: Vec<u64> = self.state().unconfirmed.keys().copied().collect();
        for change in changes {
            // The change was in the list a moment ago. If it is gone, there is nothing to revert.
            let _ = self.revert_change(change, Actor::system());
        }
    }
}
