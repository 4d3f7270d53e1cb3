//! The queue of the engine's actions. An action that must be durable is written before the next action runs.

use std::collections::BTreeSet;
use std::sync::Arc;

use millrace_ix_engine::{Action, Phase, Resume};
use millrace_ix_model::{Applied, Exchange, SwitchId};
use millrace_ix_store::{AuditEntry, ChangeState, JournalRecord, StoreError, Transaction};
use serde_json::{Value, json};

use crate::core::Core;
use crate::event::EventKind;
use crate::fabric::Fabric;
use crate::now::Now;
use crate::output::{FabricRequest, Output};

impl Core {
    /// Runs the actions in the queue, in order.
    pub(crate) fn drain(&mut self, now: Now) {
        self.stalled = None;
        while let Some(action) = self.queue.pop_front() {
            let done = match &action {
                Action::Journal { .. } => {
                    let mut records = vec![action];
                    while let Some(Action::Journal { .. }) = self.queue.front() {
                        records.extend(self.queue.pop_front());
                    }
                    let done = self.journal(&records, now);
                    if done.is_err() {
                        records
                            .into_iter()
                            .rev()
                            .for_each(|record| self.queue.push_front(record));
                    }
                    done
                }
                Action::RollBack { changes, reason } => {
                    let done = self.roll_back(changes, reason, now);
                    if done.is_err() {
                        self.queue.push_front(action);
                    }
                    done
                }
                Action::Release(change) => {
                    let done = self.report_gone(*change, now);
                    if done.is_err() {
                        self.queue.push_front(action);
                    }
                    done
                }
                Action::Swept => {
                    let done = self.sweep(now);
                    if done.is_err() {
                        self.queue.push_front(action);
                    }
                    done
                }
                // The new plan must not contain anything that is undone meanwhile.
                Action::Replan(_)
                    if self
                        .queue
                        .iter()
                        .any(|later| matches!(later, Action::RollBack { .. })) =>
                {
                    self.queue.push_back(action);
                    Ok(())
                }
                _ => {
                    self.act(action, now);
                    Ok(())
                }
            };
            if let Err(error) = done {
                tracing::error!(%error, "the journal cannot be written; nothing is sent to switches");
                self.stalled = Some(error.to_string());
                return;
            }
        }
    }

    /// Runs an action that needs no database.
    fn act(&mut self, action: Action<Fabric>, now: Now) {
        match action {
            Action::Dump { switch, session } => {
                let switch = SwitchId(switch);
                self.ask_switch(FabricRequest::Dump { switch, session });
            }
            Action::Commit {
                switch,
                session,
                commit,
                modifications,
            } => {
                let switch = SwitchId(switch);
                self.ask_switch(FabricRequest::Commit {
                    switch,
                    session,
                    commit,
                    modifications,
                });
            }
            Action::Verify { change, flip, clean } => self.ask_verification(change, flip, clean),
            Action::Replan(id) => self.submit(id, Resume::Start, now),
            Action::Notify(notice) => self.notify(&notice, now),
            Action::Journal { .. } | Action::RollBack { .. } | Action::Release(_) | Action::Swept => {}
        }
    }

    /// Sends a request to a switch, unless this engine follows: the plan of one that follows is empty, and that of one whose term
    /// has ended is old.
    pub(crate) fn ask_switch(&mut self, request: FabricRequest) {
        if self.follows.is_some() {
            return;
        }
        self.note_request(&request);
        self.outputs.push(Output::Request(request));
    }

