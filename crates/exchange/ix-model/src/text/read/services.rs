//! Services, ends and filters of a text.

use std::collections::BTreeSet;
use std::ops::Range;

use super::super::form::{EndForm, FilterForm, ServiceForm};
use super::{Outcome, Reader};
use crate::exchange::Exchange;
use crate::fabric::{Trunk, TrunkKind};
use crate::filter::Filter;
use crate::id::{ConfigId, IpId, MacId, MeterNumber, PolicyId, ServiceIndex, SwitchId, WireId};
use crate::service::{Config, PoolKind, RegisteredIp, RegisteredMac, Service, ServiceKind};

impl Reader<'_> {
    pub(super) fn service(&mut self, form: ServiceForm) -> Outcome {
        let account = self.account(&form.account, "service.account")?;
        let name = form.name.get_ref().clone();
        let span = form.name.span();
        self.check_new::<crate::id::ServiceId>(&form.name, "service.name", |other| {
            other.account == account && other.name == name
        })?;
        let peer = self.optional_account(form.peer.as_ref(), "service.peer")?;
        let policy = form.policy.as_ref();
        let policy = policy
            .map(|policy| self.named::<PolicyId>(policy, "service.policy", |policy| &policy.name))
            .transpose()?;
        if policy.is_some() != (form.kind == ServiceKind::ExchangeLan) {
            return self.error(
                &span,
                "service.policy",
                "a peering LAN has a policy, and nothing else has",
            );
        }
        if form.kind == ServiceKind::P2pVc && form.ends.len() > 2 {
            return self.error(&span, "service.end", "a p2p_vc has two ends at most");
        }
        let locked_by = self.optional_account(form.locked_by.as_ref(), "service.locked_by")?;
        let id = self.identify(|_, other: &Service| other.account == account && other.name == name);
        let known = self.base.services.get(&id);
        let index = match known {
            Some(known) => known.index,
            None => {
                let of = |exchange: &Exchange| {
                    exchange
                        .services
                        .values()
                        .map(|service| service.index.raw())
                        .collect()
                };
                let range = (ServiceIndex::MIN, ServiceIndex::MAX);
                let number = self.allocate(&span, PoolKind::ServiceIndex, range, of)?;
                self.in_range(&span, ServiceIndex::new(number))?
            }
        };
        self.new.services.insert(
            id,
            Service {
                kind: form.kind,
                account,
                name,
                index,
                generation: known.map_or(0, |known| known.generation),
                wire_id: known.and_then(|known| known.wire_id),
                peer,
                consent: form.consent,
                state: form.state,
                policy,
                networks: form.networks,
                external_ref: form.external_ref,
                locked_by,
            },
        );
        for end in form.ends {
            self.end(id, form.kind, end)?;
        }
        self.path(id, &span)
    }

    fn end(&mut self, service: crate::id::ServiceId, kind: ServiceKind, form: EndForm) -> Outcome {
        let span = form.connection.span();
        let Some(connection) = self.connections.get(form.connection.get_ref()).copied() else {
            let message = format!(
                "no connection above is \"{}\": expected account/name",
                form.connection.get_ref()
            );
            return self.error(&span, "service.end.connection", message);
        };
        let account = self.account(&form.account, "service.end.account")?;
        let locked_by = self.optional_account(form.locked_by.as_ref(), "service.end.locked_by")?;
        let vlan = *form.vlan.get_ref();
        let mut others = self
            .new
            .configs
            .values()
            .filter(|config| config.connection == connection);
        if others.any(|config| config.vlan.conflicts(vlan)) {
            let message = format!(
                "another end of \"{}\" has {vlan} already",
                form.connection.get_ref()
            );
            return self.error(&form.vlan.span(), "service.end.vlan", message);
        }
        // The same end: by its tags, or else by its connection.
        let mut found: Option<ConfigId> = None;
        for same_vlan in [true, false] {
            let candidates = self.base.configs.iter().filter(|(id, config)| {
                let is_free = !self.new.configs.contains_key(id);
                is_free
                    && config.service == service
                    && config.connection == connection
                    && (config.vlan == vlan || !same_vlan)
            });
            found = found.or(candidates.map(|(id, _)| *id).next());
        }
        let id = found.unwrap_or_else(|| {
            self.new.last_id += 1;
            ConfigId(self.new.last_id)
        });
        let known = self.base.configs.get(&id);
        let of_connection = self
            .new
            .connections
            .get(&connection)
            .map(|connection| connection.index);
        let is_taken = |index| {
            self.new
                .configs
                .values()
                .any(|config| config.service == service && config.index == index)
        };
        let index = match (known, of_connection) {
            (Some(known), _) => known.index,
            (None, Some(index)) if !is_taken(index) => index,
            _ => self.new_index(&span)?,
        };
        let meter = match known {
            Some(known) => known.meter,
            None => {
                let of = |exchange: &Exchange| {
                    exchange
                        .configs
                        .values()
                        .map(|config| config.meter.raw())
                        .collect()
                };
                let number =
                    self.allocate(&span, PoolKind::Meter, (MeterNumber::MIN, MeterNumber::MAX), of)?;
                self.in_range(&span, MeterNumber::new(number))?
            }
        };
        let floods = matches!(kind, ServiceKind::P2mpVc | ServiceKind::Mp2mpVc);
        let group = match known.and_then(|known| known.group) {
            Some(group) => Some(group),
            None if floods => Some(self.new_group(&span)?),
            None => None,
        };
        self.new.configs.insert(
            id,
            Config {
                service,
                connection,
                account,
                vlan,
                capacity_mbps: form.capacity_mbps,
                role: form.role,
                index,
                meter,
                group,
                shut_down: form.shut_down,
                quarantine: form.quarantine,
                asns: form.asns,
                external_ref: form.external_ref,
                locked_by,
            },
        );
        for mac in form.macs {
            let Ok(address) = mac.address.get_ref().parse() else {
                return self.error(
                    &mac.address.span(),
                    "service.end.macs",
                    "expected a MAC address such as 02:00:00:00:00:01",
                );
            };
            let in_service = |config: ConfigId| {
                self.new
                    .configs
                    .get(&config)
                    .is_some_and(|config| config.service == service)
            };
            if self
                .new
                .macs
                .values()
                .any(|other| other.address == address && in_service(other.config))
            {
                return self.error(
                    &mac.address.span(),
                    "service.end.macs",
                    format!("{address} is in the service twice"),
                );
            }
            let mac_id = self.identify(|_: MacId, other| other.config == id && other.address == address);
            self.new.macs.insert(
                mac_id,
                RegisteredMac {
                    config: id,
                    address,
                    valid_from: mac.valid_from,
                    valid_until: mac.valid_until,
                },
            );
        }
        for ip in form.ips {
            let address = *ip.address.get_ref();
            let in_service = |config: ConfigId| {
                self.new
                    .configs
                    .get(&config)
                    .is_some_and(|config| config.service == service)
            };
            if self
                .new
                .ips
                .values()
                .any(|other| other.address == address && in_service(other.config))
            {
                return self.error(
                    &ip.address.span(),
                    "service.end.ips",
                    format!("{address} is in the service twice"),
                );
            }
            let ip_id = self.identify(|_: IpId, other| other.config == id && other.address == address);
            self.new.ips.insert(
                ip_id,
                RegisteredIp {
                    config: id,
                    address,
                    valid_until: ip.valid_until,
                },
            );
        }
        Ok(())
    }

    /// Gives a service the wire id that its ends need: the one it has, unless a circuit's end is another one.
    fn path(&mut self, id: crate::id::ServiceId, span: &Range<usize>) -> Outcome {
        let switch = |exchange: &Exchange, config: &Config| {
            let connection = exchange.connections.get(&config.connection);
            connection
                .and_then(|connection| connection.ports.first())
                .map(|port| port.switch)
        };
        let way = |exchange: &Exchange| -> Vec<_> {
            exchange
                .ends(id)
                .map(|(end, config)| (end, config.connection, config.vlan, switch(exchange, config)))
                .collect()
        };
        let (before, after) = (way(self.base), way(&self.new));
        let switches: BTreeSet<SwitchId> = after.iter().filter_map(|(.., switch)| *switch).collect();
        let needs_wire_id = switches.len() > 1;
        let Some(service) = self.new.services.get(&id).cloned() else {
            return Ok(());
        };
        let keeps = before == after || service.kind != ServiceKind::P2pVc;
        if keeps && needs_wire_id == service.wire_id.is_some() {
            return Ok(());
        }
        let wire_id = if needs_wire_id {
            let inner = |trunk: &Trunk| trunk.ends.iter().all(|end| switches.contains(&end.switch));
            let has_s_tags = self
                .new
                .trunks
                .values()
                .any(|trunk| inner(trunk) && trunk.kind == TrunkKind::STag);
            let range = if has_s_tags {
                (2, 4094)
            } else {
                (4096, WireId::MAX)
            };
            let of = |exchange: &Exchange| {
                exchange
                    .services
                    .values()
                    .filter_map(|service| service.wire_id.map(WireId::raw))
                    .collect()
            };
            let number = self.allocate(span, PoolKind::WireId, range, of)?;
            Some(self.in_range(span, WireId::new(number))?)
        } else {
            None
        };
        let generation = service.generation.wrapping_add(1);
        let service = Service {
            wire_id,
            generation,
            ..service
        };
        self.new.services.insert(id, service);
        Ok(())
    }

    pub(super) fn filter(&mut self, form: FilterForm) -> Outcome {
        let account = self.account(&form.account, "filter.account")?;
        let mut peers = BTreeSet::new();
        for peer in &form.peers {
            peers.insert(self.account(peer, "filter.peers")?);
        }
        if let Some((field, reason)) = form.matching.get_ref().contradiction() {
            return self.error(&form.matching.span(), &format!("filter.match.{field}"), reason);
        }
        let filter = Filter {
            account,
            matching: form.matching.into_inner(),
            peers,
            action: form.action,
            origin: form.origin,
            rank: form.rank,
            state: form.state,
            valid_until: form.valid_until,
            comment: form.comment,
            external_ref: form.external_ref,
        };
        let id = self.identify(|_: crate::id::FilterId, other| {
            let words = |filter: &Filter| {
                (
                    filter.account,
                    filter.matching.clone(),
                    filter.peers.clone(),
                    filter.origin,
                )
            };
            words(other) == words(&filter)
        });
        self.new.filters.insert(id, filter);
        Ok(())
    }
}
