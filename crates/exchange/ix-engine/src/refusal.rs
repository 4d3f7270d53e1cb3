//! Commits that a switch refuses: the engine finds the refused part, and undoes it or tries it again.
//!
//! A change that is refused before the flip is rolled back at once, because no frame follows its entries. One that is
//! refused at the flip first takes back the flip at the switches that have it, and then waits for the frames on their way:
//!
//! ```text
//!   planned --refused-------------------------------------------------> rolled_back
//!   staged ---refused--> reverting --all switches flipped back, drained-----^
//! ```
//!
//! A refused repair is split: the next commit has half as many entries after a refusal, and twice as many after a
//! success. An entry that is refused alone is set aside until the others are sent.

use std::collections::BTreeSet;

use millrace_types::Time;

use crate::SwitchId;
use crate::change::{ChangeId, Phase, Refusal};
use crate::content::Entries;
use crate::engine::Engine;
use crate::event::{Action, Notice};
use crate::switch::{RETRY_MAX, Session};

impl<E: Entries> Engine<E> {
    /// Finds the part that caused the refusal of a commit, by sending the parts one by one. A change that is
    /// refused alone is rolled back, or tried again later; a repair that is refused alone is split.
    pub(crate) fn refused(
        &mut self,
        switch: SwitchId,
        session: Session,
        commit: u64,
        reason: &str,
        now: Time,
        actions: &mut Vec<Action<E>>,
    ) {
        let retry = self.settings.retry;
        let Some(entry) = self.connected(switch, session) else {
            return;
        };
        if entry
            .in_flight
            .as_ref()
            .is_none_or(|flight| flight.number != commit)
        {
            return;
        }
        entry.heard = now;
        let (parts, keys) = entry.refused();
        if parts.len() > 1 {
            entry.isolated = parts.into_iter().collect();
            return;
        }
        let Some(part) = parts.into_iter().next() else {
            return;
        };
        entry.isolated.pop_front();
        if part.is_none() {
            if entry.split_repair(keys, retry, now) {
                actions.push(Action::Notify(Notice::Stuck {
                    switch,
                    change: None,
                    reason: reason.to_owned(),
                }));
            }
            return;
        }
        let phase = part
            .and_then(|id| self.changes.get(&id))
            .map(|change| change.phase);
        match (part, phase) {
            (Some(id), Some(Phase::Planned)) => {
                self.roll_back(id, refused_by(switch, reason), now, actions);
            }
            (Some(id), Some(Phase::Staged)) if self.flip_needs_room(id) => {
                if let Some(change) = self.changes.get_mut(&id) {
                    change.refusal = Some(Refusal {
                        switch,
                        reason: reason.to_owned(),
                    });
                }
                self.enter(id, Phase::Reverting, now);
            }
            _ => {
                if let Some(entry) = self.switches.get_mut(&switch) {
                    let delay = entry
                        .refused
                        .get(&part)
                        .map_or(retry, |(_, delay)| (*delay * 2).min(RETRY_MAX));
                    entry.refused.insert(part, (now + delay, delay));
                    entry.dump_wanted = true;
                }
                actions.push(Action::Notify(Notice::Stuck {
                    switch,
                    change: part,
                    reason: reason.to_owned(),
                }));
            }
        }
    }

    /// Returns true if the flip of a change adds or changes an entry. A flip that only removes entries, as that of a
    /// deleted service, is never undone: it is tried again.
    fn flip_needs_room(&self, id: ChangeId) -> bool {
        self.changes.get(&id).is_some_and(|change| {
            let mut deltas = change.order.flip.values().flatten();
            deltas.any(|(_, (_, after))| after.is_some())
        })
    }

    /// Rolls a change back whose ingress switches have all returned to the old entries, as soon as frames that follow the
    /// new ones have left the fabric. Returns true if the change has moved.
    pub(crate) fn end_revert(&mut self, id: ChangeId, now: Time, actions: &mut Vec<Action<E>>) -> bool {
        let delays = self.switches.values().map(|switch| switch.delay);
        let wait = self.settings.drain_min.max(delays.max().unwrap_or_default() * 2);
        let Some(change) = self.changes.get_mut(&id) else {
            return false;
        };
        if now < *change.drain_until.get_or_insert(now + wait) {
            return false;
        }
        if let Some(Refusal { switch, reason }) = change.refusal.take() {
            self.roll_back(id, refused_by(switch, &reason), now, actions);
        }
        true
    }

    /// Rolls back a change whose entries no frame follows, and the later changes that depend on its objects. Later changes that only
    /// wait for one of these are planned again.
    pub(crate) fn roll_back(
        &mut self,
        id: ChangeId,
        reason: String,
        now: Time,
        actions: &mut Vec<Action<E>>,
    ) {
        let mut undone = BTreeSet::from([id]);
        let mut replanned = BTreeSet::new();
        let mut objects = self
            .changes
            .get(&id)
            .map(|change| change.order.objects.clone())
            .unwrap_or_default();
        for (later, change) in self.changes.range(id + 1..) {
            let depends = change
                .order
                .objects
                .iter()
                .chain(&change.order.references)
                .any(|name| objects.contains(name));
            let follows = change
                .predecessors
                .iter()
                .any(|earlier| undone.contains(earlier) || replanned.contains(earlier));
            if change.phase != Phase::Accepted {
                continue;
            }
            if depends {
                undone.insert(*later);
                objects.extend(change.order.objects.iter().cloned());
            } else if follows {
                replanned.insert(*later);
            }
        }
        let changes = undone.iter().rev().copied().collect();
        actions.push(Action::RollBack { changes, reason });
        for later in undone.iter().filter(|later| **later != id).chain(&replanned) {
            self.forget(*later);
        }
        for later in undone.iter().filter(|later| **later != id) {
            actions.push(Action::Release(*later));
        }
        actions.extend(replanned.into_iter().map(Action::Replan));
        self.enter(id, Phase::RolledBack, now);
    }
}

/// Returns the reason of a rollback because of a switch.
fn refused_by(switch: SwitchId, reason: &str) -> String {
    format!("switch {switch} refuses the change: {reason}")
}
