//! Messages as changes of the RIB.

use millrace_fib::Prefix;
use millrace_rib::event::{
    Address, Change, Hop, Hops, Link, LinkKind, Neighbour, NeighbourState, NextHopObject, NextHopObjectKind,
    Object, Route, RouteKind, RouteMode,
};
use millrace_types::Mac;

use crate::wire::{self, Content, DecodeError, Message, nlm_flag, ntf, nud, rtn};

/// `ARPHRD_LOOPBACK`.
const LOOPBACK: u16 = 772;

/// The producer of messages, which decides what a flag says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Origin {
    /// A notification of the kernel.
    Notification,
    /// An object that a dump of the kernel lists.
    Dump,
    /// A message of zebra by FPM: routes and nexthop objects only. A prefix has one route, so that a new one replaces it.
    Fpm,
}

/// The numbers of messages that changed nothing, or not all that they said, by reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Ignored {
    /// Next hops that demand an encapsulation (MPLS, SRv6): packets that only they could take are refused as unreachable.
    pub encapsulated: u64,
    /// IPv6 routes for some sources only.
    pub by_source: u64,
    /// Entries of the kernel's caches.
    pub cached: u64,
    /// Neighbours for which the kernel answers (proxy ARP and ND).
    pub proxies: u64,
    /// Nexthop objects of bridges.
    pub of_bridges: u64,
    /// Objects that no part of the switch follows.
    pub others: u64,
    /// Messages that do not have the format of netlink.
    pub malformed: u64,
}

impl Ignored {
    /// Returns the reasons with their numbers: the name of a reason is that of its metric.
    pub fn by_reason(&self) -> [(&'static str, u64); 7] {
        [
            ("encapsulated", self.encapsulated),
            ("by_source", self.by_source),
            ("cached", self.cached),
            ("proxy", self.proxies),
            ("of_bridge", self.of_bridges),
            ("other", self.others),
            ("malformed", self.malformed),
        ]
    }
}

/// Translates messages, and counts those that it ignores.
#[derive(Clone, Debug, Default)]
pub struct Translator {
    pub ignored: Ignored,
}

impl Translator {
    /// Returns the change that a message tells; `None` if it tells none, which [`Ignored`] counts, or if it is no object.
    ///
    /// # Errors
    /// Returns [`DecodeError`] if the message is malformed, which is counted, too.
    pub fn change(&mut self, message: &Message<'_>, origin: Origin) -> Result<Option<Change>, DecodeError> {
        let content = message.content().inspect_err(|_| self.ignored.malformed += 1)?;
        let (change, object) = match content {
            Content::Link(change, link) => (change, self.of_kernel(origin, || Object::Link(link_of(&link)))),
            Content::Address(change, address) => (
                change,
                self.of_kernel(origin, || Object::Address(address_of(&address))),
            ),
            Content::Neighbour(change, neighbour) => (change, self.neighbour(origin, &neighbour)),
            Content::Route(change, route) => {
                (change, self.route(&route, change, mode(message.flags, origin))?)
            }
            Content::NextHop(change, nexthop) => (change, self.nexthop(&nexthop, change)),
            Content::Other(_) => {
                self.ignored.others += 1;
                return Ok(None);
            }
            Content::Forwarding(_)
            | Content::Error(_)
            | Content::Done(_)
            | Content::Noop
            | Content::Overrun => {
                return Ok(None);
            }
        };
        Ok(object.map(|object| match change {
            wire::Change::New => Change::There(object),
            wire::Change::Removed => Change::Gone(object),
        }))
    }

    fn of_kernel(&mut self, origin: Origin, object: impl FnOnce() -> Object) -> Option<Object> {
        if origin == Origin::Fpm {
            self.ignored.others += 1;
            return None;
        }
        Some(object())
    }

    fn neighbour(&mut self, origin: Origin, neighbour: &wire::Neighbour) -> Option<Object> {
        if neighbour.flags & ntf::PROXY != 0 {
            self.ignored.proxies += 1;
            return None;
        }
        self.of_kernel(origin, || {
            Object::Neighbour(Neighbour {
                ifindex: neighbour.interface,
                address: neighbour.address,
                mac: neighbour.mac.map(Mac),
                state: state(neighbour.state),
                managed: neighbour.flags_ext & ntf::EXT_MANAGED != 0,
                router: neighbour.flags & ntf::ROUTER != 0,
            })
        })
    }

