//! Decisions of users about two things: the confirmation of changes that are otherwise undone, and content of
//! switches that is newer than the database.
//!
//! ```text
//!  order with confirm_within --> change, and its inverse in the list of unconfirmed changes   (one transaction)
//!      confirm in time       --> the list forgets it
//!      time is over, or revert --> the inverse is ordered as a change of its own, and the list forgets it
//! ```
//! The list is in the database: a change is also undone if the engine was restarted in the meantime. While a
//! change waits, nobody else changes its objects, so that the inverse restores their former state.

mod unconfirmed;

pub use unconfirmed::Unconfirmed;
pub(crate) use unconfirmed::{AllUnconfirmed, load};
use unconfirmed::{CONFIRM_WITHIN_MAX, setting};

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use millrace_ix_engine::{Event, Mode, Resolution};
use millrace_ix_model::{Actor, Applied, ChangeSet, Exchange, Reason, Refusal, RefusalCode, reason};
use millrace_ix_store::{
    AuditEntry, ChangeState, JournalRecord, Revision, StoreError, Transaction, UnixMillis,
};
use serde_json::{Value, json};

use crate::core::{ADOPTED, Core};
use crate::draft::Script;
use crate::error::OrderError;
use crate::event::EventKind;
use crate::now::Now;
use crate::order::{OrderOptions, Ordered};
use crate::wording::actor_name;

/// The effect of an order on the list of unconfirmed changes.
pub(crate) struct Confirmation {
    /// The unconfirmed changes without the change that the order undoes.
    all: Arc<AllUnconfirmed>,
    /// The entry of the order's own change.
    own: Option<Unconfirmed>,
    /// The change that the order undoes.
    reverted: Option<u64>,
    /// True for changes that the engine makes by itself, which may write objects of unconfirmed changes.
    is_free: bool,
}

impl Confirmation {
    /// Checks that an order leaves the objects of unconfirmed changes alone.
    pub(crate) fn check(&self, changes: &ChangeSet) -> Result<(), OrderError> {
        if self.is_free {
            return Ok(());
        }
        let touched = self.all.iter().find_map(|(change, waiting)| {
            let object = waiting
                .objects
                .iter()
                .find(|id| changes.objects.contains_key(id))?;
            Some((change, object))
        });
        match touched {
            None => Ok(()),
            Some((change, object)) => {
                let reason = reason::confirmation_pending(change, object);
                Err(OrderError::Refused(Refusal::conflict(reason).object(*object)))
            }
        }
    }
}

impl Core {
    /// Returns the effect of an order on the list of unconfirmed changes.
    ///
    /// # Errors
    /// A refusal if the order waits for a confirmation, but cannot be undone or has an invalid time limit.
    pub(crate) fn confirmation(
        &self,
        script: &Script,
        options: &OrderOptions,
        now: Now,
    ) -> Result<Confirmation, OrderError> {
        let mut all = Arc::clone(&self.unconfirmed);
        let reverted = match script {
            Script::Revert { change, .. } => Some(*change),
            _ => None,
        };
        if let Some(change) = reverted {
            Arc::make_mut(&mut all).remove(&change);
        }
        let own = match options.confirm_within {
            Some(within) => Some(self.waiting(script, within, now)?),
            None => None,
        };
        Ok(Confirmation {
            all,
            own,
            reverted,
            is_free: matches!(script, Script::Expire),
        })
    }

    fn waiting(&self, script: &Script, within: Duration, now: Now) -> Result<Unconfirmed, OrderError> {
        let invalid = |reason: Reason| OrderError::Refused(Refusal::invalid("confirm_within", reason));
        if within.is_zero() || within > CONFIRM_WITHIN_MAX {
            return Err(invalid(reason::confirmation_time()));
        }
        let Script::Operations(operations) = script else {
            return Err(invalid(reason::confirmation_of_operations()));
        };
        let inverses = operations
            .iter()
            .rev()
            .map(|operation| operation.inverse(&self.exchange));
        let inverses: Option<Vec<_>> = inverses.collect();
        let (inverse, objects): (Vec<_>, BTreeSet<_>) = inverses
            .ok_or_else(|| invalid(reason::confirmation_unsuited()))?
            .into_iter()
            .unzip();
        if objects.len() < inverse.len() {
            return Err(invalid(reason::confirmation_twice()));
        }
        let millis = u64::try_from(within.as_millis()).unwrap_or(u64::MAX);
        Ok(Unconfirmed {
            until: UnixMillis(now.wall.0.saturating_add(millis)),
            inverse,
            objects,
        })
    }

