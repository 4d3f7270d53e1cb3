//! Changes of the inventory in place: a switch that replaces another one, a trunk with another cost or capacity, the
//! networks of a peering LAN.

use super::{Order, Outcome};
use crate::fabric::Trunk;
use crate::id::IpId;
use crate::operation::Operation;
use crate::path::Topology;
use crate::reason;
use crate::refusal::{Refusal, RefusalCode};
use crate::service::ServiceKind;

impl Order<'_> {
    pub(super) fn update(&mut self, operation: Operation) -> Outcome {
        let kind = operation.kind();
        match operation {
            Operation::UpdateSwitch {
                switch: id,
                site,
                dpid,
            } => {
                self.draft.check(self.actor, kind, id.into())?;
                let mut switch = self.object(id)?;
                if let Some(site) = site {
                    self.object(site)?;
                    switch.site = site;
                }
                if let Some(dpid) = dpid {
                    self.check_dpid(Some(id), dpid)?;
                    switch.dpid = dpid;
                }
                self.draft.put(id, switch);
                Ok(())
            }
            Operation::UpdateTrunk {
                trunk: id,
                ends,
                cost,
                capacity_mbps,
                mtu,
                risk_group,
                contract_percent,
            } => {
                self.draft.check(self.actor, kind, id.into())?;
                let before = self.object(id)?;
                let switches = |ends: &[crate::fabric::PortId; 2]| {
                    let [one, two] = ends.map(|end| end.switch);
                    (one.min(two), one.max(two))
                };
                if switches(&ends) != switches(&before.ends) {
                    let reason = format!(
                        "trunk {} joins {} and {}: expected ports of the same switches. Add a trunk between the others, and \
                         delete this one",
                        before.name, before.ends[0].switch, before.ends[1].switch
                    );
                    return Err(Refusal::invalid("ends", reason).object(id));
                }
                let trunk = Trunk {
                    ends,
                    cost,
                    capacity_mbps,
                    mtu,
                    risk_group,
                    contract_percent,
                    ..before
                };
                self.check_trunk(Some(id), &trunk)?;
                let (one, two) = switches(&trunk.ends);
                self.draft.put(id, trunk);
                self.check_admitted(one, two)
            }
            Operation::SetNetworks {
                service: id,
                networks,
            } => {
                self.draft.check(self.actor, kind, id.into())?;
                let mut service = self.object(id)?;
                if service.kind != ServiceKind::ExchangeLan {
                    return Err(Refusal::invalid("networks", reason::networks_of_lan_only()).object(id));
                }
                let outside = self.draft.all::<IpId>().find(|(_, ip)| {
                    let is_own = self.draft.find(ip.config).is_some_and(|end| end.service == id);
                    let was_inside = service
                        .networks
                        .iter()
                        .any(|network| network.contains(ip.address));
                    is_own && was_inside && !networks.iter().any(|network| network.contains(ip.address))
                });
                if let Some((ip, found)) = outside {
                    let reason = format!(
                        "the networks do not contain {}, which {} has: remove the address, or keep its network",
                        found.address, found.config
                    );
                    return Err(Refusal::conflict(reason).field("networks").object(ip));
                }
                service.networks = networks;
                self.draft.put(id, service);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Refuses a change by which the trunk between two switches no longer admits what is contracted there, although it did
    /// before.
    fn check_admitted(&self, one: crate::id::SwitchId, two: crate::id::SwitchId) -> Outcome {
        let contracts = self.draft.total_contracts();
        let before = Topology::of(self.draft.base());
        let topology = self.topology();
        for (from, to) in [(one, two), (two, one)] {
            let total = contracts.get(&(from, to)).copied().unwrap_or_default();
            let Some((id, trunk)) = topology.carrier(from, to) else {
                continue;
            };
            let was_admitted = before
                .carrier(from, to)
                .is_none_or(|(_, trunk)| total <= trunk.contracts_max());
            if was_admitted && total > trunk.contracts_max() {
                let reason = format!(
                    "trunk {} would admit {} Mbit/s, and {total} Mbit/s are contracted from {from} to {to}: delete or \
                     lower contracts first, or raise contract_percent",
                    trunk.name,
                    trunk.contracts_max()
                );
                return Err(Refusal::new(RefusalCode::Exhausted, reason)
                    .field("capacity_mbps")
                    .object(id));
            }
        }
        Ok(())
    }
}