    fn route(
        &mut self,
        route: &wire::Route<'_>,
        change: wire::Change,
        mode: RouteMode,
    ) -> Result<Option<Object>, DecodeError> {
        if route.is_cached() {
            self.ignored.cached += 1;
            return Ok(None);
        }
        if route.source_len > 0 {
            self.ignored.by_source += 1;
            return Ok(None);
        }
        let Ok(prefix) = Prefix::new(route.destination, route.prefix_len) else {
            self.ignored.malformed += 1;
            return Ok(None);
        };
        let kind = match route.kind {
            rtn::UNICAST => RouteKind::Unicast,
            rtn::LOCAL => RouteKind::Local,
            rtn::BROADCAST => RouteKind::Broadcast,
            rtn::ANYCAST => RouteKind::Anycast,
            rtn::MULTICAST => RouteKind::Multicast,
            rtn::BLACKHOLE => RouteKind::Blackhole,
            rtn::UNREACHABLE => RouteKind::Unreachable,
            rtn::PROHIBIT => RouteKind::Prohibit,
            rtn::THROW => RouteKind::Throw,
            // A removal by FPM does not tell the type.
            _ if change == wire::Change::Removed => RouteKind::Unicast,
            _ => {
                self.ignored.others += 1;
                return Ok(None);
            }
        };
        let (hops, kind) = self.hops(route, kind);
        Ok(Some(Object::Route(Route {
            table: route.table,
            prefix,
            kind,
            metric: route.priority,
            tos: route.tos,
            protocol: route.protocol,
            source: route.preferred_source,
            mtu: route.mtu,
            hops,
            mode,
        })))
    }

    /// Returns the next hops that the switch can use, and the type of the route with these.
    fn hops(&mut self, route: &wire::Route<'_>, kind: RouteKind) -> (Hops, RouteKind) {
        if route.nexthop_id != 0 {
            // The kernel shows the type of the object (a blackhole), with which the route goes and changes.
            return (Hops::Object(route.nexthop_id), RouteKind::Unicast);
        }
        let mut is_reduced = false;
        let mut usable = route
            .hops()
            .filter(|hop| {
                let is_plain = hop.encapsulation == 0;
                is_reduced |= !is_plain;
                is_plain
            })
            .map(|hop| Hop {
                ifindex: hop.interface,
                gateway: hop.gateway,
                weight: hop.weight,
                onlink: hop.is_on_link(),
            });
        let hops = if route.hops().is_multipath() {
            let many: Vec<Hop> = usable.collect();
            if many.is_empty() {
                Hops::None
            } else {
                Hops::Many(many)
            }
        } else {
            usable.next().map_or(Hops::None, Hops::One)
        };
        if is_reduced {
            self.ignored.encapsulated += 1;
            if hops == Hops::None {
                return (hops, RouteKind::Unreachable);
            }
        }
        (hops, kind)
    }

    fn nexthop(&mut self, nexthop: &wire::NextHop<'_>, change: wire::Change) -> Option<Object> {
        if nexthop.is_of_bridge {
            self.ignored.of_bridges += 1;
            return None;
        }
        let kind = if change == wire::Change::Removed {
            NextHopObjectKind::Unknown
        } else if let Some(group) = &nexthop.group {
            NextHopObjectKind::Group(group.members().map(|member| (member.id, member.weight)).collect())
        } else if nexthop.encapsulation != 0 {
            self.ignored.encapsulated += 1;
            NextHopObjectKind::Blackhole
        } else if nexthop.is_blackhole {
            NextHopObjectKind::Blackhole
        } else {
            NextHopObjectKind::Hop(Hop {
                ifindex: nexthop.interface,
                gateway: nexthop.gateway,
                weight: 1,
                onlink: nexthop.flags & wire::rtnh_flag::ONLINK != 0,
            })
        };
        Some(Object::NextHop(NextHopObject { id: nexthop.id, kind }))
    }
}

fn mode(flags: u16, origin: Origin) -> RouteMode {
    match origin {
        Origin::Fpm => RouteMode::Replace,
        Origin::Dump => RouteMode::Append,
        Origin::Notification if flags & nlm_flag::REPLACE != 0 => RouteMode::Replace,
        Origin::Notification if flags & nlm_flag::APPEND != 0 => RouteMode::Append,
        Origin::Notification => RouteMode::Add,
    }
}

fn link_of(link: &wire::Link<'_>) -> Link {
    let kind = match link.kind {
        _ if link.hardware == LOOPBACK => LinkKind::Loopback,
        b"tun" => LinkKind::Tun,
        b"vrf" => LinkKind::Vrf {
            table: link.vrf_table,
        },
        b"macvlan" => LinkKind::Macvlan { lower: link.lower },
        _ => LinkKind::Other,
    };
    Link {
        ifindex: link.interface,
        name: String::from_utf8_lossy(link.name).into_owned(),
        up: link.is_up(),
        carrier: link.is_running(),
        mtu: link.mtu,
        mac: link.mac.map_or(Mac::ZERO, Mac),
        kind,
    }
}

fn address_of(address: &wire::Address) -> Address {
    Address {
        ifindex: address.interface,
        address: address.local,
        prefix_len: address.prefix_len,
        peer: (address.peer != address.local).then_some(address.peer),
    }
}

fn state(number: u16) -> NeighbourState {
    match number {
        nud::INCOMPLETE => NeighbourState::Incomplete,
        nud::REACHABLE => NeighbourState::Reachable,
        nud::STALE => NeighbourState::Stale,
        nud::DELAY => NeighbourState::Delay,
        nud::PROBE => NeighbourState::Probe,
        nud::FAILED => NeighbourState::Failed,
        nud::NOARP => NeighbourState::NoArp,
        nud::PERMANENT => NeighbourState::Permanent,
        _ => NeighbourState::None,
    }
}
