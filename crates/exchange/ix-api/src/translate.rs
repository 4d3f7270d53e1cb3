//! Conversion of the engine's events to the events of this crate.

use std::collections::BTreeSet;
use std::sync::Arc;

use millrace_ix_model::{Exchange, ObjectId, PortId, ServiceKind};
use millrace_ix_service::{EventKind, ServiceEvent};

use crate::service::Event;

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

/// Returns the objects that may change their state with a port: its switch, connections and trunks with the
/// port, and circuits over these connections, which both parties see degraded.
pub(crate) fn concerned_by_port(exchange: &Exchange, port: PortId) -> Vec<ObjectId> {
    let mut objects = vec![ObjectId::from(port.switch)];
    let connections = exchange.connections.iter();
    let connections: BTreeSet<_> = connections
        .filter(|(_, connection)| connection.ports.contains(&port))
        .map(|(id, _)| *id)
        .collect();
    let trunks = exchange.trunks.iter();
    let trunks = trunks.filter(|(_, trunk)| trunk.ends.contains(&port));
    let is_circuit = |id| {
        let service = exchange.services.get(id);
        service.is_some_and(|service| service.kind != ServiceKind::ExchangeLan)
    };
    let ends = exchange.configs.values();
    let services: BTreeSet<_> = ends
        .filter(|end| connections.contains(&end.connection) && is_circuit(&end.service))
        .map(|end| end.service)
        .collect();
    objects.extend(trunks.map(|(id, _)| ObjectId::from(*id)));
    objects.extend(connections.into_iter().map(ObjectId::from));
    objects.extend(services.into_iter().map(ObjectId::from));
    objects
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_concerns_its_connection_with_the_circuits_over_it_and_its_trunk() {
        let exchange = crate::fake::demo().unwrap();
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
            objects,
            [ObjectId::from(trunk.ends[1].switch), ObjectId::from(*id)]
        );
    }
}
