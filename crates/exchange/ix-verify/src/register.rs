//! The register: the ports, trunks, ends, addresses and owners that the exchange has sold, against which the content of the
//! switches is checked.

use core::net::{Ipv4Addr, Ipv6Addr};
use std::collections::{BTreeMap, BTreeSet};

use millrace_ix_model::{
    Config, ConfigId, Consent, EndRole, Exchange, FilterId, Quarantine, Service, ServiceId, ServiceKind,
    TagType, Timestamp, TrunkKind, VlanConfig, link_local,
};
use millrace_types::Mac;

use crate::trace::{Fabric, SwitchNumber, Wire};

/// The tags of an end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Tags {
    /// All frames of the port, whatever their tags.
    Transparent,
    /// Frames without a tag.
    Untagged,
    /// One tag. Its EtherType counts for frames that leave, because OpenFlow cannot match it.
    One { vid: u16, ethertype: u16 },
    /// Two tags; the EtherType is that of the outer one.
    Two { outer: u16, inner: u16, ethertype: u16 },
}

impl Tags {
    /// Returns the number of tags that belong to the end.
    pub(crate) const fn count(self) -> u8 {
        match self {
            Tags::Transparent | Tags::Untagged => 0,
            Tags::One { .. } => 1,
            Tags::Two { .. } => 2,
        }
    }
}

/// An end of a service.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct End {
    pub(crate) service: ServiceId,
    pub(crate) account: u32,
    /// The number in the low 20 bits of the metadata of frames that leave at the end: docs/exchange.md.
    pub(crate) index: u32,
    /// The name for people: the connection and the tags.
    pub(crate) name: String,
    pub(crate) switch: SwitchNumber,
    pub(crate) ports: Vec<u32>,
    pub(crate) tags: Tags,
    /// True if frames of the end may pass: it is not shut down, and not in quarantine.
    pub(crate) is_active: bool,
    pub(crate) is_leaf: bool,
    /// The addresses that are valid, the newest last.
    pub(crate) macs: Vec<Mac>,
    pub(crate) v4: Vec<Ipv4Addr>,
    /// The IPv6 addresses; a link-local one that follows from a MAC address has that address.
    pub(crate) v6: Vec<(Ipv6Addr, Option<Mac>)>,
}

/// A service with its ends.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Circuit {
    pub(crate) kind: ServiceKind,
    pub(crate) name: String,
    /// True if frames pass at all.
    pub(crate) is_active: bool,
    pub(crate) ends: Vec<ConfigId>,
    /// The EtherTypes that a peering LAN passes.
    pub(crate) ethertypes: BTreeSet<u16>,
}

/// A filter.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Owner {
    pub(crate) name: String,
    pub(crate) account: u32,
    /// The accounts whose frames the filter concerns; all if empty.
    pub(crate) peers: BTreeSet<u32>,
}

/// The register of an exchange at a time.
#[derive(Clone, Default, Debug)]
pub struct Register {
    pub(crate) switches: BTreeMap<SwitchNumber, String>,
    pub(crate) services: BTreeMap<ServiceId, Circuit>,
    pub(crate) ends: BTreeMap<ConfigId, End>,
    pub(crate) at_port: BTreeMap<(SwitchNumber, u32), BTreeSet<ConfigId>>,
    pub(crate) filters: BTreeMap<FilterId, Owner>,
    /// The ends of each account.
    by_account: BTreeMap<u32, BTreeSet<ConfigId>>,
    wires: BTreeMap<(SwitchNumber, u32), Wire>,
    ports: BTreeMap<SwitchNumber, BTreeSet<u32>>,
}

/// The bits of a cookie that are those of filters, and their values: docs/exchange.md, "Cookies".
const FILTER_COOKIE: (u64, u64) = (0xfff0 << 48, 0x5850 << 48);

/// Returns the filter to which a cookie belongs.
pub(crate) const fn filter_of(cookie: u64) -> Option<FilterId> {
    if cookie & FILTER_COOKIE.0 == FILTER_COOKIE.1 {
        Some(FilterId((cookie >> 20) as u32))
    } else {
        None
    }
}

