//! Orders that become durable together.
//!
//! A write to the medium takes much longer than an order. Orders that wait for the engine's thread at the
//! same time are therefore executed one after the other, each on the result of the previous one, and written
//! as one group:
//!
//! ```text
//!  order 1, 2, 3 --> draft, plan, write (each refused alone, or kept) --> one commit --> engine, events, answers
//!                                                                             |
//!                                                 refused: the exchange is as before the group, and every order is refused
//! ```

use std::sync::Arc;

use millrace_ix_engine::{Event, Mode, Resume};
use millrace_ix_model::{Actor, Applied, Drafted, Exchange, Operation, SwitchId, Timestamp};
use millrace_ix_store::{Answer, ChangeState, JournalRecord, Revision, StoreError};
use serde_json::{Value, json};

use crate::core::Core;
use crate::decision::AllUnconfirmed;
use crate::draft::Script;
use crate::error::OrderError;
use crate::event::EventKind;
use crate::now::Now;
use crate::open::OpenChange;
use crate::order::{ApplyOptions, OrderOptions, OrderRequest, Ordered};
use crate::phases::{Phases, counts};
use crate::revisions::Revisions;
use crate::text::{self, Document};
use crate::verify::{Preview, reader};
use crate::wording::{actor_name, answer, audit, describe, repeated};

/// The orders of a group so far.
struct Group {
    /// True if the database has an open group.
    is_open: bool,
    /// The accepted orders, which are not published yet.
    accepted: Vec<Accepted>,
    exchange: Arc<Exchange>,
    unconfirmed: Arc<AllUnconfirmed>,
    planned_at: Timestamp,
    revision: Revision,
    revisions: Revisions,
    next_change: u64,
}

/// An accepted order.
struct Accepted {
    applied: Applied,
    revision: Revision,
    /// The change and its number; `None` if the order makes no change.
    change: Option<(u64, OpenChange, Phases)>,
}

impl Core {
    /// Executes orders, each all or nothing, and makes those that succeed durable together. The answers are
    /// in the order of the requests.
    pub fn order_all(&mut self, requests: Vec<OrderRequest>, now: Now) -> Vec<Result<Ordered, OrderError>> {
        if self.check_mode().is_ok() {
            self.advance_validity(now);
        }
        let mut group = self.group();
        let mut results = Vec::with_capacity(requests.len());
        for request in requests {
            let script = Script::Operations(request.operations);
            results.push(self.accept(script, &request.actor, &request.options, &mut group, now));
        }
        self.complete(group, results, now)
    }

    /// Executes operations as one change, all or nothing. An identifier with the number 0 in a later operation stands for
    /// the newest object of that type that the same order created.
    ///
    /// # Errors
    /// [`OrderError`]; nothing has changed.
    pub fn order(
        &mut self,
        operations: Vec<Operation>,
        actor: &Actor,
        options: &OrderOptions,
        now: Now,
    ) -> Result<Ordered, OrderError> {
        self.execute(Script::Operations(operations), actor, options, now)
    }

    /// Changes the exchange to match a document, as one change, all or nothing. Nothing is written if the
    /// exchange matches already. A dry run reports in [`Ordered::problems`] why the document would be refused.
    ///
    /// # Errors
    /// [`OrderError`]; nothing has changed.
    pub fn apply(
        &mut self,
        document: Document,
        how: ApplyOptions,
        actor: &Actor,
        options: &OrderOptions,
        now: Now,
    ) -> Result<Ordered, OrderError> {
        self.execute(Script::Document(document, how), actor, options, now)
    }

    /// Executes one order.
    pub(crate) fn execute(
        &mut self,
        script: Script,
        actor: &Actor,
        options: &OrderOptions,
        now: Now,
    ) -> Result<Ordered, OrderError> {
        if !matches!(script, Script::Expire) && self.check_mode().is_ok() {
            self.advance_validity(now);
        }
        let mut group = self.group();
        let result = self.accept(script, actor, options, &mut group, now);
        let mut results = self.complete(group, vec![result], now);
        results.pop().unwrap_or(Err(OrderError::Stopped))
    }

    /// Returns an empty group with a copy of all state that its orders will change.
    fn group(&self) -> Group {
        Group {
            is_open: false,
            accepted: Vec::new(),
            exchange: Arc::clone(&self.exchange),
            unconfirmed: Arc::clone(&self.unconfirmed),
            planned_at: self.planned_at,
            revision: self.revision,
            revisions: self.revisions.clone(),
            next_change: self.next_change,
        }
    }

