//! Orders on a copy of the exchange: all operations succeed, or the copy is dropped.

use std::collections::BTreeSet;

use millrace_ix_model::{Actor, Applied, ChangeSet, Exchange, ObjectId, Operation, Refusal, TrunkId};

use crate::core::{Core, Now};
use crate::error::OrderError;
use crate::order::ApplyOptions;
use crate::text::{self, Base, Bases, Document};
use crate::wording::resolve;

/// The operations of an order, or the source from which they are derived.
pub(crate) enum Script {
    Operations(Vec<Operation>),
    Document(Document, ApplyOptions),
    /// The begins and ends of validity that are due.
    Expire,
    /// The operations that undo a change.
    Revert {
        change: u64,
        inverse: Vec<Operation>,
    },
}

impl Core {
    /// Executes operations on a copy of the exchange.
    pub(crate) fn draft(
        &self,
        operations: Vec<Operation>,
        actor: &Actor,
        now: Now,
    ) -> Result<(Exchange, ChangeSet, Applied), OrderError> {
        let mut after = Exchange::clone(&self.exchange);
        let mut merged = ChangeSet::default();
        let mut created: Vec<ObjectId> = Vec::new();
        let down = self.trunks_down().into_iter().collect();
        for operation in operations {
            let operation = resolve(operation, &created)?;
            created.extend(draft_one(&mut after, &mut merged, operation, &down, actor, now)?);
        }
        Ok(self.drafted(after, merged))
    }

    /// Executes what a document asks for on a copy of the exchange.
    pub(crate) fn draft_document(
        &self,
        document: &Document,
        actor: &Actor,
        now: Now,
    ) -> Result<(Exchange, ChangeSet, Applied), OrderError> {
        let mut after = Exchange::clone(&self.exchange);
        let mut merged = ChangeSet::default();
        let down = self.trunks_down().into_iter().collect();
        for _ in 0..text::ROUNDS_MAX {
            let operations = text::operations(document, &after)?;
            if operations.is_empty() {
                return Ok(self.drafted(after, merged));
            }
            for operation in operations {
                draft_one(&mut after, &mut merged, operation, &down, actor, now)?;
            }
        }
        Err(OrderError::Refused(Refusal::conflict(
            "the document asks for the same operations again and again".to_owned(),
        )))
    }

    /// Returns the reasons why a text must not be applied: the exchange has changed since its export, or it deletes more than
    /// was permitted.
    ///
    /// # Errors
    /// [`OrderError`] if the database cannot be read.
    pub(crate) fn problems(
        &self,
        base: Option<&Base>,
        how: ApplyOptions,
        deletions: &[String],
    ) -> Result<Vec<Refusal>, OrderError> {
        let mut problems = Vec::new();
        if let Some(base) = base.filter(|_| !how.overwrite) {
            let checked = self.bases()?.check(base, &self.exchange, &self.revisions);
            problems.extend(checked.err());
        }
        if deletions.len() > how.deletions_max {
            problems.push(Refusal::conflict(format!(
                "the text deletes {} services, ends and connections, and {} are permitted: look at them with \
                 `millrace-ix plan`, then permit them with --deletions {}",
                deletions.len(),
                how.deletions_max,
                deletions.len()
            )));
        }
        Ok(problems)
    }

    /// Returns the results of the newest applications of texts.
    pub(crate) fn bases(&self) -> Result<Bases, OrderError> {
        let stored = self.store.setting(text::BASES);
        let stored = stored.map_err(|error| OrderError::from_store(&error))?;
        // A list that cannot be read is an empty one: texts are then refused, and exported again.
        Ok(stored
            .and_then(|value| serde_json::from_value(value).ok())
            .unwrap_or_default())
    }

    /// Keeps only real differences: an object may have been created and deleted, or written as it was.
    fn drafted(&self, after: Exchange, mut merged: ChangeSet) -> (Exchange, ChangeSet, Applied) {
        merged
            .objects
            .retain(|id, object| self.exchange.object(*id) != *object);
        let applied = self.applied(&merged);
        (after, merged, applied)
    }

    /// Returns the names of the objects that changes create, change and delete.
    fn applied(&self, changes: &ChangeSet) -> Applied {
        let mut applied = Applied::default();
        for (id, object) in &changes.objects {
            match (self.exchange.object(*id), object) {
                (None, Some(_)) => applied.created.push(*id),
                (Some(_), None) => applied.deleted.push(*id),
                (Some(_), Some(_)) => applied.changed.push(*id),
                (None, None) => {}
            }
        }
        applied
    }
}

/// Executes one operation on a draft; returns the objects that it created.
fn draft_one(
    after: &mut Exchange,
    merged: &mut ChangeSet,
    operation: Operation,
    down: &BTreeSet<TrunkId>,
    actor: &Actor,
    now: Now,
) -> Result<Vec<ObjectId>, OrderError> {
    let changes = after.draft_with_down(actor, now.timestamp(), operation, down)?;
    merged.objects.extend(changes.objects.clone());
    merged.released.extend(changes.released.iter().copied());
    merged.last_id = merged.last_id.max(changes.last_id);
    Ok(after.commit(changes).created)
}
