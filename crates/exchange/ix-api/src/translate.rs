//! Conversion of the engine's events and states to those of this crate.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use millrace_ix_engine::{Mode, SwitchStatus, SyncState};
use millrace_ix_model::{Exchange, ObjectId, PortId, ServiceId, ServiceKind, SwitchId};
use millrace_ix_service::{EventKind, ServiceEvent};

use crate::service::{Event, SwitchState};

/// Converts an event of the engine to an event of this crate.
pub(crate) fn translate(event: &ServiceEvent, exchange: &Exchange) -> Event {
    let (kind, objects, change) = match &event.kind {
        EventKind::Object { id, .. } => ("object", vec![*id], None),
        EventKind::Change { change, objects, .. } => ("change", objects.clone(), Some(*change)),
        EventKind::Switch { switch } => ("switch", vec![ObjectId::from(*switch)], None),
        EventKind::Port { port, .. } => ("switch", concerned_by_port(exchange, *port), None),
        EventKind::Notice { switch, change, .. } => (
            "notice",
            switch.iter().map(|id| ObjectId::from(*id)).collect(),
            *change,
        ),
        EventKind::Mode { .. } => ("mode", Vec::new(), None),
    };
    Event {
        kind,
        objects,
        change,
        before: Arc::clone(&event.before),
    }
}

/// Returns the state of a switch, and a note about it in words. A switch that differs from the plan only by
/// foreign entries that the engine keeps is in sync; the note has the number of these entries.
pub(crate) fn switch_state(status: &SwitchStatus, mode: Mode) -> (SwitchState, Option<String>) {
    match (status.state, mode) {
        (SyncState::Disconnected, _) => (SwitchState::Unreachable, None),
        (SyncState::Unknown, _) => (SwitchState::Syncing, None),
        (SyncState::Known { differing: 0 }, _) => {
            let kept =
                (status.foreign > 0).then(|| format!("foreign entries, which are kept: {}", status.foreign));
            (SwitchState::InSync, kept)
        }
        (SyncState::Known { .. }, Mode::Normal) => (SwitchState::Syncing, None),
        (SyncState::Known { differing }, Mode::ReadOnly { .. }) => {
            let note = format!(
                "{differing} entries differ, and the engine sends nothing: run `millrace-ix adopt` or `millrace-ix enforce`"
            );
            (SwitchState::Drifted, Some(note))
        }
    }
}

/// Returns the objects whose state may change with a port: its switch, the connections and trunks that use it,
/// the circuits over these connections, and the services over these trunks. Both parties of a circuit see it
/// degraded.
pub(crate) fn concerned_by_port(exchange: &Exchange, port: PortId) -> Vec<ObjectId> {
    let mut objects = vec![ObjectId::from(port.switch)];
    let connections = exchange.connections.iter();
    let connections: BTreeSet<_> = connections
        .filter(|(_, connection)| connection.ports.contains(&port))
        .map(|(id, _)| *id)
        .collect();
    let trunks = exchange.trunks.iter();
    let trunks: Vec<_> = trunks.filter(|(_, trunk)| trunk.ends.contains(&port)).collect();
    let is_circuit = |id| {
        let service = exchange.services.get(id);
        service.is_some_and(|service| service.kind != ServiceKind::ExchangeLan)
    };
    let ends = exchange.configs.values();
    let mut services: BTreeSet<_> = ends
        .filter(|end| connections.contains(&end.connection) && is_circuit(&end.service))
        .map(|end| end.service)
        .collect();
    for (_, trunk) in &trunks {
        services.extend(services_between(exchange, trunk.ends.map(|end| end.switch)));
    }
    objects.extend(trunks.into_iter().map(|(id, _)| ObjectId::from(*id)));
    objects.extend(connections.into_iter().map(ObjectId::from));
    objects.extend(services.into_iter().map(ObjectId::from));
    objects
}

