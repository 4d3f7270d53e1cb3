//! The gate before a flip: a change whose entries all switches have confirmed waits for its verification.
//!
//! ```text
//!   planned --all switches confirmed--> asked --passed--> staged
//!                                         |--violation--> rolled_back
//!                                         \--too late---> rolled_back
//! ```
//! Of two changes of which one alters what the verification of the other one reads, the later one is asked about when the
//! earlier one has flipped or is rolled back: between, switches that have flipped and switches that have not would be
//! compared with an exchange that none of them has.
//!
//! No frame follows the entries of the change yet. The traffic is therefore not affected, whatever the verification says.

use std::collections::BTreeMap;

use millrace_types::Time;

use crate::SwitchId;
use crate::change::{ChangeId, Phase, Verification};
use crate::content::{Delta, Entries};
use crate::engine::Engine;
use crate::event::Action;

impl<E: Entries> Engine<E> {
    /// Returns true if a planned change may flip. The first call asks for its verification.
    pub(crate) fn is_verified(&mut self, id: ChangeId, now: Time, actions: &mut Vec<Action<E>>) -> bool {
        let Some(max) = self.settings.verification else {
            return true;
        };
        let Some(change) = self.changes.get(&id) else {
            return false;
        };
        let is_open = matches!(change.verification, Verification::Open);
        if is_open
            && self
                .changes
                .values()
                .any(|other| other.holds_back(&change.order.scope))
        {
            return false;
        }
        let Some(change) = self.changes.get_mut(&id) else {
            return false;
        };
        match change.verification {
            Verification::Passed => return true,
            Verification::Open => {
                change.verification = Verification::Asked(now);
                let copy = |deltas: &BTreeMap<SwitchId, Delta<E>>| -> BTreeMap<SwitchId, Delta<E>> {
                    let deltas = deltas.iter();
                    deltas.map(|(switch, delta)| (*switch, delta.clone())).collect()
                };
                actions.push(Action::Verify {
                    change: id,
                    flip: copy(&change.order.flip),
                    clean: copy(&change.order.clean),
                });
            }
            Verification::Asked(since) if now >= since + max => {
                let reason = format!(
                    "the verification of the change has not ended within {} s; the switches forward as before: order it again",
                    max.as_secs()
                );
                self.roll_back(id, reason, now, actions);
            }
            Verification::Asked(_) => {}
        }
        false
    }

    /// Continues or rolls back a change whose verification has ended. A change that does not wait for one is left alone.
    pub(crate) fn verified(
        &mut self,
        id: ChangeId,
        result: Result<(), String>,
        now: Time,
        actions: &mut Vec<Action<E>>,
    ) {
        let Some(change) = self.changes.get_mut(&id) else {
            return;
        };
        if change.phase != Phase::Planned || !matches!(change.verification, Verification::Asked(_)) {
            return;
        }
        match result {
            Ok(()) => change.verification = Verification::Passed,
            Err(reason) => {
                let reason = format!("the verification refuses the change: {reason}");
                self.roll_back(id, reason, now, actions);
            }
        }
    }
}