    /// Adds the new list of unconfirmed changes to a transaction, and returns the list. `change` is the
    /// number of the order's own change, if it has one.
    pub(crate) fn write_confirmation(
        &self,
        confirmation: Confirmation,
        (change, actor): (Option<u64>, &str),
        transaction: &mut Transaction,
        now: Now,
    ) -> Arc<AllUnconfirmed> {
        let mut all = confirmation.all;
        if let (Some(change), Some(own)) = (change, confirmation.own) {
            Arc::make_mut(&mut all).insert(change, own);
        }
        if let Some(reverted) = confirmation.reverted {
            let by = change.map_or_else(String::new, |change| format!(" by change {change}"));
            let reason = format!("{actor} has undone it{by}");
            transaction.journal.push(self.note(reverted, &reason, now));
        }
        if all != self.unconfirmed {
            transaction.settings.push(setting(&all));
        }
        all
    }

    /// Returns the list of unconfirmed changes without `changes`, and the settings that store the list.
    pub(crate) fn without(&self, changes: &[u64]) -> (Arc<AllUnconfirmed>, Vec<(String, Option<Value>)>) {
        let mut all = Arc::clone(&self.unconfirmed);
        if changes.iter().all(|change| !all.contains_key(change)) {
            return (all, Vec::new());
        }
        Arc::make_mut(&mut all).retain(|change, _| !changes.contains(change));
        let settings = vec![setting(&all)];
        (all, settings)
    }

    /// Returns a journal record that does not alter the state of a change.
    fn note(&self, change: u64, reason: &str, now: Now) -> JournalRecord {
        JournalRecord {
            change,
            state: self.state_of(change),
            at: now.wall,
            detail: json!({ "reason": reason }),
        }
    }

    fn state_of(&self, change: u64) -> ChangeState {
        self.open
            .get(&change)
            .map_or(ChangeState::Cleaned, |open| open.state)
    }

    fn unconfirmed(&self, change: u64) -> Result<&Unconfirmed, OrderError> {
        self.unconfirmed
            .get(&change)
            .ok_or_else(|| OrderError::Refused(Refusal::conflict(reason::confirmation_none(change))))
    }

    /// Confirms a change, which is then not undone. The actor must be permitted to undo it.
    ///
    /// # Errors
    /// [`OrderError`] if the change does not wait, or the actor may not order it.
    pub fn confirm(&mut self, change: u64, actor: &Actor, now: Now) -> Result<(), OrderError> {
        let inverse = self.unconfirmed(change)?.inverse.clone();
        self.draft(inverse, actor, now)?;
        let (name, action) = (actor_name(actor), "confirm".to_owned());
        let reason = format!("{name} has confirmed it");
        self.forget(change, &reason, Some((name, action)), now)
            .map_err(|error| OrderError::from_store(&error))
    }

    /// Removes a change from the list of unconfirmed changes.
    pub(crate) fn forget(
        &mut self,
        change: u64,
        reason: &str,
        act: Option<(String, String)>,
        now: Now,
    ) -> Result<(), StoreError> {
        let Some(waiting) = self.unconfirmed.get(&change).cloned() else {
            return Ok(());
        };
        let (all, settings) = self.without(&[change]);
        let object = waiting
            .objects
            .first()
            .map(ToString::to_string)
            .unwrap_or_default();
        let audit = act.map(|(actor, action)| AuditEntry {
            actor,
            action,
            object,
            detail: json!({ "change": change }),
        });
        let transaction = Transaction {
            journal: vec![self.note(change, reason, now)],
            audit: audit.into_iter().collect(),
            settings,
            ..Transaction::default()
        };
        self.commit(&transaction, now)?;
        self.unconfirmed = all;
        let state = self.state_of(change);
        let objects = waiting.objects.into_iter().collect();
        self.tell(
            EventKind::Change {
                change,
                state,
                objects,
            },
            now,
        );
        Ok(())
    }