impl Register {
    /// Returns the register of an exchange.
    pub fn of(exchange: &Exchange, now: Timestamp) -> Register {
        let mut register = Register::default();
        register.fabric_of(exchange);
        let services: BTreeSet<ServiceId> = exchange.services.keys().copied().collect();
        register.put_services(exchange, &services, now);
        let filters: BTreeSet<FilterId> = exchange.filters.keys().copied().collect();
        register.put_filters(exchange, &filters);
        register
    }

    /// Brings the register from one exchange at a time to another one at the same time or later. The result is that of
    /// [`Register::of`].
    pub fn update(&mut self, (before, then): (&Exchange, Timestamp), (after, now): (&Exchange, Timestamp)) {
        if before.switches != after.switches || before.trunks != after.trunks {
            self.fabric_of(after);
        }
        let mut services = before.services.differing(&after.services);
        for end in before.configs.differing(&after.configs) {
            let sides = [before, after]
                .into_iter()
                .filter_map(|side| side.configs.get(&end));
            services.extend(sides.map(|config| config.service));
        }
        let macs = before.macs.differing(&after.macs).into_iter().flat_map(|id| {
            [before, after]
                .into_iter()
                .filter_map(move |side| side.macs.get(&id).map(|mac| mac.config))
        });
        let ips = before.ips.differing(&after.ips).into_iter().flat_map(|id| {
            [before, after]
                .into_iter()
                .filter_map(move |side| side.ips.get(&id).map(|ip| ip.config))
        });
        let is_between =
            |moment: Option<Timestamp>| moment.is_some_and(|moment| then < moment && moment <= now);
        let begun_or_over = after
            .macs
            .values()
            .filter(|mac| is_between(mac.begin()) || is_between(mac.valid_until))
            .map(|mac| mac.config);
        let over = after.ips.values().filter(|ip| is_between(ip.valid_until));
        let at_boundary: Vec<ConfigId> = if then < now {
            begun_or_over.chain(over.map(|ip| ip.config)).collect()
        } else {
            Vec::new()
        };
        let with_address: BTreeSet<ConfigId> = macs.chain(ips).chain(at_boundary).collect();
        services.extend(
            with_address
                .iter()
                .filter_map(|end| Some(after.configs.get(end)?.service)),
        );
        let connections = before.connections.differing(&after.connections);
        if !connections.is_empty() {
            let patched = after
                .configs
                .values()
                .filter(|config| connections.contains(&config.connection));
            services.extend(patched.map(|config| config.service));
        }
        if before.policies != after.policies {
            services.extend(after.services.keys());
        }
        self.put_services(after, &services, now);
        self.put_filters(after, &before.filters.differing(&after.filters));
    }

    /// Writes ports and wires to a fabric whose content is known.
    pub fn wire(&self, fabric: &mut Fabric) {
        if fabric.wires != self.wires {
            fabric.wires.clone_from(&self.wires);
        }
        if fabric.ports != self.ports {
            fabric.ports.clone_from(&self.ports);
        }
    }

    fn fabric_of(&mut self, exchange: &Exchange) {
        let names = exchange.switches.iter();
        self.switches = names.map(|(id, switch)| (id.0, switch.name.clone())).collect();
        self.wires.clear();
        for trunk in exchange.trunks.values() {
            let keeps_key = trunk.kind == TrunkKind::Vxlan;
            for (from, to) in [(0, 1), (1, 0)] {
                let (from, to) = (trunk.ends[from], trunk.ends[to]);
                let wire = Wire {
                    switch: to.switch.0,
                    port: to.port.raw(),
                    keeps_key,
                };
                self.wires.insert((from.switch.0, from.port.raw()), wire);
            }
        }
        self.ports = exchange
            .switches
            .iter()
            .map(|(id, switch)| {
                let ports = switch.ports.iter().map(|port| port.number.raw());
                let free = ports.filter(|port| !self.wires.contains_key(&(id.0, *port)));
                (id.0, free.collect())
            })
            .collect();
    }

    fn put_filters(&mut self, exchange: &Exchange, filters: &BTreeSet<FilterId>) {
        for id in filters {
            let Some(filter) = exchange.filters.get(id) else {
                self.filters.remove(id);
                continue;
            };
            let owner = Owner {
                name: format!("{} of {}", id, account_name(exchange, filter.account)),
                account: filter.account.0,
                peers: filter.peers.iter().map(|peer| peer.0).collect(),
            };
            self.filters.insert(*id, owner);
        }
    }

