//! The plan: entries of the switches themselves, and of each service and filter.

use std::collections::{BTreeMap, BTreeSet};

use millrace_flow::{Action, Field};
use millrace_ix_model::path::Topology;
use millrace_ix_model::{
    Config, ConfigId, Connection, ConnectionKind, Consent, Exchange, ObjectId, RegisteredIp, RegisteredMac,
    Service, ServiceId, ServiceKind, SwitchId, Timestamp, Trunk, TrunkId, TrunkKind, VlanConfig,
};
use millrace_types::{GroupId, MeterId, PortNo};

use crate::builder::{Builder, Line, metadata, watching};
use crate::entry::{GroupKind, Matching, SwitchState};
use crate::filters::FilterScope;
use crate::layout::{CookieFields, CookieKind, EGRESS, Metadata, PORT, PROTECT};
use crate::{circuit, filters, lan, multipoint, tags};

/// The circumstances of a plan besides the exchange.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Settings {
    /// The time, which decides if a MAC address is valid yet.
    pub now: Timestamp,
    /// True if every switch has the match extensions of Open vSwitch: masks on ports, TCP flags, fragments.
    pub extensions: bool,
}

/// A thing that cannot be put into the switches as it was ordered.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Problem {
    /// The object.
    pub object: ObjectId,
    /// The reason in words.
    pub message: String,
}

/// The content that every switch should have.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Plan {
    /// The content of each switch.
    pub switches: BTreeMap<SwitchId, SwitchState>,
    /// The things that are left out.
    pub problems: Vec<Problem>,
}

/// Returns the plan of a whole exchange.
pub fn plan(exchange: &Exchange, settings: &Settings) -> Plan {
    let mut builder = Builder::default();
    plan_base(exchange, &mut builder);
    let index = Index::new(exchange, |_| true);
    for id in exchange.services.keys() {
        plan_service(exchange, &index, *id, settings, &mut builder);
    }
    filters::plan_filters(exchange, &FilterScope::All, settings, &mut builder);
    Plan {
        switches: builder.switches,
        problems: builder.problems,
    }
}

/// Returns the plan of some services alone, without the entries of the switches themselves and without filters. Plans of
/// different services have no entry in common, so that a change of one service needs no other.
pub fn plan_services(exchange: &Exchange, services: &BTreeSet<ServiceId>, settings: &Settings) -> Plan {
    let mut builder = Builder::default();
    if !services.is_empty() {
        let index = Index::new(exchange, |service| services.contains(&service));
        for id in services {
            plan_service(exchange, &index, *id, settings, &mut builder);
        }
    }
    Plan {
        switches: builder.switches,
        problems: builder.problems,
    }
}

/// Returns the plan of some filters alone.
pub(crate) fn plan_filters_of(exchange: &Exchange, scope: &FilterScope, settings: &Settings) -> Plan {
    let mut builder = Builder::default();
    filters::plan_filters(exchange, scope, settings, &mut builder);
    Plan {
        switches: builder.switches,
        problems: builder.problems,
    }
}

/// Returns the plan of the switches themselves.
pub(crate) fn plan_switches(exchange: &Exchange) -> Plan {
    let mut builder = Builder::default();
    plan_base(exchange, &mut builder);
    Plan {
        switches: builder.switches,
        problems: builder.problems,
    }
}

/// The priority of entries of table 0 for all ports.
pub(crate) const RESERVED_PRIORITY: u16 = 60_000;
/// The priority of the entry that lets frames by trunk pass table 5.
const BY_TRUNK_PRIORITY: u16 = 65_000;

/// Returns the match of addresses that bridges do not forward: STP, LACP, LLDP, pause frames (IEEE 802.1Q-2018, table 8-1).
pub(crate) fn reserved_addresses() -> Matching {
    Matching::any().masked(Field::EthDst, 0x0180_c200_0000_u64, 0xffff_ffff_fff0_u64)
}

