//! A consistent view of the exchange for readers.

use std::collections::BTreeMap;
use std::sync::Arc;

use millrace_ix_engine::{ChangeStatus, Mode, SwitchStatus};
use millrace_ix_model::state::{Checklist, CommercialState, ConsentState, Realisation, Shown, shown};
use millrace_ix_model::{Consent, Exchange, ObjectId, ServiceId, ServiceKind, SwitchId};
use millrace_ix_store::Revision;

use crate::core::Core;

/// The exchange at one moment.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// All objects.
    pub exchange: Arc<Exchange>,
    /// The revision of the newest transaction.
    pub revision: Revision,
    /// The revision of each object: its ETag.
    pub revisions: Arc<BTreeMap<ObjectId, Revision>>,
    /// The changes under way, oldest first.
    pub changes: Vec<ChangeStatus>,
    /// The objects that each change under way writes.
    pub change_objects: BTreeMap<u64, Vec<ObjectId>>,
    /// The state of each switch.
    pub switches: BTreeMap<SwitchId, SwitchStatus>,
    /// The mode of the engine.
    pub mode: Mode,
    /// The serial number of the newest event.
    pub serial: u64,
}

impl Snapshot {
    /// Returns the snapshot of this moment.
    pub fn of(core: &Core) -> Snapshot {
        let objects = |change: &crate::open::OpenChange| change.redo.objects.keys().copied().collect();
        Snapshot {
            exchange: Arc::clone(&core.exchange),
            revision: core.revision,
            revisions: Arc::clone(&core.revisions),
            changes: core.engine.changes().collect(),
            change_objects: core
                .open
                .iter()
                .map(|(id, change)| (*id, objects(change)))
                .collect(),
            switches: core.switches(),
            mode: core.engine.mode(),
            serial: core.serial,
        }
    }

    /// Returns the state of a service that people see.
    pub fn shown(&self, id: ServiceId) -> Option<Shown> {
        let service = self.exchange.services.get(&id)?;
        let has_both_ends = service.kind != ServiceKind::P2pVc || self.exchange.ends(id).count() >= 2;
        let consent = match &service.consent {
            Consent::Refused { .. } => ConsentState::Refused,
            Consent::Pending => ConsentState::Pending,
            Consent::NotNeeded | Consent::Accepted if !has_both_ends => ConsentState::Pending,
            Consent::NotNeeded | Consent::Accepted => ConsentState::Given,
        };
        Some(shown(
            service.state,
            &self.realisation(id),
            consent,
            &Checklist::NotNeeded,
        ))
    }

    /// Returns the realisation of a service in the switches.
    pub fn realisation(&self, id: ServiceId) -> Realisation {
        let Some(service) = self.exchange.services.get(&id) else {
            return Realisation::Gone;
        };
        let is_ending = service.state == CommercialState::DecommissionRequested;
        let concerns = |object: &ObjectId| match object {
            ObjectId::Service(other) => *other == id,
            ObjectId::Config(config) => self
                .exchange
                .configs
                .get(config)
                .is_some_and(|config| config.service == id),
            _ => false,
        };
        let is_changing = self.change_objects.values().flatten().any(concerns);
        match (is_ending, is_changing, service.state) {
            (true, ..) => Realisation::Removing,
            (false, true, _) => Realisation::Installing {
                generation: service.generation,
            },
            (false, false, CommercialState::Production | CommercialState::ProductionChangePending) => {
                Realisation::InPlace {
                    generation: service.generation,
                }
            }
            (false, false, _) => Realisation::Planned,
        }
    }
}