    /// Writes journal records. The last record of a change is written with the report that its services are
    /// in place or gone.
    fn journal(&mut self, records: &[Action<Fabric>], now: Now) -> Result<(), StoreError> {
        let mut transaction = Transaction::default();
        let mut cleaned = Vec::new();
        let mut states = Vec::new();
        for record in records {
            let Action::Journal { change, phase } = record else {
                continue;
            };
            let state = state(*phase);
            transaction.journal.push(JournalRecord {
                change: *change,
                state,
                at: now.wall,
                detail: Value::Null,
            });
            states.push((*change, state));
            if state == ChangeState::Cleaned {
                cleaned.push(*change);
            }
        }
        let operations = self.reports_of(&cleaned);
        if operations.is_empty() {
            self.commit(&transaction, now)?;
            // The transaction has written no object.
            self.before = Arc::clone(&self.exchange);
        } else {
            let mut after = Exchange::clone(&self.exchange);
            let applied = crate::reports::apply(&mut after, operations, now.timestamp());
            let reports = self.transaction(&after, &applied);
            let transaction = Transaction {
                puts: reports.puts,
                deletes: reports.deletes,
                ..transaction
            };
            self.commit(&transaction, now)?;
            self.replace(after, &applied, now);
        }
        for (id, state) in states {
            if let Some(change) = self.open.get_mut(&id) {
                change.state = state;
                change.stuck = None;
                let objects = change.redo.objects.keys().copied().collect();
                self.tell(
                    EventKind::Change {
                        change: id,
                        state,
                        objects,
                    },
                    now,
                );
            }
        }
        Ok(())
    }

    /// Replaces the exchange by one that is already written and has the same plan.
    pub(crate) fn replace(&mut self, after: Exchange, applied: &Applied, now: Now) {
        self.before = std::mem::replace(&mut self.exchange, Arc::new(after));
        self.tell_objects(applied, self.revision, now);
    }

    /// Restores the objects of changes, newest first, and writes the reason.
    fn roll_back(&mut self, ids: &[u64], reason: &str, now: Now) -> Result<(), StoreError> {
        let mut after = Exchange::clone(&self.exchange);
        let mut touched = BTreeSet::new();
        let mut journal = Vec::new();
        let mut audit = Vec::new();
        for id in ids {
            let Some(change) = self.open.get(id) else {
                continue;
            };
            let undone = after.commit(change.undo.clone());
            touched.extend([undone.created, undone.changed, undone.deleted].concat());
            let detail = json!({"reason": reason});
            journal.push(JournalRecord {
                change: *id,
                state: ChangeState::RolledBack,
                at: now.wall,
                detail: detail.clone(),
            });
            audit.push(AuditEntry {
                actor: "engine".to_owned(),
                action: "roll_back".to_owned(),
                object: String::new(),
                detail: json!({"change": id, "reason": reason}),
            });
        }
        let operations = self.reports_of_undone(ids, &after);
        let reported = crate::reports::apply(&mut after, operations, now.timestamp());
        touched.extend([reported.created, reported.changed, reported.deleted].concat());
        let applied = crate::reports::difference(&self.exchange, &after, touched);
        let written = self.transaction(&after, &applied);
        // A change that has not happened needs no confirmation.
        let (unconfirmed, settings) = self.without(ids);
        self.commit(
            &Transaction {
                journal,
                audit,
                settings,
                ..written
            },
            now,
        )?;
        self.replace(after, &applied, now);
        self.add_switches(now);
        self.unconfirmed = unconfirmed;
        for id in ids {
            if let Some(change) = self.open.get_mut(id) {
                if let Some((then, _)) = change.validity {
                    // The switches have the entries of that time; the next expiry brings them forward.
                    self.planned_at = self.planned_at.min(then);
                }
                change.state = ChangeState::RolledBack;
                change.stuck = None;
                let objects = change.redo.objects.keys().copied().collect();
                self.tell(
                    EventKind::Change {
                        change: *id,
                        state: ChangeState::RolledBack,
                        objects,
                    },
                    now,
                );
            }
            let text = format!("change {id} is rolled back: {reason}");
            self.tell(
                EventKind::Notice {
                    text,
                    switch: None,
                    change: Some(*id),
                },
                now,
            );
        }
        Ok(())
    }
}

fn state(phase: Phase) -> ChangeState {
    match phase {
        Phase::Accepted => ChangeState::Accepted,
        Phase::Planned => ChangeState::Planned,
        // A change that is reverted has the record of its stage until it is rolled back.
        Phase::Staged | Phase::Reverting => ChangeState::Staged,
        Phase::Flipped => ChangeState::Flipped,
        Phase::Drained => ChangeState::Drained,
        Phase::Cleaned => ChangeState::Cleaned,
        Phase::RolledBack => ChangeState::RolledBack,
    }
}
