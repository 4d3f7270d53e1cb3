//! Reconciliation: dumps are compared with what is intended, and an operator decides about content that is newer than the
//! database.

use millrace_types::Time;

use crate::SwitchId;
use crate::content::{Content, Entries};
use crate::engine::Engine;
use crate::event::{Action, EXAMPLES_MAX, Mode, Notice, Resolution};
use crate::settings::ForeignPolicy;
use crate::switch::Session;

impl<E: Entries> Engine<E> {
    /// Compares a dump with the intended content.
    pub(crate) fn dumped(
        &mut self,
        switch: SwitchId,
        session: Session,
        content: Result<Content<E>, String>,
        now: Time,
        actions: &mut Vec<Action<E>>,
    ) {
        let mut next = now + self.jittered(self.settings.resync);
        let foreign_next = now + self.settings.foreign_resync_min;
        let (retry, known_revision, adopted) = (self.settings.retry, self.known_revision, self.adopted);
        let leaves_foreign = self.settings.foreign == ForeignPolicy::Leave;
        let Some(entry) = self.connected(switch, session) else {
            return;
        };
        entry.heard = now;
        if entry.dumping.as_ref().is_some_and(|dumping| dumping.is_invalid) {
            // A new dump is needed.
            entry.dumping = None;
            return;
        }
        if entry.dumping.as_ref().is_some_and(|dumping| dumping.is_outdated) {
            next = next.min(foreign_next);
        }
        let content = match content {
            Ok(content) => content,
            Err(reason) => {
                entry.dumping = None;
                entry.next_dump = now + retry;
                actions.push(Action::Notify(Notice::DumpFailed { switch, reason }));
                return;
            }
        };
        let theirs = content
            .iter()
            .filter_map(|(key, value)| E::revision(key, value))
            .max()
            .unwrap_or(0);
        let ours = known_revision.max(entry.marked);
        let was_known = entry.known;
        let keep = |key: &E::Key, value: &E::Value| adopted || (leaves_foreign && !E::is_ours(key, value));
        let unexpected = entry.compare(&content, keep);
        let is_foreign = |key: &&E::Key| content.get(*key).is_some_and(|value| !E::is_ours(key, value));
        let foreign: Vec<E::Key> = unexpected.iter().filter(is_foreign).cloned().collect();
        entry.last_dump = Some(now);
        entry.next_dump = next;
        entry.foreign = foreign.iter().cloned().collect();
        let differing = entry.differs.len();
        let examples = entry.drifted().take(EXAMPLES_MAX).collect();
        if !foreign.is_empty() {
            let removed = !adopted && !leaves_foreign;
            actions.push(Action::Notify(Notice::Foreign {
                switch,
                entries: foreign,
                removed,
            }));
        }
        if theirs > ours {
            // An operator decides once, about the newest marker of all switches.
            if !matches!(self.mode, Mode::ReadOnly { theirs: newest, .. } if newest >= theirs) {
                self.mode = Mode::ReadOnly { switch, theirs, ours };
                actions.push(Action::Notify(Notice::ReadOnly { switch, theirs, ours }));
            }
        } else if differing > 0 {
            actions.push(Action::Notify(Notice::Drift {
                switch,
                entries: differing,
                examples,
                by_another: was_known,
            }));
        } else if !was_known {
            actions.push(Action::Notify(Notice::InSync { switch }));
        }
    }

    /// Executes an operator's decision: in read-only mode, or [`Resolution::Enforce`] after an earlier
    /// [`Resolution::Adopt`].
    pub(crate) fn resolved(&mut self, resolution: Resolution) {
        if let Mode::ReadOnly { theirs, .. } = self.mode {
            self.mode = Mode::Normal;
            self.revision = self.revision.max(theirs);
            self.known_revision = self.known_revision.max(theirs);
            for entry in self.switches.values_mut() {
                entry.forget();
                entry.dump_wanted = true;
            }
        } else if !self.adopted || resolution == Resolution::Adopt {
            return;
        }
        self.adopted = resolution == Resolution::Adopt;
        self.swept = false;
        if self.adopted {
            return;
        }
        let leaves_foreign = self.settings.foreign == ForeignPolicy::Leave;
        for entry in self.switches.values_mut() {
            entry.keep_only(|key, value| leaves_foreign && !E::is_ours(key, value));
        }
    }
}
