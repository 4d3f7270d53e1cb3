//! The router: VRFs, interfaces, routes, next hops and neighbours.

use serde::{Deserialize, Serialize};

use super::switch::Drop;

/// A VRF with the state of its routes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
pub struct Vrf {
    /// The name.
    pub name: String,
    /// The network namespace; `null` for that of the daemon.
    pub netns: Option<String>,
    /// The table of the kernel.
    pub table: u32,
    /// The source of routes: `netlink`, `fpm:127.0.0.1:2620`.
    pub source: String,
    /// The state of the source.
    pub state: RouteSourceState,
    /// The number of IPv4 routes.
    pub ipv4_routes: u64,
    /// The number of IPv6 routes.
    pub ipv6_routes: u64,
    /// The number of groups of next hops that routes use.
    pub nexthop_groups: u64,
    /// The number of neighbours with a MAC address.
    pub neighbours: u64,
    /// The memory of the lookup tables, in bytes.
    pub fib_bytes: u64,
    /// The number of times that the kernel had to drop events, each of which was followed by a complete reading.
    pub overruns: u64,
    /// The counters of the connections to the kernel and to FRR. VRFs of one namespace share those of the kernel.
    pub source_counters: RouteSourceCounters,
}

/// The counters of the connections over which routes are read.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
pub struct RouteSourceCounters {
    /// The number of messages of the kernel.
    pub kernel_messages: u64,
    /// The number of messages of FRR, by FPM.
    pub fpm_messages: u64,
    /// The number of sessions of FRR.
    pub fpm_sessions: u64,
    /// The number of readings of all routes that ended incomplete, each of which was repeated.
    pub failed_dumps: u64,
    /// The number of times at which somebody turned on the kernel's forwarding, and it was turned off again.
    pub forwarding_resets: u64,
    /// The number of requests that the kernel refused.
    pub refused_requests: u64,
    /// The number of requests for neighbours that were dropped because too many waited.
    pub dropped_probes: u64,
    /// The numbers of messages without effect, or without a part of it, by reason; without reasons at zero.
    pub ignored: Vec<IgnoredMessages>,
}

/// Messages that changed nothing, or not all that they said.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
pub struct IgnoredMessages {
    /// The reason: `encapsulated`, `by_source`, `cached`, `proxy`, `of_bridge`, `other`, `malformed`.
    pub reason: String,
    /// The number of messages.
    pub messages: u64,
}

/// The numbers of the router as a whole.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
pub struct RouterTotals {
    /// The memory of the lookup tables of all VRFs, in bytes.
    pub fib_bytes: u64,
    /// The part of `fib_bytes` that routes use.
    pub fib_used_bytes: u64,
    /// The number of routes, neighbours and next hops beyond the limits, or for which there was no memory.
    pub refused: u64,
    /// The number of routes that the kernel removed without a message.
    pub purged: u64,
}

/// The state of the source of a VRF's routes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum RouteSourceState {
    /// Routes are read for the first time, or again after lost events.
    Reading,
    /// Routes are as the source has them.
    Synchronised,
    /// FRR is not connected; the routes of its last connection forward.
    Away,
    /// The network namespace is gone or cannot be opened.
    NoNamespace,
}