    fn put_services(&mut self, exchange: &Exchange, services: &BTreeSet<ServiceId>, now: Timestamp) {
        for id in services {
            for end in self
                .services
                .remove(id)
                .map(|circuit| circuit.ends)
                .into_iter()
                .flatten()
            {
                self.remove_end(end);
            }
        }
        let mut addresses: BTreeMap<ConfigId, (Vec<_>, Vec<_>)> = BTreeMap::new();
        let is_asked = |end: &ConfigId| {
            let config = exchange.configs.get(end);
            config.is_some_and(|config| services.contains(&config.service))
        };
        for mac in exchange
            .macs
            .values()
            .filter(|mac| mac.is_valid(now) && is_asked(&mac.config))
        {
            addresses
                .entry(mac.config)
                .or_default()
                .0
                .push((mac.valid_from, mac.address));
        }
        for ip in exchange
            .ips
            .values()
            .filter(|ip| ip.is_valid(now) && is_asked(&ip.config))
        {
            addresses.entry(ip.config).or_default().1.push(ip.address);
        }
        for id in services {
            let Some(service) = exchange.services.get(id) else {
                continue;
            };
            let mut ends = Vec::new();
            let is_transparent = exchange
                .ends(*id)
                .all(|(_, config)| service.kind == ServiceKind::P2pVc && config.vlan == VlanConfig::Port);
            for (end, config) in exchange.ends(*id) {
                let found = addresses.remove(&end).unwrap_or_default();
                if let Some(entry) = end_of(exchange, *id, config, is_transparent, found) {
                    for port in &entry.ports {
                        self.at_port.entry((entry.switch, *port)).or_default().insert(end);
                    }
                    self.by_account.entry(entry.account).or_default().insert(end);
                    self.ends.insert(end, entry);
                    ends.push(end);
                }
            }
            self.services
                .insert(*id, circuit_of(exchange, service, ends, &self.ends));
        }
    }

    fn remove_end(&mut self, id: ConfigId) {
        let Some(end) = self.ends.remove(&id) else {
            return;
        };
        if let Some(ends) = self.by_account.get_mut(&end.account) {
            ends.remove(&id);
        }
        for port in end.ports {
            if let Some(ends) = self.at_port.get_mut(&(end.switch, port)) {
                ends.remove(&id);
            }
        }
    }

    /// Returns the ends of a service that stand for all of its frames if only some ends have changed: these, and one other
    /// end of each switch. Entries that the change leaves alone, and that name an end, were verified with an earlier one; the
    /// others treat the frames of all ends of a switch alike.
    pub fn representatives(&self, service: ServiceId, changed: &BTreeSet<ConfigId>) -> BTreeSet<ConfigId> {
        let mut chosen = BTreeSet::new();
        let mut switches = BTreeSet::new();
        let ends = self
            .services
            .get(&service)
            .into_iter()
            .flat_map(|circuit| &circuit.ends);
        for id in ends {
            let Some(end) = self.ends.get(id) else {
                continue;
            };
            if changed.contains(id) || end.is_active && switches.insert((end.switch, end.is_leaf)) {
                chosen.insert(*id);
            }
        }
        chosen
    }

    /// Returns the ends of a service.
    pub fn ends_of(&self, service: ServiceId) -> impl Iterator<Item = ConfigId> + '_ {
        let circuit = self.services.get(&service);
        circuit
            .into_iter()
            .flat_map(|circuit| circuit.ends.iter().copied())
    }

    /// Returns the ports of some ends.
    pub fn ports_of(&self, ends: &BTreeSet<ConfigId>) -> BTreeSet<(SwitchNumber, u32)> {
        let ends = ends.iter().filter_map(|id| self.ends.get(id));
        ends.flat_map(|end| end.ports.iter().map(|port| (end.switch, *port)))
            .collect()
    }

    /// Returns the services with ends of the owner of a filter.
    pub fn services_of_filter(&self, filter: FilterId) -> BTreeSet<ServiceId> {
        let Some(owner) = self.filters.get(&filter) else {
            return BTreeSet::new();
        };
        let own = self.by_account.get(&owner.account).into_iter().flatten();
        own.filter_map(|id| Some(self.ends.get(id)?.service)).collect()
    }

    /// Returns true if an account has an end with this number in the metadata.
    pub(crate) fn has_end(&self, account: u32, index: u32) -> bool {
        let mut own = self.by_account.get(&account).into_iter().flatten();
        own.any(|id| self.ends.get(id).is_some_and(|end| end.index == index))
    }

    /// Returns the ends at a port.
    pub(crate) fn ends_at(&self, switch: SwitchNumber, port: u32) -> impl Iterator<Item = (ConfigId, &End)> {
        let ends = self.at_port.get(&(switch, port)).into_iter().flatten();
        ends.filter_map(|id| Some((*id, self.ends.get(id)?)))
    }

    /// Returns the name of a switch.
    pub(crate) fn switch_name(&self, switch: SwitchNumber) -> String {
        let found = self.switches.get(&switch).cloned();
        found.unwrap_or_else(|| format!("switch {switch}"))
    }
}

