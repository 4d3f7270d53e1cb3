//! A service with its ends, addresses and trunks: the input of the plans of all kinds of services.

use std::collections::{BTreeMap, BTreeSet};

use millrace_ix_model::path::Topology;
use millrace_ix_model::{
    Config, ConfigId, Connection, Exchange, RegisteredIp, RegisteredMac, Service, ServiceId, ServiceKind,
    SwitchId, Timestamp, Trunk, TrunkId, TrunkKind, VlanConfig,
};
use millrace_types::{MeterId, PortNo};

use crate::builder::metadata;
use crate::entry::Matching;
use crate::layout::{CookieFields, CookieKind, Metadata};

/// The inputs of a plan in addition to the exchange.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Settings {
    /// The time at which the plan applies. It decides which MAC addresses and filters are valid.
    pub now: Timestamp,
    /// True if every switch has the match extensions of Open vSwitch: masks on ports, TCP flags, fragments.
    pub extensions: bool,
}

/// Returns the trunks between two switches in the order of their use: drained ones last, then by cost.
pub(crate) fn trunks_between(exchange: &Exchange, one: SwitchId, two: SwitchId) -> Vec<(TrunkId, &Trunk)> {
    Topology::of(exchange).trunks(one, two).to_vec()
}

/// Returns the port of a trunk at a switch.
pub(crate) fn trunk_port(trunk: &Trunk, switch: SwitchId) -> Option<PortNo> {
    let end = trunk.ends.iter().find(|end| end.switch == switch);
    end.map(|end| end.port)
}

/// Returns the switch of a connection.
pub(crate) fn switch_of(connection: &Connection) -> Option<SwitchId> {
    connection.ports.first().map(|port| port.switch)
}

/// Returns true if switches may have entries because of an end. The end of a service whose deletion was ordered exists
/// until all switches have removed its entries, and then goes without a change of its own: no entry may depend on it.
pub(crate) fn has_entries(exchange: &Exchange, config: &Config) -> bool {
    let service = exchange.services.get(&config.service);
    service.is_some_and(|service| service.state.is_carried())
}

/// An end with the data for its entries.
#[derive(Clone, Copy, Debug)]
pub(crate) struct End<'a> {
    pub(crate) id: ConfigId,
    pub(crate) config: &'a Config,
    pub(crate) connection: &'a Connection,
    pub(crate) switch: SwitchId,
    /// True if tags pass untouched: both ends of the circuit are whole ports.
    pub(crate) is_transparent: bool,
}

impl End<'_> {
    /// Returns the index in the metadata.
    pub(crate) fn index(&self) -> u32 {
        self.config.index.raw()
    }

    pub(crate) fn meter(&self) -> MeterId {
        MeterId(self.config.meter.raw())
    }

    /// Returns true if the other end is on the same ports, so frames leave by the ports where they arrived.
    pub(crate) fn shares_ports(&self, other: &End<'_>) -> bool {
        self.config.connection == other.config.connection
    }

    /// Returns a cookie of this end.
    pub(crate) fn cookie(&self, kind: CookieKind) -> CookieFields {
        CookieFields {
            kind,
            object: self.id.0,
            generation: 0,
        }
    }
}

/// The ends of some services, and the addresses of each end. They are collected in one pass over the
/// exchange, instead of one pass for each service.
#[derive(Debug)]
pub(crate) struct Index<'a> {
    ends: BTreeMap<ServiceId, Vec<(ConfigId, &'a Config)>>,
    macs: BTreeMap<ConfigId, Vec<&'a RegisteredMac>>,
    ips: BTreeMap<ConfigId, Vec<&'a RegisteredIp>>,
}

