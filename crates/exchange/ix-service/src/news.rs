//! Events for subscribers, and the engine's notices in words.

use std::sync::Arc;

use millrace_ix_engine::Notice;
use millrace_ix_model::{Applied, SwitchId};
use millrace_ix_store::Revision;

use crate::core::Core;
use crate::event::{EventKind, ServiceEvent};
use crate::fabric::FabricKey;
use crate::now::Now;
use crate::output::Output;

/// The number of drifted entries that a notice names.
const DRIFT_NAMED: usize = 5;

impl Core {
    /// Publishes a notice of the engine.
    pub(crate) fn notify(&mut self, notice: &Notice<FabricKey>, now: Now) {
        let (text, switch, change) = match notice {
            Notice::Foreign {
                switch,
                entries,
                removed,
            } => {
                let first = entries
                    .first()
                    .map_or_else(String::new, |key| format!(", such as {key:?}"));
                let end = if *removed {
                    "they are removed"
                } else {
                    "they are left"
                };
                (
                    format!("{} entries are not the exchange's{first}: {end}", entries.len()),
                    Some(*switch),
                    None,
                )
            }
            Notice::Drift {
                switch,
                entries,
                examples,
                by_another,
            } => {
                let found = self.note_drift(SwitchId(*switch), (*entries, examples), *by_another, now);
                let named: Vec<String> = found.iter().take(DRIFT_NAMED).map(ToString::to_string).collect();
                let whose = if *by_another && !named.is_empty() {
                    ", changed by somebody else,"
                } else {
                    ""
                };
                let colon = if named.is_empty() { "" } else { ": " };
                let text = format!(
                    "{entries} entries differ from the plan{whose} and are mended{colon}{}",
                    named.join("; ")
                );
                (text, Some(*switch), None)
            }
            Notice::InSync { switch } => ("the switch equals the plan".to_owned(), Some(*switch), None),
            Notice::DumpFailed { switch, reason } => (
                format!("the listing failed, nothing is concluded from it: {reason}"),
                Some(*switch),
                None,
            ),
            Notice::Waiting { change, switches } => {
                let names: Vec<String> = switches
                    .iter()
                    .map(|switch| SwitchId(*switch).to_string())
                    .collect();
                (
                    format!("change {change} waits: {} does not answer", names.join(", ")),
                    None,
                    Some(*change),
                )
            }
            Notice::Stuck {
                switch,
                change,
                reason,
            } => {
                if let Some(open) = change.and_then(|id| self.open.get_mut(&id)) {
                    open.stuck = Some(reason.clone());
                }
                let text = format!("the switch refuses what must be, and is asked again: {reason}");
                (text, Some(*switch), *change)
            }
            Notice::ReadOnly { switch, theirs, ours } => {
                self.tell(EventKind::Mode { read_only: true }, now);
                let text = format!(
                    "the switch has entries of revision {theirs}, and this database has written none beyond {ours}: nothing is sent until an \
                     operator chooses adopt or enforce"
                );
                (text, Some(*switch), None)
            }
        };
        let switch = switch.map(SwitchId);
        match switch {
            Some(switch) => tracing::info!(%switch, "{text}"),
            None => tracing::info!("{text}"),
        }
        if let Some(switch) = switch {
            self.tell(EventKind::Switch { switch }, now);
        }
        self.tell(EventKind::Notice { text, switch, change }, now);
    }

    /// Publishes an event for each object that a transaction with this revision has written or deleted.
    pub(crate) fn tell_objects(&mut self, applied: &Applied, revision: Revision, now: Now) {
        let written = applied
            .created
            .iter()
            .chain(&applied.changed)
            .map(|id| (*id, false));
        let events: Vec<_> = written
            .chain(applied.deleted.iter().map(|id| (*id, true)))
            .collect();
        for (id, deleted) in events {
            self.tell(
                EventKind::Object {
                    id,
                    revision,
                    deleted,
                },
                now,
            );
        }
    }

    /// Publishes an event.
    pub(crate) fn tell(&mut self, kind: EventKind, now: Now) {
        self.serial += 1;
        self.changed = true;
        self.outputs.push(Output::Event(ServiceEvent {
            serial: self.serial,
            at: now.wall,
            before: Arc::clone(&self.before),
            kind,
        }));
    }
}
