//! Orders of the exchange's inventory: sites, switches, trunks, and the connections that are patched to ports.

use std::collections::BTreeSet;

use millrace_types::Dpid;

use super::{Order, Outcome};
use crate::exchange::ObjectId;
use crate::fabric::{PortId, Site, Switch, SwitchPort, TRUNK_MTU_MIN, Trunk};
use crate::id::{ConnectionId, SiteId, SwitchId, TrunkId};
use crate::operation::Operation;
use crate::reason;
use crate::refusal::{Refusal, RefusalCode};
use crate::service::{Connection, ConnectionKind};

/// The maximum number of ports of a LAG (IEEE 802.1AX sets no limit; members' hardware supports eight).
const LAG_PORTS_MAX: usize = 8;

impl Order<'_> {
    pub(super) fn fabric(&mut self, operation: Operation) -> Outcome {
        let kind = operation.kind();
        match operation {
            Operation::CreateSite { name } => {
                self.check_exchange(kind)?;
                self.check_name::<SiteId>(None, &name, |site| &site.name, |_| true)?;
                self.draft.create::<SiteId>(Site { name });
                Ok(())
            }
            Operation::CreateSwitch {
                name,
                site,
                dpid,
                ports,
            } => {
                self.check_exchange(kind)?;
                self.check_name::<SwitchId>(None, &name, |switch| &switch.name, |_| true)?;
                self.object(site)?;
                self.check_dpid(None, dpid)?;
                let ports = in_order(ports)?;
                let group = self.new_group()?;
                self.draft.create::<SwitchId>(Switch {
                    name,
                    site,
                    dpid,
                    group,
                    ports,
                    retired: false,
                });
                Ok(())
            }
            Operation::RetireSwitch { switch: id, retired } => {
                self.draft.check(self.actor, kind, id.into())?;
                let mut switch = self.object(id)?;
                switch.retired = retired;
                self.draft.put(id, switch);
                Ok(())
            }
            Operation::SetPorts { switch: id, ports } => {
                self.draft.check(self.actor, kind, id.into())?;
                let mut switch = self.object(id)?;
                switch.ports = in_order(ports)?;
                let used = self
                    .used_ports()
                    .into_iter()
                    .filter(|(port, _)| port.switch == id);
                for (port, user) in used {
                    if switch.port(port.port).is_none() {
                        let reason = reason::port_in_use(user, port);
                        return Err(Refusal::conflict(reason).field("ports").object(user));
                    }
                }
                self.draft.put(id, switch);
                Ok(())
            }
            Operation::CreateTrunk {
                name,
                kind: encapsulation,
                ends,
                cost,
                capacity_mbps,
                mtu,
                risk_group,
                contract_percent,
            } => {
                self.check_exchange(kind)?;
                let trunk = Trunk {
                    name,
                    kind: encapsulation,
                    ends,
                    cost,
                    capacity_mbps,
                    mtu,
                    risk_group,
                    drained: false,
                    contract_percent,
                };
                self.check_trunk(None, &trunk)?;
                self.draft.create::<TrunkId>(trunk);
                Ok(())
            }
            Operation::DrainTrunk { trunk: id, drained } => {
                self.draft.check(self.actor, kind, id.into())?;
                let mut trunk = self.object(id)?;
                trunk.drained = drained;
                self.draft.put(id, trunk);
                self.reroute(self.down)
            }
            Operation::CreateConnection {
                account,
                name,
                kind: link,
                ports,
                external_ref,
            } => {
                let account = self.account_or_own(account)?;
                self.draft.check_account(self.actor, kind, account)?;
                let of_account = |connection: &Connection| connection.account == account;
                self.check_name::<ConnectionId>(None, &name, |connection| &connection.name, of_account)?;
                self.check_external_ref::<ConnectionId>(external_ref.as_deref(), |connection| {
                    connection
                        .external_ref
                        .as_deref()
                        .filter(|_| of_account(connection))
                })?;
                self.check_link(None, link, &ports)?;
                let index = self.new_index()?;
                let group = match link {
                    ConnectionKind::Standalone | ConnectionKind::LagLacp => None,
                    ConnectionKind::LagStatic => Some(self.new_group()?),
                };
                self.draft.create::<ConnectionId>(Connection {
                    account,
                    name,
                    kind: link,
                    ports,
                    index,
                    group,
                    external_ref,
                    locked_by: None,
                });
                Ok(())
            }
            Operation::SetConnectionPorts {
                connection: id,
                kind: link,
                ports,
            } => {
                self.draft.check(self.actor, kind, id.into())?;
                self.check_link(Some(id), link, &ports)?;
                let mut connection = self.object(id)?;
                let moves_switch = self.draft.switch_of(id) != ports.first().map(|port| port.switch);
                connection.ports = ports;
                connection.kind = link;
                match (link, connection.group) {
                    (ConnectionKind::Standalone | ConnectionKind::LagLacp, Some(group)) => {
                        connection.group = None;
                        self.release(crate::service::PoolKind::Group, group.raw());
                    }
                    (ConnectionKind::LagStatic, None) => {
                        connection.group = Some(self.new_group()?);
                    }
                    _ => {}
                }
                self.draft.put(id, connection);
                let ends = self.draft.ends_on(id);
                let services: BTreeSet<_> = ends.map(|(_, config)| config.service).collect();
                for service in services {
                    if moves_switch {
                        self.renew_path(service, false)?;
                        self.check_leaves(service)?;
                    }
                    self.check_reach(service)?;
                    self.check_contracts(service)?;
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Checks that the actor may execute an operation on the exchange itself.
    pub(super) fn check_exchange(&self, kind: crate::operation::OperationKind) -> Outcome {
        if crate::permission::is_permitted(self.actor, kind, crate::permission::Relation::Foreign) {
            return Ok(());
        }
        Err(Refusal::new(RefusalCode::Forbidden, reason::staff_only()))
    }

    /// Refuses a datapath id that another switch than `id` has.
    pub(super) fn check_dpid(&self, id: Option<SwitchId>, dpid: Dpid) -> Outcome {
        let mut switches = self.draft.all::<SwitchId>();
        match switches.find(|(other, switch)| Some(*other) != id && switch.dpid == dpid) {
            None => Ok(()),
            Some((other, _)) => {
                let reason = reason::dpid_taken(other, dpid);
                Err(Refusal::conflict(reason).field("dpid").object(other))
            }
        }
    }

    /// Returns all ports in use, each with its user.
    fn used_ports(&self) -> Vec<(PortId, crate::exchange::ObjectId)> {
        let connections = self.draft.all::<ConnectionId>();
        let of_connections = connections
            .flat_map(|(id, connection)| connection.ports.iter().map(move |port| (*port, id.into())));
        let trunks = self.draft.all::<TrunkId>();
        let of_trunks = trunks.flat_map(|(id, trunk)| trunk.ends.iter().map(move |port| (*port, id.into())));
        of_connections.chain(of_trunks).collect()
    }

    /// Refuses ports that are absent or in use, except by `user`.
    pub(super) fn check_ports(&self, field: &str, ports: &[PortId], user: Option<ObjectId>) -> Outcome {
        let used = self.used_ports();
        for (at, port) in ports.iter().enumerate() {
            let exists = self
                .draft
                .find(port.switch)
                .is_some_and(|switch| switch.port(port.port).is_some());
            if !exists && ObjectId::from(port.switch).is_placeholder() {
                return Err(Refusal::invalid(field, reason::placeholder_empty(port.switch)));
            }
            if !exists {
                return Err(Refusal::invalid(field, reason::port_unknown(port)));
            }
            if ports[..at].contains(port) {
                return Err(Refusal::invalid(field, reason::port_twice(port)));
            }
            if let Some((_, other)) = used
                .iter()
                .find(|(taken, other)| taken == port && Some(*other) != user)
            {
                let reason = reason::port_taken(other, port);
                return Err(Refusal::conflict(reason).field(field).object(*other));
            }
        }
        Ok(())
    }

    pub(super) fn check_trunk(&self, id: Option<TrunkId>, trunk: &Trunk) -> Outcome {
        self.check_name::<TrunkId>(id, &trunk.name, |other| &other.name, |_| true)?;
        self.check_ports("ends", &trunk.ends, id.map(ObjectId::from))?;
        let [one, two] = trunk.ends;
        if one.switch == two.switch {
            return Err(Refusal::invalid("ends", reason::trunk_at_one_switch(one.switch)));
        }
        if trunk.mtu < TRUNK_MTU_MIN {
            return Err(Refusal::invalid(
                "mtu",
                reason::trunk_mtu(trunk.mtu, TRUNK_MTU_MIN),
            ));
        }
        if trunk.contract_percent == 0 {
            return Err(Refusal::invalid(
                "contract_percent",
                reason::contract_percent_min(),
            ));
        }
        if trunk.capacity_mbps == 0 {
            return Err(Refusal::invalid("capacity_mbps", reason::capacity_min()));
        }
        let pair = |other: &Trunk| {
            other
                .ends
                .iter()
                .all(|end| [one.switch, two.switch].contains(&end.switch))
        };
        let other = self
            .draft
            .all::<TrunkId>()
            .find(|(other_id, other)| Some(*other_id) != id && pair(other) && other.kind != trunk.kind);
        if let Some((other, _)) = other {
            let reason = reason::trunk_kinds_differ(other);
            return Err(Refusal::invalid("kind", reason).object(other));
        }
        Ok(())
    }

    fn check_link(&self, id: Option<ConnectionId>, kind: ConnectionKind, ports: &[PortId]) -> Outcome {
        self.check_ports("ports", ports, id.map(ObjectId::from))?;
        let Some(first) = ports.first() else {
            return Err(Refusal::invalid("ports", reason::ports_none()));
        };
        if kind == ConnectionKind::Standalone && ports.len() != 1 {
            return Err(Refusal::invalid(
                "ports",
                reason::ports_of_standalone(ports.len()),
            ));
        }
        // The switch speaks LACP for the members of such a port, which the exchange does not see.
        if kind == ConnectionKind::LagLacp && ports.len() != 1 {
            return Err(Refusal::invalid("ports", reason::ports_of_lacp(ports.len())));
        }
        if ports.len() > LAG_PORTS_MAX {
            return Err(Refusal::invalid(
                "ports",
                reason::ports_of_lag(LAG_PORTS_MAX, ports.len()),
            ));
        }
        if let Some(other) = ports.iter().find(|port| port.switch != first.switch) {
            return Err(Refusal::invalid("ports", reason::lag_over_switches(first, other)));
        }
        Ok(())
    }
}

/// Sorts ports by number. Refuses duplicate ports, ports without a speed, and reserved port numbers.
fn in_order(mut ports: Vec<SwitchPort>) -> Result<Vec<SwitchPort>, Refusal> {
    ports.sort_by_key(|port| port.number.raw());
    if let Some(pair) = ports.windows(2).find(|pair| pair[0].number == pair[1].number) {
        return Err(Refusal::invalid("ports", reason::port_twice(pair[0].number)));
    }
    match ports
        .iter()
        .find(|port| port.speed_mbps == 0 || !port.number.is_ordinary())
    {
        Some(port) => Err(Refusal::invalid("ports", reason::port_incomplete(port.number))),
        None => Ok(ports),
    }
}
