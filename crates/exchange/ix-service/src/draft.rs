//! Orders on a copy of the exchange: all operations succeed, or the copy is dropped.

use millrace_ix_model::{Actor, Drafted, Operation, Refusal, Steps};

use crate::core::Core;
use crate::error::OrderError;
use crate::now::Now;
use crate::order::ApplyOptions;
use crate::text::{self, Base, Bases, Document};

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
    ) -> Result<Drafted, OrderError> {
        self.draft_granted(&[], operations, actor, now)
    }

    /// Executes operations on a copy of the exchange, after others that the engine itself executes.
    pub(crate) fn draft_granted(
        &self,
        granted: &[Operation],
        operations: Vec<Operation>,
        actor: &Actor,
        now: Now,
    ) -> Result<Drafted, OrderError> {
        let down = self.trunks_down().into_iter().collect();
        let mut steps = Steps::new(&self.exchange, actor, now.timestamp(), &down);
        for operation in granted {
            steps.execute_as(&Actor::system(), operation.clone())?;
        }
        for (number, operation) in (1..).zip(operations) {
            let executed = steps.execute(operation);
            executed.map_err(|refusal| refusal.step(number))?;
        }
        Ok(steps.finish())
    }

    /// Executes what a document asks for on a copy of the exchange.
    pub(crate) fn draft_document(
        &self,
        document: &Document,
        actor: &Actor,
        now: Now,
    ) -> Result<Drafted, OrderError> {
        let down = self.trunks_down().into_iter().collect();
        let mut steps = Steps::new(&self.exchange, actor, now.timestamp(), &down);
        let document = document.without_ended(now.timestamp());
        for _ in 0..text::ROUNDS_MAX {
            let operations = text::operations(&document, steps.exchange())?;
            if operations.is_empty() {
                return Ok(steps.finish());
            }
            for operation in operations {
                steps.execute(operation)?;
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
}