    /// Undoes a change that waits for its confirmation, by a new change.
    ///
    /// # Errors
    /// [`OrderError`] if the change does not wait, or the actor may not undo it.
    pub fn revert(&mut self, change: u64, actor: &Actor, now: Now) -> Result<Ordered, OrderError> {
        let waiting = self.unconfirmed(change)?;
        let script = Script::Revert {
            change,
            inverse: waiting.inverse.clone(),
        };
        let objects = waiting.objects.iter().copied().collect();
        let ordered = self.execute(script, actor, &OrderOptions::default(), now)?;
        // An order that writes nothing has not touched the list.
        self.forget(change, "there was nothing to undo", None, now)
            .map_err(|error| OrderError::from_store(&error))?;
        let state = self.state_of(change);
        self.tell(
            EventKind::Change {
                change,
                state,
                objects,
            },
            now,
        );
        Ok(ordered)
    }

    /// Undoes the changes that nobody has confirmed in time.
    pub(crate) fn revert_overdue(&mut self, now: Now) {
        let due = self
            .unconfirmed
            .iter()
            .filter(|(_, waiting)| waiting.until <= now.wall);
        let due: Vec<u64> = due.map(|(change, _)| *change).collect();
        for change in due {
            let failed = match self.revert(change, &Actor::system(), now) {
                Ok(ordered) => {
                    let text = match ordered.change {
                        Some(undone) => {
                            format!("change {change} was not confirmed in time: change {undone} undoes it")
                        }
                        None => {
                            format!("change {change} was not confirmed in time, and left nothing to undo")
                        }
                    };
                    let (switch, change) = (None, Some(change));
                    self.tell(EventKind::Notice { text, switch, change }, now);
                    continue;
                }
                Err(OrderError::Refused(refusal)) => refusal,
                Err(error) => {
                    tracing::warn!(change, %error, "a change that nobody has confirmed is undone later");
                    continue;
                }
            };
            let text = format!("change {change} was not confirmed in time, and cannot be undone: {failed}");
            tracing::error!("{text}");
            let act = ("system".to_owned(), "revert_failed".to_owned());
            if let Err(error) = self.forget(change, &text, Some(act), now) {
                tracing::warn!(change, %error, "the journal is written later");
                continue;
            }
            let (switch, change) = (None, Some(change));
            self.tell(EventKind::Notice { text, switch, change }, now);
        }
    }

    /// Executes an operator's decision about content that is newer than the database. Content that was adopted can be
    /// overwritten later.
    ///
    /// # Errors
    /// [`OrderError`] if the actor is no operator, or there is nothing to decide.
    pub fn resolve(&mut self, resolution: Resolution, actor: &Actor, now: Now) -> Result<(), OrderError> {
        if !actor.is_operator() && !actor.is_system() {
            return Err(OrderError::Refused(Refusal::new(
                RefusalCode::Forbidden,
                reason::staff_only(),
            )));
        }
        let is_adoption = resolution == Resolution::Adopt;
        let theirs = match self.engine.mode() {
            Mode::ReadOnly { theirs, .. } => Some(theirs),
            Mode::Normal if self.engine.is_adopted() && !is_adoption => None,
            Mode::Normal => {
                return Err(OrderError::Refused(Refusal::conflict(
                    "the engine is not read-only".to_owned(),
                )));
            }
        };
        let unavailable = |error: StoreError| OrderError::from_store(&error);
        let entry = AuditEntry {
            actor: actor_name(actor),
            action: if is_adoption { "adopt" } else { "enforce" }.to_owned(),
            object: String::new(),
            detail: json!({"their_revision": theirs, "revision": self.revision.0}),
        };
        // The numbers of entries that `enforce` removes are free once every switch has removed them.
        let mut carried = self.carried_by_unknown();
        if !is_adoption {
            carried.last_id = 0;
        }
        let after = self
            .with_carried(&carried)
            .unwrap_or_else(|| Exchange::clone(&self.exchange));
        let transaction = Transaction {
            audit: vec![entry],
            settings: vec![(ADOPTED.to_owned(), is_adoption.then_some(json!(true)))],
            ..self.transaction(&after, &Applied::default())
        };
        self.commit(&transaction, now).map_err(unavailable)?;
        self.replace(after, &Applied::default(), now);
        // The revision follows the decision: without it, the next start would take the switches for older ones.
        if let Some(theirs) = theirs.map(Revision) {
            self.store.raise_revision(theirs).map_err(unavailable)?;
            self.revision = self.revision.max(theirs);
        }
        self.handle(Event::Resolved(resolution), now);
        self.tell(EventKind::Mode { read_only: false }, now);
        Ok(())
    }
}
