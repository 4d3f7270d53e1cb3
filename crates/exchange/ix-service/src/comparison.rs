//! The drift that comparisons of switches with the plan find.
//!
//! A comparison that finds drift is kept as a [`DriftFinding`] until newer ones push it out: the engine mends most drift
//! within seconds, and an operator who looks later still learns what somebody else has changed.

use std::collections::VecDeque;
use std::sync::Arc;

use millrace_ix_engine::{Drifted, SyncState};
use millrace_ix_model::{ConfigId, FilterId, SwitchId};
use millrace_ix_plan::layout::{CookieFields, CookieKind};

use crate::core::Core;
use crate::drift::{DriftFinding, DriftedEntry, EntryOwner, SwitchDrift};
use crate::event::EventKind;
use crate::fabric::{Entry, FabricKey};
use crate::now::Now;

/// The number of findings that are kept for each switch.
const FINDINGS_MAX: usize = 20;

impl Core {
    /// Returns the entries of a switch that differ from the plan now, of which at most `limit` are named.
    pub fn drift(&self, switch: SwitchId, limit: usize) -> SwitchDrift {
        let named = self.engine.drifted(switch.0).take(limit);
        SwitchDrift {
            total: self.engine.drifted(switch.0).count(),
            entries: named
                .map(|drifted| self.drifted_entry(switch, &drifted))
                .collect(),
        }
    }

    /// Returns an entry that differs from the plan, with the object to which it belongs.
    fn drifted_entry(&self, switch: SwitchId, drifted: &Drifted<FabricKey>) -> DriftedEntry {
        let intended = self.engine.intended(switch.0);
        let intended = intended.and_then(|content| content.get(&drifted.key));
        let differing = self.engine.differing(switch.0);
        let differing = differing.and_then(|differs| differs.get(&drifted.key)?.as_ref());
        DriftedEntry {
            key: drifted.key.clone(),
            owner: intended.or(differing).and_then(|entry| self.owner_of(entry)),
            drift: drifted.drift,
        }
    }

    /// Returns the object to which a flow entry belongs, by its cookie; `None` for foreign entries, groups and meters.
    fn owner_of(&self, entry: &Entry) -> Option<EntryOwner> {
        let Entry::Flow(flow) = entry else {
            return None;
        };
        let fields = CookieFields::from_cookie(flow.cookie)?;
        let exchange = &self.exchange;
        match fields.kind {
            CookieKind::Service | CookieKind::Drop => {
                let mut services = exchange.services.iter();
                let (id, found) = services.find(|(_, service)| service.index.raw() == fields.object)?;
                Some(EntryOwner::Service {
                    id: *id,
                    name: found.name.clone(),
                })
            }
            CookieKind::End | CookieKind::Police | CookieKind::Egress => {
                let id = ConfigId(fields.object);
                let connection = exchange.connections.get(&exchange.configs.get(&id)?.connection)?;
                Some(EntryOwner::End {
                    id,
                    connection: connection.name.clone(),
                })
            }
            CookieKind::Filter => {
                let id = FilterId(fields.object);
                let account = exchange.accounts.get(&exchange.filters.get(&id)?.account)?;
                Some(EntryOwner::Filter {
                    id,
                    account: account.name.clone(),
                })
            }
            CookieKind::Base | CookieKind::UnassignedFrames | CookieKind::Probe => Some(EntryOwner::Base),
        }
    }

    /// Keeps what a comparison has found, and returns the named entries. Differences of changes in progress alone are no drift.
    pub(crate) fn note_drift(
        &mut self,
        switch: SwitchId,
        (entries, examples): (usize, &[Drifted<FabricKey>]),
        by_another: bool,
        now: Now,
    ) -> Vec<DriftedEntry> {
        let named: Vec<DriftedEntry> = examples
            .iter()
            .map(|drifted| self.drifted_entry(switch, drifted))
            .collect();
        if !named.is_empty() {
            let findings = Arc::make_mut(&mut self.drift_findings).entry(switch).or_default();
            findings.truncate(FINDINGS_MAX - 1);
            findings.push_front(DriftFinding {
                found_at: now.wall,
                entries,
                by_another,
                named: named.clone(),
                mended_at: None,
            });
        }
        named
    }

    /// Notes the time for findings of switches that equal the plan again.
    pub(crate) fn note_mended(&mut self, now: Now) {
        let is_open =
            |findings: &VecDeque<DriftFinding>| findings.iter().any(|finding| finding.mended_at.is_none());
        let open = self
            .drift_findings
            .iter()
            .filter(|(_, findings)| is_open(findings));
        let open: Vec<SwitchId> = open.map(|(switch, _)| *switch).collect();
        for switch in open {
            let mut switches = self.engine.switches();
            let status = switches.find(|(number, _)| *number == switch.0);
            let equals = status.is_some_and(|(_, status)| status.state == SyncState::Known { differing: 0 });
            drop(switches);
            if !equals {
                continue;
            }
            let findings = Arc::make_mut(&mut self.drift_findings).entry(switch).or_default();
            for finding in findings {
                finding.mended_at.get_or_insert(now.wall);
            }
            self.tell(EventKind::Switch { switch }, now);
        }
    }
}
