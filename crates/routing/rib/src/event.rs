//! Events: objects of the kernel and of FPM that are there or gone, dumps, and losses.
//!
//! A producer (a netlink socket, an FPM connection, a test) hands over what it read, in the order in which it read it.
//! The [`Rib`](crate::Rib) knows the rules that the kernel applies without saying so.

use std::net::IpAddr;

use millrace_fib::{Family, Prefix};
use millrace_types::Mac;

/// The number that the agent gave to a network namespace.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Netns(pub u32);

/// An event of one namespace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Event {
    pub netns: Netns,
    pub source: Source,
    pub change: Change,
}

/// The producer of an event.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Source {
    /// A netlink socket of the namespace.
    Kernel,
    /// A connection of FRR's zebra, which is the source of routes and next-hop objects only.
    Fpm,
}

/// The news of an event.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Change {
    /// An object is there: it is new, or its values are new, or a dump lists it.
    There(Object),
    /// An object is gone.
    Gone(Object),
    /// The answer to a dump request begins: objects of this kind that are not named before the matching `DumpEnds` are
    /// gone. Notifications may stand between the two.
    DumpBegins(Dump),
    /// The answer to a dump request is complete.
    DumpEnds(Dump),
    /// The answer to a dump request is not complete (the kernel set `NLM_F_DUMP_INTR`, or the socket failed): nothing
    /// may be concluded from what it did not name. The RIB asks again.
    DumpFails(Dump),
    /// Messages were lost (ENOBUFS): the RIB asks for dumps of all that it needs.
    Lost,
    /// The namespace exists and its socket is open; dumps may be asked for. Of FPM: zebra has connected, and its replay
    /// begins.
    Opened,
    /// The namespace is gone, or its socket failed. Of FPM: the connection ended.
    Closed,
}

/// An object of the kernel, or a route or next-hop object of FPM.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Object {
    Link(Link),
    Address(Address),
    Neighbour(Neighbour),
    Route(Route),
    NextHop(NextHopObject),
}

/// A kind of objects that the kernel lists on request.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Dump {
    Links,
    Addresses,
    Neighbours,
    /// Routes of one family, of all tables.
    Routes(Family),
    NextHops,
}

/// A network interface of the kernel (`RTM_NEWLINK`).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Link {
    /// The kernel's number, from 1.
    pub ifindex: u32,
    /// The name, at most 15 bytes; empty in a `Gone` that does not tell it.
    pub name: String,
    /// True if the interface is administratively up (`IFF_UP`).
    pub up: bool,
    /// True if the interface has a carrier (`IFF_LOWER_UP`).
    pub carrier: bool,
    /// The MTU of IP packets, in bytes.
    pub mtu: u32,
    /// The MAC address; zero for interfaces that have none.
    pub mac: Mac,
    pub kind: LinkKind,
}

/// A kind of interface, as far as routing distinguishes them.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum LinkKind {
    Loopback,
    Tun,
    /// A VRF device and its table.
    Vrf {
        table: u32,
    },
    /// A macvlan over another interface, whose ifindex is `lower`.
    Macvlan {
        lower: u32,
    },
    Other,
}

/// An address of an interface (`RTM_NEWADDR`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Address {
    pub ifindex: u32,
    /// The address of this machine (`IFA_LOCAL`, or `IFA_ADDRESS` where that is absent).
    pub address: IpAddr,
    /// The prefix length: 0 to 32 or 128.
    pub prefix_len: u8,
    /// The other end of a point-to-point interface, where it differs from `address`.
    pub peer: Option<IpAddr>,
}

/// A neighbour (`RTM_NEWNEIGH`), or an ARP or ND entry.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Neighbour {
    pub ifindex: u32,
    pub address: IpAddr,
    /// The MAC address; none while it is not known.
    pub mac: Option<Mac>,
    pub state: NeighbourState,
    /// True if the kernel keeps the neighbour fresh (`NTF_EXT_MANAGED`).
    pub managed: bool,
    /// True if the neighbour is a router (`NTF_ROUTER`).
    pub router: bool,
}