impl<'a> Index<'a> {
    /// Returns the index of all services.
    pub(crate) fn of_all(exchange: &'a Exchange) -> Index<'a> {
        let mut ends = BTreeMap::<_, Vec<_>>::new();
        for (id, config) in &exchange.configs {
            ends.entry(config.service).or_default().push((*id, config));
        }
        Index::with_addresses(exchange, ends, |_| true)
    }

    /// Returns the index of some services. It reads only the ends of these services, because the exchange may have many.
    pub(crate) fn of(exchange: &'a Exchange, services: &BTreeSet<ServiceId>) -> Index<'a> {
        let ends = services.iter().map(|id| (*id, exchange.ends(*id).collect()));
        let is_of_these = |end: ConfigId| {
            let config = exchange.configs.get(&end);
            config.is_some_and(|config| services.contains(&config.service))
        };
        Index::with_addresses(exchange, ends.collect(), is_of_these)
    }

    /// Returns the index of these ends, with the addresses of the ends that `is_asked` selects.
    fn with_addresses(
        exchange: &'a Exchange,
        ends: BTreeMap<ServiceId, Vec<(ConfigId, &'a Config)>>,
        is_asked: impl Fn(ConfigId) -> bool,
    ) -> Index<'a> {
        let mut index = Index {
            ends,
            macs: BTreeMap::new(),
            ips: BTreeMap::new(),
        };
        for mac in exchange.macs.values().filter(|mac| is_asked(mac.config)) {
            index.macs.entry(mac.config).or_default().push(mac);
        }
        for ip in exchange.ips.values().filter(|ip| is_asked(ip.config)) {
            index.ips.entry(ip.config).or_default().push(ip);
        }
        index
    }

    /// Returns the registered MAC addresses of an end, in the order of registration.
    pub(crate) fn macs(&self, end: ConfigId) -> impl Iterator<Item = &'a RegisteredMac> {
        self.macs.get(&end).into_iter().flatten().copied()
    }

    /// Returns the IP addresses of an end.
    pub(crate) fn ips(&self, end: ConfigId) -> impl Iterator<Item = &'a RegisteredIp> {
        self.ips.get(&end).into_iter().flatten().copied()
    }
}

/// A service with its participating ends.
#[derive(Debug)]
pub(crate) struct ServiceContext<'a> {
    pub(crate) exchange: &'a Exchange,
    pub(crate) id: ServiceId,
    pub(crate) service: &'a Service,
    pub(crate) ends: Vec<End<'a>>,
    pub(crate) settings: Settings,
    pub(crate) index: &'a Index<'a>,
}

impl<'a> ServiceContext<'a> {
    pub(crate) fn new(
        exchange: &'a Exchange,
        index: &'a Index<'a>,
        id: ServiceId,
        settings: &Settings,
    ) -> Option<ServiceContext<'a>> {
        let service = exchange.services.get(&id)?;
        let known = index.ends.get(&id).into_iter().flatten().copied();
        let mut ends: Vec<_> = known
            .filter_map(|(end, config)| {
                let connection = exchange.connections.get(&config.connection)?;
                Some(End {
                    id: end,
                    config,
                    connection,
                    switch: switch_of(connection)?,
                    is_transparent: false,
                })
            })
            .collect();
        if service.kind == ServiceKind::P2pVc && ends.iter().all(|end| end.config.vlan == VlanConfig::Port) {
            ends.iter_mut().for_each(|end| end.is_transparent = true);
        }
        Some(ServiceContext {
            exchange,
            id,
            service,
            ends,
            settings: *settings,
            index,
        })
    }

    /// Returns a match on the service and other parts of the metadata.
    pub(crate) fn matching(&self, fields: Metadata, mask: u64) -> Matching {
        let service = self.service.index.raw();
        metadata(Metadata { service, ..fields }, mask | Metadata::SERVICE)
    }

    /// Returns the metadata of frames that an end sends.
    pub(crate) fn entered_by(&self, end: &End<'_>) -> Metadata {
        Metadata {
            service: self.service.index.raw(),
            by_trunk: false,
            ingress_end: end.index(),
            egress_end: 0,
        }
    }

    /// Returns a cookie of the service, with its generation.
    pub(crate) fn cookie(&self) -> CookieFields {
        CookieFields {
            kind: CookieKind::Service,
            object: self.service.index.raw(),
            generation: self.service.generation,
        }
    }

    /// Returns the switches at which the service has ends.
    pub(crate) fn switches(&self) -> BTreeSet<SwitchId> {
        self.ends.iter().map(|end| end.switch).collect()
    }

    /// Returns the switch that is next on the path from one switch of the service to another.
    pub(crate) fn next_switch(&self, from: SwitchId, to: SwitchId) -> SwitchId {
        let path = match self.service.kind {
            ServiceKind::P2pVc => self.service.path(from, to),
            _ => Vec::new(),
        };
        path.get(1).copied().unwrap_or(to)
    }

    /// Returns the encapsulation of the trunks between two switches that are joined.
    pub(crate) fn trunk_kind(&self, one: SwitchId, two: SwitchId) -> Option<TrunkKind> {
        trunks_between(self.exchange, one, two)
            .first()
            .map(|(_, trunk)| trunk.kind)
    }
}
