//! Peering LANs. Established traffic is unicast between registered MAC addresses; ARP requests and neighbour
//! solicitations become unicast to the owner of the address; nothing is flooded.
//!
//! ```text
//! 0, 1       the tags of the end are popped, so that table 2 sees none
//! 2 admit    200 router solicitations and advertisements, redirects and DHCP of the whole LAN: drop
//!            160 ARP and neighbour discovery of the end's own addresses: to 3, multicast ones through a storm meter.
//!                Unicast neighbour discovery may omit the link-layer address
//!            150 every other neighbour solicitation and advertisement: drop
//!            100 the policy's EtherTypes from a registered MAC address: to 3
//! 4 forward  110 to an address of the sender itself: drop
//!            100 by destination MAC; ARP by target, solicitation by target: the owner's MAC is written
//! ```

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::collections::BTreeSet;

use millrace_flow::{Action, Field};
use millrace_ix_model::{
    Config, ConfigId, Connection, Exchange, LanPolicy, ServiceKind, VlanConfig, link_local,
};
use millrace_types::{Mac, MeterId, PortNo};

use crate::builder::{
    Builder, FlowBuilder, RESERVED_PRIORITY, actions, push_tag, reserved_addresses, set, set_vid,
};
use crate::entry::{Entry, EntryId, Matching};
use crate::layout::{
    ADMIT, CookieFields, CookieKind, FORWARD, INNER, Metadata, POLICE, PORT, PROTECT, RateLimitedTraffic,
    storm_meter,
};
use crate::service::{End, ServiceContext};
use crate::tags::{self, PRIORITY};

/// The priority of drops for the whole LAN.
const DROP_PRIORITY: u16 = 200;
/// The priority of ARP and neighbour discovery for the end's own addresses.
const OWN_PRIORITY: u16 = 160;
/// The priority of the drop of all other neighbour discovery.
const FOREIGN_PRIORITY: u16 = 150;
/// The priority of frames to the sender's own addresses.
const TO_SELF_PRIORITY: u16 = 110;
/// The priority of frames that belong to no end.
const STRAY_PRIORITY: u16 = 1;
/// The bit of an Ethernet address that marks a group address.
pub(crate) const GROUP_BIT: u64 = 0x0100_0000_0000;
/// The maximum rate of frames that the controller gets from an end in quarantine, in packets a second.
const QUARANTINE_PPS: u32 = 50;

pub(crate) const IPV4: u16 = 0x0800;
pub(crate) const ARP: u16 = 0x0806;
pub(crate) const IPV6: u16 = 0x86dd;
pub(crate) const UDP: u8 = 17;
pub(crate) const ICMPV6: u8 = 58;

/// ICMPv6 types (RFC 4861, section 4).
const ROUTER_SOLICITATION: u8 = 133;
const ROUTER_ADVERTISEMENT: u8 = 134;
const NEIGHBOUR_SOLICITATION: u8 = 135;
const NEIGHBOUR_ADVERTISEMENT: u8 = 136;
const REDIRECT: u8 = 137;
/// UDP ports of DHCP servers and clients (RFC 2131, RFC 8415).
const DHCP_PORTS: [u16; 2] = [67, 68];
const DHCPV6_PORTS: [u16; 2] = [546, 547];

/// The addresses of an end.
pub(crate) struct Addresses {
    /// The MAC addresses, the newest last.
    pub(crate) macs: Vec<Mac>,
    v4: Vec<Ipv4Addr>,
    /// The IPv6 addresses; a link-local address that follows from a MAC address has that MAC address.
    v6: Vec<(Ipv6Addr, Option<Mac>)>,
}

/// Returns the addresses of an end that are valid now.
pub(crate) fn addresses(context: &ServiceContext<'_>, end: &End<'_>) -> Addresses {
    let now = context.settings.now;
    let mut macs: Vec<_> = context
        .index
        .macs(end.id)
        .filter(|mac| mac.is_valid(now))
        .collect();
    // The sort keeps the order of registration among addresses that became valid at the same time.
    macs.sort_by_key(|mac| mac.valid_from);
    let macs: Vec<_> = macs.iter().map(|mac| mac.address).collect();
    let (mut v4, mut v6) = (Vec::new(), Vec::new());
    let ips = context.index.ips(end.id);
    for ip in ips.filter(|ip| ip.is_valid(now)) {
        match ip.address {
            IpAddr::V4(address) => v4.push(address),
            IpAddr::V6(address) => {
                v6.push((
                    address,
                    macs.iter().copied().find(|mac| link_local(*mac) == address),
                ));
            }
        }
    }
    // If an IPv6 address is registered, each MAC address also gives a link-local address (RFC 4291, appendix A).
    let derived: Vec<_> = macs
        .iter()
        .map(|mac| (link_local(*mac), Some(*mac)))
        .filter(|(address, _)| !v6.is_empty() && v6.iter().all(|(registered, _)| registered != address))
        .collect();
    v6.extend(derived);
    Addresses { macs, v4, v6 }
}

