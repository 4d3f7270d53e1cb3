//! Commits that a switch refuses: the engine finds the refused part, and undoes it or tries it again.
//!
//! A refused repair is split: the next commit has half as many entries after a refusal, and twice as many after a
//! success. An entry that is refused alone is set aside until the others are sent.

use std::collections::BTreeSet;

use millrace_types::Time;

use crate::SwitchId;
use crate::change::{ChangeId, Phase};
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
            (Some(id), Some(Phase::Planned)) => self.roll_back(id, switch, reason, now, actions),
            (Some(id), Some(Phase::Staged)) if self.flip_adds_only(id) => {
                self.fold_flip(id);
                self.roll_back(id, switch, reason, now, actions);
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

    /// Returns true if the flip of a change has new entries only, as that of a new service. No frame depends on such a flip
    /// yet, so that it can be undone at once. The flip of a service that forwards already stays: its old entries work until
    /// the switch takes the new ones.
    fn flip_adds_only(&self, id: ChangeId) -> bool {
        self.changes.get(&id).is_some_and(|change| {
            let mut deltas = change.order.flip.values().flatten();
            deltas.all(|(_, (before, _))| before.is_none())
        })
    }

    /// Adds the deltas of a change's flip to those of its stage, which a rollback applies in reverse.
    fn fold_flip(&mut self, id: ChangeId) {
        let Some(change) = self.changes.get_mut(&id) else {
            return;
        };
        for (switch, delta) in &change.order.flip {
            let stage = change.order.stage.entry(*switch).or_default();
            for (key, (before, after)) in delta {
                let staged = stage.get(key).map(|(before, _)| before.clone());
                let before = staged.unwrap_or_else(|| before.clone());
                stage.insert(key.clone(), (before, after.clone()));
            }
        }
    }

    /// Rolls back a change that forwards no frames yet, and the later changes that depend on its objects. Later changes that only
    /// wait for one of these are planned again.
    fn roll_back(
        &mut self,
        id: ChangeId,
        switch: SwitchId,
        reason: &str,
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
        let reason = format!("switch {switch} refuses the change: {reason}");
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