fn account_name(exchange: &Exchange, account: millrace_ix_model::AccountId) -> String {
    let found = exchange.accounts.get(&account);
    found.map_or_else(|| account.to_string(), |account| account.name.clone())
}

fn circuit_of(
    exchange: &Exchange,
    service: &Service,
    ends: Vec<ConfigId>,
    all: &BTreeMap<ConfigId, End>,
) -> Circuit {
    let is_agreed = matches!(service.consent, Consent::NotNeeded | Consent::Accepted);
    let is_complete = match service.kind {
        ServiceKind::P2pVc => {
            ends.len() == 2
                && ends
                    .iter()
                    .all(|end| all.get(end).is_some_and(|end| end.is_active))
        }
        ServiceKind::ExchangeLan => service.policy.is_some(),
        _ => true,
    };
    let policy = service.policy.and_then(|policy| exchange.policies.get(&policy));
    Circuit {
        kind: service.kind,
        name: service.name.clone(),
        is_active: service.state.is_carried() && is_agreed && is_complete,
        ends,
        ethertypes: policy.map(|policy| policy.ethertypes.clone()).unwrap_or_default(),
    }
}

fn end_of(
    exchange: &Exchange,
    service: ServiceId,
    config: &Config,
    is_transparent: bool,
    (mut macs, ips): (Vec<(Timestamp, Mac)>, Vec<core::net::IpAddr>),
) -> Option<End> {
    let connection = exchange.connections.get(&config.connection)?;
    let ethertype = |tag: TagType| match tag {
        TagType::CTag => 0x8100,
        TagType::STag => 0x88a8,
    };
    let (tags, words) = match config.vlan {
        VlanConfig::Port if is_transparent => (Tags::Transparent, "with any tags".to_owned()),
        VlanConfig::Port => (Tags::Untagged, "without a tag".to_owned()),
        VlanConfig::Dot1q { vlan, ethertype: tag } => {
            let tags = Tags::One {
                vid: vlan.raw(),
                ethertype: ethertype(tag),
            };
            (tags, format!("VLAN {vlan}"))
        }
        VlanConfig::Qinq {
            outer,
            inner,
            ethertype: tag,
        } => {
            let tags = Tags::Two {
                outer: outer.raw(),
                inner: inner.raw(),
                ethertype: ethertype(tag),
            };
            (tags, format!("VLAN {outer} with VLAN {inner}"))
        }
    };
    macs.sort_by_key(|(from, _)| *from);
    let macs: Vec<Mac> = macs.into_iter().map(|(_, mac)| mac).collect();
    let (mut v4, mut v6) = (Vec::new(), Vec::new());
    for address in ips {
        match address {
            core::net::IpAddr::V4(address) => v4.push(address),
            core::net::IpAddr::V6(address) => {
                let of_mac = macs.iter().copied().find(|mac| link_local(*mac) == address);
                v6.push((address, of_mac));
            }
        }
    }
    if !v6.is_empty() {
        for mac in &macs {
            let address = link_local(*mac);
            if v6.iter().all(|(other, _)| *other != address) {
                v6.push((address, Some(*mac)));
            }
        }
    }
    Some(End {
        service,
        account: config.account.0,
        index: config.index.raw(),
        name: format!("{}, {words}", connection.name),
        switch: connection.ports.first()?.switch.0,
        ports: connection.ports.iter().map(|port| port.port.raw()).collect(),
        tags,
        is_active: !config.shut_down && !matches!(config.quarantine, Quarantine::Running { .. }),
        is_leaf: config.role == EndRole::Leaf,
        macs,
        v4,
        v6,
    })
}