/// Adds the entries of a peering LAN.
pub(crate) fn plan_lan(context: &ServiceContext<'_>, builder: &mut Builder) {
    let policy = context
        .service
        .policy
        .and_then(|policy| context.exchange.policies.get(&policy));
    let Some(policy) = policy else {
        builder.problem(context.id, "the peering LAN has no policy");
        return;
    };
    tags::plan_from_trunks(context, builder);
    for switch in context.switches() {
        for matching in never_admitted(context) {
            builder.flow(
                switch,
                FlowBuilder::new(ADMIT, DROP_PRIORITY, matching, drop_cookie(context)),
            );
        }
    }
    for end in context.ends.iter().filter(|end| !end.config.shut_down) {
        tags::plan_untagged_ingress(context, end, builder);
        if !end.config.quarantine.is_over() {
            plan_quarantine(context, end, builder);
            continue;
        }
        tags::plan_police(context, end, None, builder);
        let own = addresses(context, end);
        plan_admission(context, end, &own, policy, builder);
        plan_delivery(context, end, &own, builder);
        tags::plan_egress(context, end, None, builder);
        for sibling in siblings(context, end) {
            tags::plan_egress(context, end, Some(sibling), builder);
        }
        tags::plan_to_trunk(context, end, builder);
    }
}

/// Returns the other ends of the service on the same ports: the customers of one reseller.
pub(crate) fn siblings<'a, 'b>(
    context: &'a ServiceContext<'b>,
    end: &'a End<'b>,
) -> impl Iterator<Item = &'a End<'b>> {
    let others = context.ends.iter().filter(|other| other.id != end.id);
    others.filter(|other| other.shares_ports(end) && !other.config.shut_down)
}

fn drop_cookie(context: &ServiceContext<'_>) -> CookieFields {
    CookieFields {
        kind: CookieKind::Drop,
        object: context.service.index.raw(),
        generation: 0,
    }
}

/// Returns the matches of frames that no member may send.
fn never_admitted(context: &ServiceContext<'_>) -> Vec<Matching> {
    let service = || context.matching(Metadata::default(), 0);
    let icmpv6 = |kind: u8| {
        let icmpv6 = service().with(Field::EthType, IPV6).with(Field::IpProto, ICMPV6);
        icmpv6.with(Field::Icmpv6Type, kind)
    };
    let udp = |ethertype: u16, port: u16| {
        let udp = service()
            .with(Field::EthType, ethertype)
            .with(Field::IpProto, UDP);
        udp.with(Field::UdpDst, port)
    };
    let neighbours = [ROUTER_SOLICITATION, ROUTER_ADVERTISEMENT, REDIRECT].map(icmpv6);
    let dhcp = DHCP_PORTS.map(|port| udp(IPV4, port));
    let dhcpv6 = DHCPV6_PORTS.map(|port| udp(IPV6, port));
    neighbours.into_iter().chain(dhcp).chain(dhcpv6).collect()
}

/// Adds the entries of an end in quarantine: its frames go nowhere, and the engine gets some of them to judge.
fn plan_quarantine(context: &ServiceContext<'_>, end: &End<'_>, builder: &mut Builder) {
    let meter = storm_meter(end.config, RateLimitedTraffic::PacketIn);
    builder.packet_meter(end.switch, meter, QUARANTINE_PPS);
    let matching = context.matching(context.entered_by(end), Metadata::INGRESS_END);
    // The entry outranks the drops of the whole LAN, because the engine looks for exactly those frames.
    let line = FlowBuilder::new(ADMIT, DROP_PRIORITY + 1, matching, end.cookie(CookieKind::End));
    builder.flow(
        end.switch,
        line.meter(meter).apply(vec![Action::output(PortNo::CONTROLLER)]),
    );
}

