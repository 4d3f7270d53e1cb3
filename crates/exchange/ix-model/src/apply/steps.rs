//! Orders of several operations: each is executed on the result of the earlier ones, all or none.

use std::collections::BTreeSet;

use crate::account::Actor;
use crate::exchange::{Applied, ChangeSet, Exchange, ObjectId};
use crate::id::TrunkId;
use crate::operation::Operation;
use crate::refusal::Refusal;
use crate::time::Timestamp;

/// An order in progress, on a copy of the exchange.
#[derive(Debug)]
pub struct Steps<'a> {
    base: &'a Exchange,
    actor: &'a Actor,
    now: Timestamp,
    /// The trunks that are down: circuits get paths over the others.
    down: &'a BTreeSet<TrunkId>,
    after: Exchange,
    changes: ChangeSet,
    /// The objects that the operations created, in order.
    created: Vec<ObjectId>,
}

/// The outcome of an order, before anybody has committed it. A dry run returns it, and the deed stores it.
#[derive(Clone, PartialEq, Debug)]
pub struct Drafted {
    /// The exchange after the order.
    pub after: Exchange,
    /// The objects that differ.
    pub changes: ChangeSet,
    /// The identifiers of the objects that differ.
    pub applied: Applied,
}

impl<'a> Steps<'a> {
    /// Returns an order without operations.
    pub fn new(
        base: &'a Exchange,
        actor: &'a Actor,
        now: Timestamp,
        down: &'a BTreeSet<TrunkId>,
    ) -> Steps<'a> {
        Steps {
            base,
            actor,
            now,
            down,
            after: base.clone(),
            changes: ChangeSet::default(),
            created: Vec::new(),
        }
    }

    /// Returns the exchange after the operations so far.
    pub fn exchange(&self) -> &Exchange {
        &self.after
    }

    /// Executes an operation, in which references stand for objects that earlier ones created.
    ///
    /// # Errors
    /// [`Refusal`] if the model refuses the operation; the order then has to be dropped.
    pub fn execute(&mut self, operation: Operation) -> Result<(), Refusal> {
        self.execute_as(self.actor, operation)
    }

    /// Executes an operation of another actor than that of the order.
    ///
    /// # Errors
    /// As [`Steps::execute`].
    pub fn execute_as(&mut self, actor: &Actor, mut operation: Operation) -> Result<(), Refusal> {
        operation.resolve(&self.created);
        let changes = self
            .after
            .draft_with_down(actor, self.now, operation, self.down)?;
        self.changes.objects.extend(changes.objects.clone());
        self.changes.released.extend(changes.released.iter().copied());
        self.changes.last_id = self.changes.last_id.max(changes.last_id);
        self.created.extend(self.after.commit(changes).created);
        Ok(())
    }

    /// Returns the outcome. Only real differences count: an object may have been created and deleted, or written as it
    /// was.
    pub fn finish(self) -> Drafted {
        let Steps {
            base,
            after,
            mut changes,
            ..
        } = self;
        changes.objects.retain(|id, object| base.object(*id) != *object);
        let mut applied = Applied::default();
        for (id, object) in &changes.objects {
            match (base.object(*id), object) {
                (None, Some(_)) => applied.created.push(*id),
                (Some(_), None) => applied.deleted.push(*id),
                (Some(_), Some(_)) => applied.changed.push(*id),
                (None, None) => {}
            }
        }
        Drafted {
            after,
            changes,
            applied,
        }
    }
}