/// The state of a neighbour (`NUD_*`; RFC 4861, section 7.3.2).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum NeighbourState {
    None,
    Incomplete,
    Reachable,
    Stale,
    Delay,
    Probe,
    Failed,
    NoArp,
    Permanent,
}

impl NeighbourState {
    /// Returns true if packets may be sent to the neighbour's MAC address.
    pub const fn is_valid(self) -> bool {
        matches!(
            self,
            NeighbourState::Reachable
                | NeighbourState::Stale
                | NeighbourState::Delay
                | NeighbourState::Probe
                | NeighbourState::NoArp
                | NeighbourState::Permanent
        )
    }

    /// Returns true if the kernel neither asks for the neighbour nor forgets it.
    pub const fn is_static(self) -> bool {
        matches!(self, NeighbourState::NoArp | NeighbourState::Permanent)
    }
}

/// A route (`RTM_NEWROUTE`).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Route {
    pub table: u32,
    pub prefix: Prefix,
    pub kind: RouteKind,
    /// The kernel's priority: the lowest wins. IPv4 has 0 where none was given, IPv6 1024.
    pub metric: u32,
    /// The type of service that the route is for; the RIB follows routes with 0 only.
    pub tos: u8,
    /// The origin (`RTPROT_*`): 2 kernel, 3 boot, 4 static, 186 BGP, 188 OSPF.
    pub protocol: u8,
    /// The preferred source address (`RTA_PREFSRC`).
    pub source: Option<IpAddr>,
    /// The MTU of the route (`RTAX_MTU`), in bytes; 0 if it has none of its own.
    pub mtu: u32,
    pub hops: Hops,
    /// The place of the route among those with the same prefix, type of service and metric; used by `There` only.
    pub mode: RouteMode,
}

/// The type of a route (`RTN_*`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum RouteKind {
    Unicast,
    Local,
    Broadcast,
    /// Also of IPv6: `ff00::/8`.
    Multicast,
    /// An anycast address of this machine; treated as `Local`.
    Anycast,
    Blackhole,
    Unreachable,
    Prohibit,
    /// The search goes on in the next table; the RIB does not follow it.
    Throw,
}

/// The place of a new route (the flags of its netlink message).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum RouteMode {
    /// Before its equals; also for a route that has none.
    Add,
    /// Instead of the first of its equals (`NLM_F_REPLACE`).
    Replace,
    /// Behind its equals (`NLM_F_APPEND`), and the routes of a dump.
    Append,
}

/// The next hops of a route.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Hops {
    /// None: a blackhole, or a route that a `Gone` does not tell in full.
    None,
    One(Hop),
    /// Several (`RTA_MULTIPATH`), at most 65,535.
    Many(Vec<Hop>),
    /// Those of a next-hop object or group (`RTA_NH_ID`).
    Object(u32),
}

/// A next hop of a route.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Hop {
    /// The egress interface; 0 if none is named.
    pub ifindex: u32,
    /// The gateway, of either family (`RTA_GATEWAY`, `RTA_VIA`); none for a connected route.
    pub gateway: Option<IpAddr>,
    /// The weight, from 1 to 256 (the kernel sends it less one).
    pub weight: u16,
    /// True if the gateway is on the link though no address says so (`RTNH_F_ONLINK`).
    pub onlink: bool,
}

/// A next-hop object or group (`RTM_NEWNEXTHOP`).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NextHopObject {
    /// The number, from 1.
    pub id: u32,
    pub kind: NextHopObjectKind,
}

/// The contents of a next-hop object.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NextHopObjectKind {
    /// One next hop; its weight is 1.
    Hop(Hop),
    Blackhole,
    /// A group: numbers of objects, and weights from 1 to 65,536. Resilient groups are read as plain groups: the FIB's
    /// groups are resilient all by themselves.
    Group(Vec<(u32, u32)>),
    /// Not told: in a `Gone`.
    Unknown,
}