    /// Makes a group durable and submits its orders to the engine, or restores the state before the group.
    fn complete(
        &mut self,
        group: Group,
        results: Vec<Result<Ordered, OrderError>>,
        now: Now,
    ) -> Vec<Result<Ordered, OrderError>> {
        if group.accepted.is_empty() {
            if group.is_open {
                self.store.abandon();
            }
            return results;
        }
        let finished = self.store.finish();
        self.note_write(finished.as_ref().err(), now);
        if let Err(error) = finished {
            self.exchange = group.exchange;
            self.unconfirmed = group.unconfirmed;
            self.planned_at = group.planned_at;
            self.revision = group.revision;
            self.revisions = group.revisions;
            self.next_change = group.next_change;
            // All orders get this error, refused orders too: an earlier order that is now undone may have
            // caused the refusal.
            return results
                .into_iter()
                .map(|_| Err(OrderError::from_store(&error)))
                .collect();
        }
        let has_other_switches = group.exchange.switches != self.exchange.switches;
        if has_other_switches {
            self.add_switches(now);
        }
        self.before = group.exchange;
        for Accepted {
            applied,
            revision,
            change,
        } in group.accepted
        {
            self.tell_objects(&applied, revision, now);
            let Some((id, open, phases)) = change else {
                continue;
            };
            let order = self.engine_order(id, &open, phases);
            let objects = open.redo.objects.keys().copied().collect();
            self.open.insert(id, open);
            let state = ChangeState::Accepted;
            self.tell(
                EventKind::Change {
                    change: id,
                    state,
                    objects,
                },
                now,
            );
            self.engine.accept(order, Resume::Start, now.time);
        }
        let actions = self.engine.handle(Event::Tick, now.time);
        self.queue.extend(actions);
        self.drain(now);
        if has_other_switches {
            // Circuits over a switch that was retired take another path.
            self.reroute_rest(now);
        }
        results
    }

    /// Executes an order on the result of the group's earlier orders, and writes it.
    fn accept(
        &mut self,
        script: Script,
        actor: &Actor,
        options: &OrderOptions,
        group: &mut Group,
        now: Now,
    ) -> Result<Ordered, OrderError> {
        if let Some(answer) = self.stored_answer(options, now)? {
            return Ok(answer);
        }
        self.check_mode()?;
        self.check_revision(options)?;
        let confirmation = self.confirmation(&script, options, now)?;
        let is_expiry = matches!(script, Script::Expire);
        let text = match &script {
            Script::Document(document, how) => Some((document.base().cloned(), *how)),
            _ => None,
        };
        let (drafted, described) = self.draft_script(script, actor, options, now)?;
        let Drafted {
            after,
            changes,
            applied,
        } = drafted;
        let after = Arc::new(after);
        confirmation.check(&changes)?;
        let deletions = text::deletions(&self.exchange, &changes);
        let mut problems = match &text {
            // A text that the exchange matches already is never wrong.
            Some((base, how)) if !changes.objects.is_empty() => {
                self.problems(base.as_ref(), *how, &deletions)?
            }
            _ => Vec::new(),
        };
        if !problems.is_empty() && !options.dry_run {
            return Err(OrderError::Refused(problems.swap_remove(0)));
        }
        let planned_at = if is_expiry {
            now.timestamp()
        } else {
            self.planned_at
        };
        let phases = self
            .planner
            .phases((&self.exchange, self.planned_at), (&after, planned_at));
        let mut ordered = Ordered {
            change: None,
            revision: self.revision,
            applied,
            deletions,
            problems: problems.into_iter().map(|problem| problem.message).collect(),
            entries: counts(&phases),
            effects: Vec::new(),
            preview: None,
            repeated: false,
            after: Arc::clone(&after),
        };
        let has_entries = phases.iter().any(|phase| !phase.is_empty());
        let has_change = !changes.objects.is_empty() || has_entries;
        let is_empty = !has_change && changes.released.is_empty() && options.idempotency.is_none();
        if options.dry_run || is_empty {
            if is_expiry && is_empty {
                // The plans of both times are equal.
                self.planned_at = planned_at;
            }
            if options.dry_run {
                ordered.preview = Some(Box::new(Preview {
                    before: Arc::clone(&self.exchange),
                    after,
                    at: planned_at,
                    objects: changes.objects.keys().copied().collect(),
                    phases,
                    reader: reader(&self.exchange, actor),
                }));
            }
            return Ok(ordered);
        }
        let (revision, id) = (Revision(self.revision.0 + 1), self.next_change);
        let (mut open, stored) = OpenChange::new(
            (&self.exchange, self.planned_at),
            (&after, planned_at),
            changes,
            revision.0,
        );
        open.has_entries = has_entries;
        (ordered.change, ordered.revision) = (has_change.then_some(id), revision);
        let name = actor_name(actor);
        let mut transaction = self.transaction(&after, &ordered.applied);
        if has_change {
            transaction.journal.push(JournalRecord {
                change: id,
                state: ChangeState::Accepted,
                at: now.wall,
                detail: open.detail(&name, &described, stored),
            });
        }
        if has_change || !is_expiry {
            transaction.audit.push(audit(&name, &described, &ordered));
        }
        let own = (ordered.change, &*name);
        let unconfirmed = self.write_confirmation(confirmation, own, &mut transaction, now);
        if let Some((Some(base), _)) = &text {
            let bases = self.bases()?.with(base, &after);
            transaction
                .settings
                .push((text::BASES.to_owned(), Some(json!(bases))));
        }
        if let Some((key, hash)) = &options.idempotency {
            let answer = Answer {
                request_hash: hash.clone(),
                body: answer(&ordered),
            };
            transaction.answers.push((key.clone(), answer));
        }
        let refused = |error: StoreError| OrderError::from_store(&error);
        if !group.is_open {
            let begun = self.store.begin();
            self.note_write(begun.as_ref().err(), now);
            begun.map_err(refused)?;
            group.is_open = true;
        }
        let written = self.store.write(&transaction, now.wall);
        if written.is_err() {
            self.note_write(written.as_ref().err(), now);
        }
        let committed = written.map_err(refused)?;
        self.note_revision(&transaction, committed.revision);
        self.unconfirmed = unconfirmed;
        self.exchange = after;
        self.planned_at = planned_at;
        self.next_change += u64::from(has_change);
        group.accepted.push(Accepted {
            applied: ordered.applied.clone(),
            revision,
            change: has_change.then_some((id, open, phases)),
        });
        Ok(ordered)
    }