/// Adds, at connections with an end in quarantine, the entries of tables 0 and 1 for frames that belong to no end: those to
/// reserved addresses, and those with other tags. The engine gets some of them to judge. One connection may have ends of
/// several LANs in quarantine, which share the entries of table 0 and the meter of the first one.
pub(crate) fn plan_strays(exchange: &Exchange, builder: &mut Builder) {
    let is_watched = |config: &Config| {
        let service = exchange.services.get(&config.service);
        let is_lan = service.is_some_and(|service| {
            service.kind == ServiceKind::ExchangeLan && service.state.is_carried() && service.policy.is_some()
        });
        is_lan && !config.shut_down && !config.quarantine.is_over()
    };
    let mut connections = BTreeSet::new();
    for config in exchange.configs.values().filter(|config| is_watched(config)) {
        let Some(connection) = exchange.connections.get(&config.connection) else {
            continue;
        };
        let cookie = CookieFields {
            kind: CookieKind::UnassignedFrames,
            object: config.connection.0,
            generation: 0,
        };
        let meter = storm_meter(config, RateLimitedTraffic::PacketIn);
        plan_inner_strays(config, connection, cookie, builder);
        if !connections.insert(config.connection) {
            continue;
        }
        for port in &connection.ports {
            let from_port = |matching: Matching| matching.with(Field::InPort, port.port.raw());
            let mut watch = |priority: u16, matching: Matching| {
                let line = FlowBuilder::new(PORT, priority, from_port(matching), cookie);
                let to_engine = vec![Action::output(PortNo::CONTROLLER)];
                builder.flow(port.switch, line.meter(meter).apply(to_engine));
            };
            watch(RESERVED_PRIORITY + 1, reserved_addresses());
            watch(STRAY_PRIORITY, Matching::any());
        }
    }
}

/// Adds the entry of table 1 for frames with the outer tag of an end, and another inner one. The engine gets them with their
/// outer tag.
fn plan_inner_strays(config: &Config, connection: &Connection, cookie: CookieFields, builder: &mut Builder) {
    let VlanConfig::Qinq { outer, ethertype, .. } = config.vlan else {
        return;
    };
    let meter = storm_meter(config, RateLimitedTraffic::PacketIn);
    let to_engine = actions([
        push_tag(ethertype.ethertype()),
        set_vid(outer.raw()),
        Some(Action::output(PortNo::CONTROLLER)),
    ]);
    for port in &connection.ports {
        let matching = tags::with_outer_tag(connection, outer);
        let line = FlowBuilder::new(INNER, STRAY_PRIORITY, matching, cookie);
        builder.flow(port.switch, line.meter(meter).apply(to_engine.clone()));
    }
}

/// Returns the end and its MAC address, if an entry admits frames of one MAC address.
pub fn admitted_mac(id: &EntryId, entry: &Entry) -> Option<(ConfigId, Mac)> {
    let (EntryId::Flow(id), Entry::Flow(flow)) = (id, entry) else {
        return None;
    };
    let fields = CookieFields::from_cookie(flow.cookie)?;
    let (source, mask) = id.matching.field(Field::EthSrc)?;
    let is_admission = id.table == ADMIT && fields.kind == CookieKind::End && mask.is_none();
    let mac = Mac::from_u64(u64::try_from(source).ok()?);
    is_admission.then_some((ConfigId(fields.object), mac))
}

/// Adds the entries of table 2 that admit an end's frames.
fn plan_admission(
    context: &ServiceContext<'_>,
    end: &End<'_>,
    own: &Addresses,
    policy: &LanPolicy,
    builder: &mut Builder,
) {
    let broadcast = storm_meter(end.config, RateLimitedTraffic::Broadcast);
    let multicast = storm_meter(end.config, RateLimitedTraffic::Multicast);
    builder.packet_meter(end.switch, broadcast, policy.broadcast_pps);
    builder.packet_meter(end.switch, multicast, policy.multicast_pps);
    let cookie = end.cookie(CookieKind::End);
    // A frame that still has a tag here has one tag more than the end, and is not admitted.
    let from_end = || {
        context
            .matching(context.entered_by(end), Metadata::INGRESS_END)
            .with(Field::VlanVid, 0u16)
    };
    let mut admit = |priority: u16, matching: Matching, meter: Option<MeterId>| {
        let line = FlowBuilder::new(ADMIT, priority, matching, cookie).goto(POLICE);
        builder.flow(end.switch, meter.into_iter().fold(line, FlowBuilder::meter));
    };
    for mac in &own.macs {
        let from_mac = || from_end().with(Field::EthSrc, mac.to_u64());
        for ethertype in policy.ethertypes.iter().filter(|ethertype| **ethertype != ARP) {
            admit(PRIORITY, from_mac().with(Field::EthType, *ethertype), None);
        }
        if policy.ethertypes.contains(&ARP) {
            // No probe passes (RFC 5227, section 2.1.1): a host that probes for its own address would give the address up.
            for address in &own.v4 {
                let arp = from_mac()
                    .with(Field::EthType, ARP)
                    .with(Field::ArpSha, mac.to_u64())
                    .with(Field::ArpSpa, address.to_bits());
                admit(OWN_PRIORITY, arp.clone(), None);
                admit(
                    OWN_PRIORITY + 1,
                    arp.with(Field::EthDst, Mac::BROADCAST.to_u64()),
                    Some(broadcast),
                );
            }
        }
        if policy.ethertypes.contains(&IPV6) {
            let discovery = |kind: u8| {
                let icmpv6 = from_mac().with(Field::EthType, IPV6).with(Field::IpProto, ICMPV6);
                icmpv6.with(Field::Icmpv6Type, kind)
            };
            let solicitation = || discovery(NEIGHBOUR_SOLICITATION);
            let to_group = |matching: Matching| matching.masked(Field::EthDst, GROUP_BIT, GROUP_BIT);
            let to_host = |matching: Matching| matching.masked(Field::EthDst, 0u64, GROUP_BIT);
            // Duplicate address detection, which has no source address, does not pass: a host that tests its own address would
            // give the address up (RFC 4862, section 5.4.3).
            for (address, _) in &own.v6 {
                // Without the option, both fields are zero. Only unicast messages may omit it (RFC 4861, sections 4.3 and
                // 7.2.4): hosts omit it in their answers to unicast probes.
                let from_address = |link_layer: Mac| {
                    let message = solicitation().with(Field::Ipv6Src, address.to_bits());
                    message.with(Field::Ipv6NdSll, link_layer.to_u64())
                };
                admit(OWN_PRIORITY, from_address(*mac), None);
                admit(OWN_PRIORITY + 1, to_group(from_address(*mac)), Some(multicast));
                admit(OWN_PRIORITY, to_host(from_address(Mac::ZERO)), None);
                let for_address = |link_layer: Mac| {
                    let message =
                        discovery(NEIGHBOUR_ADVERTISEMENT).with(Field::Ipv6NdTarget, address.to_bits());
                    message.with(Field::Ipv6NdTll, link_layer.to_u64())
                };
                admit(OWN_PRIORITY, for_address(*mac), None);
                admit(OWN_PRIORITY, to_host(for_address(Mac::ZERO)), None);
            }
        }
    }
    if policy.ethertypes.contains(&IPV6) {
        for kind in [NEIGHBOUR_SOLICITATION, NEIGHBOUR_ADVERTISEMENT] {
            let any = from_end().with(Field::EthType, IPV6).with(Field::IpProto, ICMPV6);
            let line = FlowBuilder::new(ADMIT, FOREIGN_PRIORITY, any.with(Field::Icmpv6Type, kind), cookie);
            builder.flow(end.switch, line);
        }
    }
}