fn plan_base(exchange: &Exchange, builder: &mut Builder) {
    tags::plan_outer_tags(exchange, builder);
    lan::plan_strays(exchange, builder);
    tags::plan_probes(exchange, builder);
    for switch in exchange.switches.keys() {
        let cookie = CookieFields {
            kind: CookieKind::Base,
            object: switch.0,
            generation: 0,
        };
        let reserved = reserved_addresses();
        builder.flow(*switch, Line::new(PORT, RESERVED_PRIORITY, reserved, cookie));
        let by_trunk = metadata(Metadata::from_word(Metadata::TRUNK), Metadata::TRUNK);
        builder.flow(
            *switch,
            Line::new(PROTECT, BY_TRUNK_PRIORITY, by_trunk, cookie).goto(EGRESS),
        );
        builder.flow(
            *switch,
            Line::new(PROTECT, 1, Matching::any(), cookie).goto(EGRESS),
        );
        for (other, remote) in exchange.switches.iter().filter(|(other, _)| *other != switch) {
            let trunks = trunks_between(exchange, *switch, *other);
            if trunks.is_empty() {
                continue;
            }
            let buckets = trunks.iter().filter_map(|(_, trunk)| {
                let port = trunk_port(trunk, *switch)?;
                Some(watching(port, 0, vec![Action::output(port)]))
            });
            let buckets: Vec<_> = buckets.collect();
            builder.group(
                *switch,
                GroupId(remote.group.raw()),
                GroupKind::FastFailover,
                buckets,
            );
        }
    }
    for connection in exchange.connections.values() {
        let (Some(group), Some(switch)) = (connection.group, switch_of(connection)) else {
            continue;
        };
        if connection.kind == ConnectionKind::Standalone {
            continue;
        }
        let ports = connection.ports.iter().map(|port| port.port);
        let buckets = ports
            .map(|port| watching(port, 1, vec![Action::output(port)]))
            .collect();
        builder.group(switch, GroupId(group.raw()), GroupKind::Select, buckets);
    }
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

/// An end with everything that its entries need.
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

    /// Returns true if the other end is on the same ports, so that frames go back where they came from.
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

/// The ends of some services, and the addresses of each end: one pass over the exchange instead of one for each service.
#[derive(Debug)]
pub(crate) struct Index<'a> {
    ends: BTreeMap<ServiceId, Vec<(ConfigId, &'a Config)>>,
    macs: BTreeMap<ConfigId, Vec<&'a RegisteredMac>>,
    ips: BTreeMap<ConfigId, Vec<&'a RegisteredIp>>,
}

impl<'a> Index<'a> {
    fn new(exchange: &'a Exchange, is_asked: impl Fn(ServiceId) -> bool) -> Index<'a> {
        let mut index = Index {
            ends: BTreeMap::new(),
            macs: BTreeMap::new(),
            ips: BTreeMap::new(),
        };
        let is_asked = |end: ConfigId| {
            let config = exchange.configs.get(&end);
            config.is_some_and(|config| is_asked(config.service))
        };
        for (id, config) in exchange.configs.iter().filter(|(id, _)| is_asked(**id)) {
            index.ends.entry(config.service).or_default().push((*id, config));
        }
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

/// A service with its ends that take part.
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
    fn new(
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
            entered: end.index(),
            leaves: 0,
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

    /// Returns the switch that is next on the way from one switch of the service to another.
    pub(crate) fn next_switch(&self, from: SwitchId, to: SwitchId) -> SwitchId {
        let way = match self.service.kind {
            ServiceKind::P2pVc => self.service.way(from, to),
            _ => Vec::new(),
        };
        way.get(1).copied().unwrap_or(to)
    }

    /// Returns the encapsulation of the trunks between two switches that are joined.
    pub(crate) fn trunk_kind(&self, one: SwitchId, two: SwitchId) -> Option<TrunkKind> {
        trunks_between(self.exchange, one, two)
            .first()
            .map(|(_, trunk)| trunk.kind)
    }
}

fn plan_service(
    exchange: &Exchange,
    index: &Index<'_>,
    id: ServiceId,
    settings: &Settings,
    builder: &mut Builder,
) {
    let Some(context) = ServiceContext::new(exchange, index, id, settings) else {
        return;
    };
    let is_agreed = matches!(context.service.consent, Consent::NotNeeded | Consent::Accepted);
    if !context.service.state.is_carried() || !is_agreed {
        return;
    }
    if context.switches().len() > 1 && context.service.wire_id.is_none() {
        builder.problem(id, "the service has ends at several switches and no wire id");
        return;
    }
    match context.service.kind {
        ServiceKind::P2pVc => circuit::plan_p2p(&context, builder),
        ServiceKind::ExchangeLan => lan::plan_lan(&context, builder),
        ServiceKind::P2mpVc | ServiceKind::Mp2mpVc => multipoint::plan_multipoint(&context, builder),
    }
}
