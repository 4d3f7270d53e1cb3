//! Orders of addresses and of LAN policies.

use core::time::Duration;

use super::{Order, Outcome};
use crate::id::{ConfigId, IpId, MacId, PolicyId, ServiceId};
use crate::operation::Operation;
use crate::reason;
use crate::refusal::Refusal;
use crate::service::{LanPolicy, RegisteredIp, RegisteredMac, ServiceKind, is_usable, link_local};

/// The longest time for which an end may have one MAC address more than its policy permits, while a router is
/// replaced.
const SWAP_MAX: Duration = Duration::from_secs(24 * 3600);
/// The largest number of MAC addresses of an end of a multipoint circuit.
const CIRCUIT_MACS_MAX: usize = 32;

impl Order<'_> {
    pub(super) fn lan(&mut self, operation: Operation) -> Outcome {
        let kind = operation.kind();
        match operation {
            Operation::AddMac {
                config,
                address,
                valid_from,
                valid_until,
            } => {
                self.draft.check(self.actor, kind, config.into())?;
                let mac = RegisteredMac {
                    config,
                    address,
                    valid_from: valid_from.unwrap_or(self.now),
                    planned: valid_from.is_some_and(|begin| begin > self.now),
                    valid_until,
                };
                self.check_mac(None, &mac)?;
                self.draft.create::<MacId>(mac);
                Ok(())
            }
            Operation::SetMacEnd { mac: id, valid_until } => {
                self.draft.check(self.actor, kind, id.into())?;
                let mut mac = self.object(id)?;
                mac.valid_until = valid_until;
                self.check_mac(Some(id), &mac)?;
                self.draft.put(id, mac);
                Ok(())
            }
            Operation::RemoveMac { mac } => {
                self.draft.check(self.actor, kind, mac.into())?;
                self.draft.delete(mac);
                Ok(())
            }
            Operation::AddIp {
                config,
                address,
                valid_until,
            } => {
                self.draft.check(self.actor, kind, config.into())?;
                self.check_ip(config, address)?;
                self.draft.create::<IpId>(RegisteredIp {
                    config,
                    address,
                    valid_until,
                });
                Ok(())
            }
            Operation::RemoveIp { ip } => {
                self.draft.check(self.actor, kind, ip.into())?;
                self.draft.delete(ip);
                Ok(())
            }
            Operation::CreatePolicy { policy } => {
                self.check_exchange(kind)?;
                self.check_policy(None, &policy)?;
                self.draft.create::<PolicyId>(policy);
                Ok(())
            }
            Operation::UpdatePolicy { id, policy } => {
                self.draft.check(self.actor, kind, id.into())?;
                self.check_policy(Some(id), &policy)?;
                self.draft.put(id, policy);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn check_policy(&self, id: Option<PolicyId>, policy: &LanPolicy) -> Outcome {
        self.check_name(id, &policy.name, |other: &LanPolicy| &other.name, |_| true)?;
        if policy
            .ethertypes
            .iter()
            .any(|ethertype| *ethertype < 0x0600 || [0x8100, 0x88a8].contains(ethertype))
        {
            return Err(Refusal::invalid("ethertypes", reason::ethertypes_wrong()));
        }
        for (field, rate) in [
            ("broadcast_pps", policy.broadcast_pps),
            ("multicast_pps", policy.multicast_pps),
        ] {
            if rate == 0 {
                return Err(Refusal::invalid(field, reason::packets_per_second_min()));
            }
        }
        if policy.macs_max == 0 {
            return Err(Refusal::invalid("macs_max", reason::macs_max_min()));
        }
        Ok(())
    }

    fn check_mac(&self, id: Option<MacId>, mac: &RegisteredMac) -> Outcome {
        let config = self.object(mac.config)?;
        let service = self.object(config.service)?;
        if service.kind == ServiceKind::P2pVc {
            let reason = reason::macs_of_p2p(config.service);
            return Err(Refusal::conflict(reason).field("config").object(config.service));
        }
        if mac.address.is_multicast() || mac.address == millrace_types::Mac::ZERO {
            return Err(Refusal::invalid("address", reason::mac_of_no_host(mac.address)));
        }
        if let Some(until) = mac.valid_until
            && (until <= mac.valid_from || until <= self.now)
        {
            return Err(Refusal::invalid("valid_until", reason::mac_validity()));
        }
        let taken = self.draft.all::<MacId>().find(|(other, registered)| {
            Some(*other) != id
                && registered.address == mac.address
                && self.service_of_end(registered.config) == Some(config.service)
        });
        if let Some((other, registered)) = taken {
            // The holder may be a foreign account, so only the address is named.
            let reason = reason::mac_taken(mac.address, config.service);
            let refusal = Refusal::conflict(reason).field("address");
            return Err(if registered.config == mac.config {
                refusal.object(other)
            } else {
                refusal
            });
        }
        // The link-local address of a MAC address belongs to the end that has the MAC address.
        let derived = link_local(mac.address);
        let is_foreign = |(_, ip): &(IpId, &RegisteredIp)| {
            ip.address == derived
                && ip.config != mac.config
                && self.service_of_end(ip.config) == Some(config.service)
        };
        if self.draft.all::<IpId>().any(|ip| is_foreign(&ip)) {
            let reason = reason::link_local_taken(derived, mac.address, config.service);
            return Err(Refusal::conflict(reason).field("address"));
        }
        let max = match service.policy.and_then(|policy| self.draft.find(policy)) {
            Some(policy) => usize::from(policy.macs_max),
            None => CIRCUIT_MACS_MAX,
        };
        let others = self
            .draft
            .all::<MacId>()
            .filter(|(other, registered)| Some(*other) != id && registered.config == mac.config);
        // While a router is swapped, an end may have one address more than permitted, if the registration of one of
        // them ends within a day.
        let mut ends: Vec<_> = others.map(|(_, registered)| registered.valid_until).collect();
        ends.push(mac.valid_until);
        let ends_soon =
            |end: &Option<_>| end.is_some_and(|end: crate::time::Timestamp| end.since(self.now) <= SWAP_MAX);
        if ends.len() > max + 1 || ends.len() == max + 1 && !ends.iter().any(ends_soon) {
            return Err(Refusal::conflict(reason::macs_full(max))
                .field("valid_until")
                .object(mac.config));
        }
        Ok(())
    }

    fn service_of_end(&self, config: ConfigId) -> Option<ServiceId> {
        self.draft.find(config).map(|config| config.service)
    }

    fn check_ip(&self, config: ConfigId, address: core::net::IpAddr) -> Outcome {
        let id = self.object(config)?.service;
        let service = self.object(id)?;
        if service.kind != ServiceKind::ExchangeLan {
            return Err(Refusal::conflict(reason::no_lan(id)).object(id));
        }
        // A link-local address (RFC 4291, section 2.5.6) that is not derived from a MAC address is
        // registered, too.
        let is_link_local = matches!(address, core::net::IpAddr::V6(v6) if v6.is_unicast_link_local());
        let is_inside = is_link_local || service.networks.iter().any(|network| network.contains(address));
        if !is_usable(address) || !is_inside {
            return Err(Refusal::invalid("address", reason::ip_outside(address, id)));
        }
        let mut networks = service.networks.iter();
        if let Some(network) = networks.find(|network| network.contains(address) && !network.is_host(address))
        {
            return Err(Refusal::invalid(
                "address",
                reason::ip_of_network(address, network),
            ));
        }
        let taken = self
            .draft
            .all::<IpId>()
            .find(|(_, ip)| ip.address == address && self.service_of_end(ip.config) == Some(id));
        if let Some((other, _)) = taken {
            let reason = reason::ip_taken(other, address);
            return Err(Refusal::conflict(reason).field("address").object(other));
        }
        let of_foreign_mac = self.draft.all::<MacId>().find(|(_, mac)| {
            link_local(mac.address) == address
                && mac.config != config
                && self.service_of_end(mac.config) == Some(id)
        });
        match of_foreign_mac {
            Some((other, mac)) => {
                let reason = reason::link_local_taken(address, mac.address, id);
                Err(Refusal::conflict(reason).field("address").object(other))
            }
            None => Ok(()),
        }
    }
}