/// Adds the entries of table 4, at every switch of the LAN, that send frames for an end's addresses to the end.
fn plan_delivery(context: &ServiceContext<'_>, end: &End<'_>, own: &Addresses, builder: &mut Builder) {
    let cookie = end.cookie(CookieKind::End);
    let Some(newest) = own.macs.last() else {
        return;
    };
    // Each element is a match and the MAC address to write, if any: frames to a MAC address of the end, and
    // requests for its IP addresses.
    let mut questions = Vec::new();
    for mac in &own.macs {
        questions.push((Matching::any().with(Field::EthDst, mac.to_u64()), None));
    }
    for address in &own.v4 {
        let arp = Matching::any()
            .with(Field::EthDst, Mac::BROADCAST.to_u64())
            .with(Field::EthType, ARP)
            .with(Field::ArpOp, 1u8)
            .with(Field::ArpTpa, address.to_bits());
        questions.push((arp, Some(*newest)));
    }
    for (address, derived_from) in &own.v6 {
        let [.., x, y, z] = address.octets();
        // The Ethernet address of the solicited-node group (RFC 4291, section 2.7.1; RFC 2464, section 7).
        let group = Mac([0x33, 0x33, 0xff, x, y, z]);
        let solicitation = Matching::any()
            .with(Field::EthDst, group.to_u64())
            .with(Field::EthType, IPV6)
            .with(Field::IpProto, ICMPV6)
            .with(Field::Icmpv6Type, NEIGHBOUR_SOLICITATION)
            .with(Field::Ipv6NdTarget, address.to_bits());
        questions.push((solicitation, Some(derived_from.unwrap_or(*newest))));
    }
    for switch in context.switches() {
        for (question, mac) in &questions {
            let asked = |fields: Metadata, mask: u64| {
                let (value, mask) = context
                    .matching(fields, mask)
                    .field(Field::Metadata)
                    .unwrap_or_default();
                question
                    .clone()
                    .masked(Field::Metadata, value, mask.unwrap_or(u64::MAX.into()))
            };
            let write = actions([mac.and_then(|mac| set(Field::EthDst, mac.to_u64()))]);
            let line =
                FlowBuilder::new(FORWARD, PRIORITY, asked(Metadata::default(), 0), cookie).apply(write);
            builder.flow(switch, line.egress_end(end.index()).goto(PROTECT));
            if switch == end.switch {
                let itself = asked(context.entered_by(end), Metadata::INGRESS_END | Metadata::TRUNK);
                builder.flow(
                    switch,
                    FlowBuilder::new(FORWARD, TO_SELF_PRIORITY, itself, cookie),
                );
            }
        }
    }
}