/// Returns the services whose frames cross from one switch to the other over a trunk.
fn services_between(exchange: &Exchange, [one, two]: [SwitchId; 2]) -> impl Iterator<Item = ServiceId> {
    let mut switches: BTreeMap<ServiceId, BTreeSet<SwitchId>> = BTreeMap::new();
    for end in exchange.configs.values() {
        let connection = exchange.connections.get(&end.connection);
        let port = connection.and_then(|connection| connection.ports.first());
        switches
            .entry(end.service)
            .or_default()
            .extend(port.map(|port| port.switch));
    }
    let crosses = move |id: &ServiceId, switches: &BTreeSet<SwitchId>| {
        exchange
            .services
            .get(id)
            .is_some_and(|service| match service.kind {
                ServiceKind::P2pVc => switches.iter().any(|from| {
                    switches.range(..from).any(|to| {
                        let path = service.path(*from, *to);
                        path.windows(2)
                            .any(|pair| pair == [one, two] || pair == [two, one])
                    })
                }),
                _ => switches.contains(&one) && switches.contains(&two),
            })
    };
    switches
        .into_iter()
        .filter(move |(id, switches)| crosses(id, switches))
        .map(|(id, _)| id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_switch_with_kept_foreign_entries_is_in_sync_and_says_how_many_it_has() {
        let read_only = Mode::ReadOnly {
            switch: 1,
            theirs: 2,
            ours: 1,
        };
        let state = |differing, foreign, mode| {
            let status = SwitchStatus {
                state: SyncState::Known { differing },
                entries: 10,
                foreign,
                last_dump: None,
            };
            switch_state(&status, mode)
        };
        let (kept, note) = state(0, 3, Mode::Normal);
        assert_eq!(kept, SwitchState::InSync);
        assert!(note.is_some_and(|note| note.contains('3')));
        assert_eq!(state(0, 0, Mode::Normal), (SwitchState::InSync, None));
        // Foreign entries that are being removed differ from the plan.
        assert_eq!(state(3, 3, Mode::Normal), (SwitchState::Syncing, None));
        assert_eq!(state(3, 3, read_only).0, SwitchState::Drifted);
        assert_eq!(state(0, 0, read_only), (SwitchState::InSync, None));
    }

    #[test]
    fn a_port_concerns_its_connection_with_the_circuits_over_it_and_its_trunk() {
        let exchange = crate::demo::demo().unwrap();
        let (id, connection) = exchange
            .connections
            .iter()
            .find(|(_, connection)| connection.name == "aoba-tokyo")
            .unwrap();
        let objects = concerned_by_port(&exchange, connection.ports[0]);
        assert!(objects.contains(&ObjectId::from(connection.ports[0].switch)));
        assert!(objects.contains(&ObjectId::from(*id)));
        let of_others = |object: &&ObjectId| matches!(object, ObjectId::Connection(other) if other != id);
        assert_eq!(objects.iter().find(of_others), None);
        for object in &objects {
            if let ObjectId::Service(service) = object {
                assert!(exchange.ends(*service).any(|(_, end)| end.connection == *id));
                assert_ne!(exchange.services[service].kind, ServiceKind::ExchangeLan);
            }
        }
        assert!(
            objects
                .iter()
                .any(|object| matches!(object, ObjectId::Service(_)))
        );
        let (id, trunk) = exchange.trunks.iter().next().unwrap();
        let objects = concerned_by_port(&exchange, trunk.ends[1]);
        assert_eq!(
            objects[..2],
            [ObjectId::from(trunk.ends[1].switch), ObjectId::from(*id)]
        );
        let switches: BTreeSet<_> = trunk.ends.iter().map(|end| end.switch).collect();
        let is_across = |id: ServiceId| {
            let ends = exchange.ends(id);
            let ports = ends.map(|(_, end)| exchange.connections[&end.connection].ports[0]);
            ports.map(|port| port.switch).collect::<BTreeSet<_>>() == switches
        };
        let kinds = [ServiceKind::P2pVc, ServiceKind::ExchangeLan];
        for (id, service) in &exchange.services {
            let is_named = objects.contains(&ObjectId::from(*id));
            assert_eq!(is_named, is_across(*id), "{id} {}", service.name);
        }
        for kind in kinds {
            let is_named = |(id, service): (&ServiceId, &millrace_ix_model::Service)| {
                service.kind == kind && objects.contains(&ObjectId::from(*id))
            };
            assert!(exchange.services.iter().any(is_named), "{kind:?}");
        }
    }
}