    /// Returns the answer that a request with the same idempotency key got.
    fn stored_answer(&self, options: &OrderOptions, now: Now) -> Result<Option<Ordered>, OrderError> {
        let Some((key, hash)) = &options.idempotency else {
            return Ok(None);
        };
        let found = self.store.answer(key, now.wall);
        match found.map_err(|error| OrderError::from_store(&error))? {
            Some(stored) if stored.answer.request_hash != *hash => Err(OrderError::KeyReused),
            Some(stored) => Ok(Some(repeated(&stored.answer.body, &self.exchange))),
            None => Ok(None),
        }
    }

    /// Refuses an order that expects an object at a revision that is not the newest one.
    fn check_revision(&self, options: &OrderOptions) -> Result<(), OrderError> {
        let Some((object, expected)) = options.if_match else {
            return Ok(());
        };
        let found = self.revisions.of(object);
        if found == Some(expected) {
            return Ok(());
        }
        Err(OrderError::Stale {
            object,
            expected,
            found,
        })
    }

    /// Applies a script to a copy of the exchange. Returns the outcome, and the description for journal and audit chain.
    fn draft_script(
        &self,
        script: Script,
        actor: &Actor,
        options: &OrderOptions,
        now: Now,
    ) -> Result<(Drafted, Value), OrderError> {
        Ok(match script {
            Script::Operations(operations) => {
                let described = describe(&operations);
                let drafted = self.draft_granted(&options.granted, operations, actor, now)?;
                (drafted, described)
            }
            Script::Document(document, _) => {
                let drafted = self.draft_document(&document, actor, now)?;
                (drafted, json!([{"operation": "apply"}]))
            }
            Script::Expire => {
                let drafted = self.draft(vec![Operation::Expire], actor, now)?;
                (drafted, json!([{"operation": "expire"}]))
            }
            Script::Revert { change, inverse } => {
                let described = json!([{"operation": "revert", "change": change}]);
                (self.draft(inverse, actor, now)?, described)
            }
        })
    }

    /// Returns the reason why no order is accepted now, if there is one.
    fn check_mode(&self) -> Result<(), OrderError> {
        if let Mode::ReadOnly { switch, theirs, ours } = self.engine.mode() {
            let switch = SwitchId(switch);
            return Err(OrderError::ReadOnly(format!(
                "the engine is read-only: {switch} has entries of revision {theirs}, and this database has written none \
                 beyond {ours}, as after the restore of an old backup; an operator must choose adopt or enforce"
            )));
        }
        if let Some(leader) = &self.follows {
            let leader = leader.clone();
            return Err(OrderError::from_store(&StoreError::Follows { leader }));
        }
        match &self.stalled {
            Some(reason) => Err(OrderError::Unavailable(reason.clone())),
            None => Ok(()),
        }
    }
}