/// An interface of the router with its counters.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
pub struct RouterInterface {
    /// The name, here and in the kernel.
    pub name: String,
    /// The VRF.
    pub vrf: String,
    /// The bridge.
    pub bridge: String,
    /// The VLAN of the bridge; `null` for untagged packets.
    pub vlan: Option<u16>,
    /// The OpenFlow port number; `null` for none.
    pub number: Option<u32>,
    /// The MAC address.
    pub mac: String,
    /// Further MAC addresses at which it receives: those of macvlans over it, which VRRP makes, while they have a carrier and an
    /// IP address; and that of the kernel's interface, if it is another by now.
    pub other_macs: Vec<String>,
    /// The largest layer-3 packet, in bytes.
    pub mtu: u16,
    /// The addresses, each with the length of its prefix.
    pub addresses: Vec<String>,
    /// True if a port of the VLAN has a link.
    pub up: bool,
    /// The number of packets received from the bridge.
    pub rx_packets: u64,
    /// Their bytes, from the Ethernet header on.
    pub rx_bytes: u64,
    /// The number of packets forwarded to the bridge, with those of the kernel.
    pub tx_packets: u64,
    /// Their bytes.
    pub tx_bytes: u64,
    /// The number of packets given to the kernel: routing protocols, ARP, neighbour discovery, packets to the router.
    pub to_kernel: u64,
    /// The packets given to the kernel by class, without classes at zero.
    pub punted: Vec<Punted>,
    /// The number of ICMP errors sent.
    pub icmp_errors: u64,
    /// The ICMP errors by class, without classes at zero.
    pub icmp: Vec<IcmpErrors>,
    /// The number of fragments sent.
    pub fragments: u64,
    /// Dropped packets by reason, without reasons at zero.
    pub drops: Vec<Drop>,
}

/// The packets of one class for the kernel. Each class has a rate of its own in each worker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
pub struct Punted {
    /// The class: `neighbours`, `ospf`, `bgp`, `bfd`, `isis`, `vrrp`, `dhcp`, `glean`, `options`, `local`.
    pub class: String,
    /// The number of packets that the kernel got.
    pub packets: u64,
    /// The number of packets dropped because the class had used up its rate.
    pub limited: u64,
}

/// The ICMP errors of one class.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
pub struct IcmpErrors {
    /// The class: `time_exceeded`, `too_big`, `unreachable`, `parameter_problem`.
    pub class: String,
    /// The number of errors sent.
    pub sent: u64,
    /// The number of errors not sent because of their rate limit.
    pub limited: u64,
}

/// A route as packets follow it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
pub struct Route {
    /// The destination: `10.0.0.0/8`.
    pub prefix: String,
    /// The treatment of packets.
    pub kind: RouteKind,
    /// The program that set the route, as `ip route` names it: `kernel`, `bgp`, `ospf`, `static`.
    pub protocol: String,
    /// The metric of the kernel: the lowest of a prefix wins.
    pub metric: u32,
    /// The next hops; empty unless packets are forwarded.
    pub nexthops: Vec<RouteNextHop>,
}

/// The treatment of packets that follow a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum RouteKind {
    /// Forwarded to a next hop.
    Unicast,
    /// Given to the kernel: an address of the router, or a broadcast address.
    Local,
    /// Dropped in silence.
    Blackhole,
    /// Refused with ICMP "host unreachable" or "no route to destination".
    Unreachable,
    /// Refused with ICMP "administratively prohibited".
    Prohibit,
}

/// A next hop of a route.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
pub struct RouteNextHop {
    /// The gateway; `null` for destinations on the link itself.
    pub gateway: Option<String>,
    /// The interface; `null` if it is none of the router's.
    pub interface: Option<String>,
    /// The share of packets, relative to the other next hops.
    pub weight: u32,
    /// The MAC address of the gateway; `null` while it is unknown.
    pub mac: Option<String>,
    /// True if packets use it: the interface has a link, and the gateway has not failed.
    pub live: bool,
}

/// A page of routes in the order of prefixes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
pub struct RoutePage {
    /// The routes.
    pub routes: Vec<Route>,
    /// The prefix after which the next page begins (`after`); `null` on the last page.
    pub next: Option<String>,
}

/// A group of next hops, which any number of routes share.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
pub struct NextHopGroup {
    /// The number of the group in the lookup tables.
    pub group: u32,
    /// The number of routes.
    pub routes: u64,
    /// The next hops.
    pub nexthops: Vec<RouteNextHop>,
}

/// A neighbour: an address on the link of an interface.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
pub struct Neighbour {
    /// The interface.
    pub interface: String,
    /// The IP address.
    pub address: String,
    /// The MAC address; `null` while it is unknown.
    pub mac: Option<String>,
    /// The state as `ip neigh` names it: `reachable`, `stale`, `failed`.
    pub state: String,
}
