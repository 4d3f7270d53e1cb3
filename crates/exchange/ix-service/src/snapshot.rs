//! A consistent view of the exchange for readers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

use millrace_ix_engine::{ChangeStatus, Mode, SwitchStatus};
use millrace_ix_model::path::{Contracts, Topology, contracts_of};
use millrace_ix_model::state::{Checklist, CommercialState, ConsentState, Realisation, ServiceState, shown};
use millrace_ix_model::{
    ConfigId, Consent, Exchange, ObjectId, PortId, Reason, Service, ServiceId, ServiceKind, SwitchId, Trunk,
    TrunkId, reason,
};
use millrace_ix_store::{Leader, Revision, UnixMillis};
use millrace_types::Duration;

use crate::core::Core;
use crate::decision::Unconfirmed;
use crate::drift::DriftFindings;
use crate::links::{PortStates, trunk_up};
use crate::quarantine::Quarantined;
use crate::revisions::Revisions;

/// The exchange at one moment.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// All objects.
    pub exchange: Arc<Exchange>,
    /// The revision of the newest transaction.
    pub revision: Revision,
    /// The revision of each object: its ETag.
    pub revisions: Revisions,
    /// The changes under way, oldest first.
    pub changes: Vec<ChangeStatus>,
    /// The objects that each change under way writes.
    pub change_objects: BTreeMap<u64, Vec<ObjectId>>,
    /// The errors of switches that refuse the present step of a change, by change.
    pub stuck: BTreeMap<u64, String>,
    /// The changes that are undone unless somebody confirms them.
    pub unconfirmed: Arc<BTreeMap<u64, Unconfirmed>>,
    /// The state of each switch.
    pub switches: BTreeMap<SwitchId, SwitchStatus>,
    /// The states of the ports of connected switches. The state of an absent port is not known.
    pub ports: Arc<PortStates>,
    /// The checklists of ends in quarantine. An absent end has sent nothing yet.
    pub quarantine: Arc<BTreeMap<ConfigId, Quarantined>>,
    /// The times of the engine's probes there and back over trunks, with the paths to and from both switches.
    pub round_trips: BTreeMap<TrunkId, Duration>,
    /// The drift of switches that comparisons have found since the start.
    pub drift_findings: Arc<DriftFindings>,
    /// The mode of the engine.
    pub mode: Mode,
    /// The reason why the last write to the database failed; `None` if it succeeded.
    pub unwritable: Option<String>,
    /// The engine that leads, if this one follows: it accepts nothing, and is connected to no switch.
    pub follows: Option<Leader>,
    /// The time since which the database has not answered; `None` if it answers. What a follower shows is as old.
    pub silent_since: Option<UnixMillis>,
    /// The serial number of the newest event.
    pub serial: u64,
    /// The contracted rates between switches, computed at their first use.
    contracts: Arc<OnceLock<Contracts>>,
}

impl Snapshot {
    /// Returns the snapshot of this moment.
    pub fn of(core: &Core) -> Snapshot {
        let objects = |change: &crate::open::OpenChange| change.redo.objects.keys().copied().collect();
        Snapshot {
            exchange: Arc::clone(&core.exchange),
            revision: core.revision,
            revisions: core.revisions.clone(),
            changes: core.engine.changes().collect(),
            change_objects: core
                .open
                .iter()
                .map(|(id, change)| (*id, objects(change)))
                .collect(),
            stuck: core
                .open
                .iter()
                .filter_map(|(id, change)| Some((*id, change.stuck.clone()?)))
                .collect(),
            unconfirmed: Arc::clone(&core.unconfirmed),
            switches: core.switches(),
            ports: Arc::clone(&core.ports),
            quarantine: Arc::clone(&core.checklists),
            round_trips: core.round_trips(),
            drift_findings: Arc::clone(&core.drift_findings),
            contracts: Arc::default(),
            mode: core.engine.mode(),
            unwritable: core.unwritable.clone(),
            follows: core.follows.clone(),
            silent_since: core.silent_since,
            serial: core.serial,
        }
    }

    /// Returns the state of a service as pages and the API show it.
    pub fn shown(&self, id: ServiceId) -> Option<ServiceState> {
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
                match self.degradation(id, service) {
                    Some(reason) => Realisation::Degraded(reason),
                    None => Realisation::InPlace {
                        generation: service.generation,
                    },
                }
            }
            (false, false, _) => Realisation::Planned,
        }
    }

    /// Returns true if a port has a link and is live; `None` if its state is not known.
    pub fn is_up(&self, port: PortId) -> Option<bool> {
        self.ports.get(&port).map(|state| state.is_up())
    }

    /// Returns true if both ends of a trunk are up; `None` if the state is not known.
    pub fn trunk_up(&self, trunk: TrunkId) -> Option<bool> {
        trunk_up(&self.ports, self.exchange.trunks.get(&trunk)?.ends)
    }

    /// Returns the reason why some frames of a service that is in place are not forwarded, in words.
    fn degradation(&self, id: ServiceId, service: &Service) -> Option<Reason> {
        let mut switches = BTreeSet::new();
        for (_, config) in self.exchange.ends(id) {
            let connection = self.exchange.connections.get(&config.connection)?;
            let is_down = |port: &PortId| self.is_up(*port) == Some(false);
            if service.kind != ServiceKind::ExchangeLan
                && !connection.ports.is_empty()
                && connection.ports.iter().all(is_down)
            {
                return Some(reason::link_down(&connection.name));
            }
            switches.extend(connection.ports.first().map(|port| port.switch));
        }
        let topology = Topology::of(&self.exchange);
        let name = |switch: SwitchId| {
            let found = self.exchange.switches.get(&switch);
            found.map_or_else(|| switch.to_string(), |switch| switch.name.clone())
        };
        for from in &switches {
            for to in switches.range(..from) {
                let path = match service.kind {
                    ServiceKind::P2pVc => service.path(*from, *to),
                    _ => vec![*from, *to],
                };
                for pair in path.windows(2) {
                    let trunks = topology.trunks(pair[0], pair[1]);
                    let carrier = trunks.iter().find(|(id, _)| self.trunk_up(*id) != Some(false));
                    let (one, two) = (name(pair[0]), name(pair[1]));
                    let Some((_, carrier)) = carrier else {
                        return Some(reason::trunks_down(&one, &two));
                    };
                    if let Some((contracted, max)) = self.is_oversold(carrier, pair[0], pair[1]) {
                        return Some(reason::trunk_oversold(&carrier.name, &one, &two, max, contracted));
                    }
                }
            }
        }
        None
    }

    /// Returns the contracted rate between two switches and the rate that a trunk admits, if the first is greater.
    fn is_oversold(&self, carrier: &Trunk, one: SwitchId, two: SwitchId) -> Option<(u64, u64)> {
        let contracts = self.contracts.get_or_init(|| contracts_of(&self.exchange));
        let rate = |from, to| contracts.get(&(from, to)).copied().unwrap_or_default();
        let contracted = rate(one, two).max(rate(two, one));
        (contracted > carrier.contracts_max()).then(|| (contracted, carrier.contracts_max()))
    }
}
