//! A RIB with one VRF and three interfaces, and short names for events.

use std::collections::BTreeSet;
use std::net::IpAddr;

use millrace_fib::{Fib, GroupId, NextHopKind, NextHops, Prefix};
use millrace_rib::event::{
    Address, Change, Dump, Event, Hop, Hops, Link, LinkKind, Neighbour, NeighbourState, Netns, NextHopObject,
    NextHopObjectKind, Object, Route, RouteKind, RouteMode, Source,
};
use millrace_rib::{Action, Limits, Rib, VrfId};
use millrace_types::{Duration, Mac, Time};

pub(crate) const NETNS: Netns = Netns(7);
pub(crate) const MAIN: u32 = 254;
pub(crate) const LOCAL: u32 = 255;

pub(crate) struct World {
    pub(crate) rib: Rib,
    pub(crate) vrf: VrfId,
    pub(crate) fib: Fib,
    pub(crate) next_hops: NextHops,
    pub(crate) now: Time,
}

/// A next hop as a packet takes it: treatment, interface, gateway, MAC address.
pub(crate) type Seen = (String, u16, Option<IpAddr>, Mac);

pub(crate) fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

pub(crate) fn prefix(text: &str) -> Prefix {
    text.parse().unwrap()
}

pub(crate) fn mac(last: u8) -> Mac {
    Mac([2, 0, 0, 0, 0, last])
}

/// The link of an interface: link 1 is `lo`; links 2 to 4 are interfaces 12 to 14 of the router.
pub(crate) fn link(ifindex: u32, up: bool, carrier: bool) -> Link {
    Link {
        ifindex,
        name: if ifindex == 1 {
            "lo".into()
        } else {
            format!("v{ifindex}")
        },
        up,
        carrier,
        mtu: 1500,
        mac: mac(100 + ifindex as u8),
        kind: if ifindex == 1 {
            LinkKind::Loopback
        } else {
            LinkKind::Tun
        },
    }
}

pub(crate) fn hop(ifindex: u32, gateway: &str) -> Hop {
    Hop {
        ifindex,
        gateway: if gateway.is_empty() {
            None
        } else {
            Some(ip(gateway))
        },
        weight: 1,
        onlink: false,
    }
}

pub(crate) fn route(text: &str, hops: Hops) -> Route {
    let prefix = prefix(text);
    Route {
        table: MAIN,
        prefix,
        kind: RouteKind::Unicast,
        metric: 0,
        tos: 0,
        protocol: 4,
        source: None,
        mtu: 0,
        hops,
        mode: RouteMode::Add,
    }
}

pub(crate) fn connected(text: &str, ifindex: u32) -> Route {
    Route {
        protocol: 2,
        ..route(text, Hops::One(hop(ifindex, "")))
    }
}

pub(crate) fn local(text: &str, ifindex: u32) -> Route {
    Route {
        table: LOCAL,
        kind: RouteKind::Local,
        ..connected(text, ifindex)
    }
}

pub(crate) fn address(ifindex: u32, text: &str) -> Address {
    let prefix = text.split_once('/').unwrap();
    Address {
        ifindex,
        address: ip(prefix.0),
        prefix_len: prefix.1.parse().unwrap(),
        peer: None,
    }
}

pub(crate) fn neighbour(ifindex: u32, address: &str, state: NeighbourState, last: u8) -> Neighbour {
    Neighbour {
        ifindex,
        address: ip(address),
        mac: (last != 0).then(|| mac(last)),
        state,
        managed: false,
        router: false,
    }
}

impl World {
    pub(crate) fn new(source: Source) -> World {
        World::with(source, Limits::default())
    }

    /// A world whose links are up, with addresses 10.0.N.1/24 and 2001:db8:N::1/64 on link N.
    pub(crate) fn with(source: Source, limits: Limits) -> World {
        let mut rib = Rib::new(limits);
        let (vrf, fib) = rib.add_vrf(NETNS, MAIN, source);
        for ifindex in 2..=4u16 {
            rib.add_interface(vrf, NETNS, &format!("v{ifindex}"), 10 + ifindex);
        }
        let next_hops = rib.next_hops();
        let mut world = World {
            rib,
            vrf,
            fib,
            next_hops,
            now: Time::from_secs(1),
        };
        world.kernel(Change::Opened);
        world.there(Object::Link(link(1, true, true)));
        world.there(Object::Route(local("127.0.0.0/8", 1)));
        for ifindex in 2..=4 {
            world.link_with_addresses(ifindex);
        }
        world
    }

    pub(crate) fn link_with_addresses(&mut self, ifindex: u32) {
        self.there(Object::Link(link(ifindex, true, true)));
        self.there(Object::Address(address(ifindex, &format!("10.0.{ifindex}.1/24"))));
        self.there(Object::Address(address(
            ifindex,
            &format!("2001:db8:{ifindex}::1/64"),
        )));
        self.there(Object::Route(local(&format!("10.0.{ifindex}.1/32"), ifindex)));
        self.there(Object::Route(connected(&format!("10.0.{ifindex}.0/24"), ifindex)));
        self.there(Object::Route(Route {
            kind: RouteKind::Broadcast,
            ..local(&format!("10.0.{ifindex}.255/32"), ifindex)
        }));
        self.there(Object::Route(Route {
            metric: 256,
            ..connected(&format!("2001:db8:{ifindex}::/64"), ifindex)
        }));
    }

    pub(crate) fn event(&mut self, source: Source, change: Change) {
        let event = Event {
            netns: NETNS,
            source,
            change,
        };
        self.rib.handle(event, self.now);
        self.reclaim();
    }

    pub(crate) fn kernel(&mut self, change: Change) {
        self.event(Source::Kernel, change);
    }

    pub(crate) fn there(&mut self, object: Object) {
        self.kernel(Change::There(object));
    }

    pub(crate) fn gone(&mut self, object: Object) {
        self.kernel(Change::Gone(object));
    }

    pub(crate) fn route(&mut self, text: &str, hops: Hops) {
        self.there(Object::Route(route(text, hops)));
    }

    pub(crate) fn object(&mut self, id: u32, kind: NextHopObjectKind) {
        self.there(Object::NextHop(NextHopObject { id, kind }));
    }

    /// Lets time pass, with the ticks that are due.
    pub(crate) fn pass(&mut self, duration: Duration) {
        let end = self.now + duration;
        while let Some(due) = self.rib.next_due().filter(|due| *due <= end) {
            self.now = due;
            self.rib.tick(self.now);
        }
        self.now = end;
        self.reclaim();
    }

    fn reclaim(&mut self) {
        if let Some(retired) = self.rib.take_retired() {
            self.rib.reclaim(retired);
        }
    }

    pub(crate) fn actions(&mut self) -> Vec<Action> {
        core::iter::from_fn(|| self.rib.next_action()).collect()
    }

    pub(crate) fn dumps(&mut self) -> Vec<Dump> {
        let dump = |action| match action {
            Action::Dump { dump, .. } => Some(dump),
            _ => None,
        };
        self.actions().into_iter().filter_map(dump).collect()
    }

    pub(crate) fn group(&self, address: &str) -> GroupId {
        self.group_of(ip(address))
    }

    pub(crate) fn group_of(&self, address: IpAddr) -> GroupId {
        match address {
            IpAddr::V4(address) => self.fib.lookup_v4(address.to_bits()),
            IpAddr::V6(address) => self.fib.lookup_v6(address.to_bits()),
        }
    }

    /// Returns the next hops that packets to an address take.
    pub(crate) fn seen(&self, address: IpAddr) -> BTreeSet<Seen> {
        let seen = |id| {
            let spec = self.next_hops.next_hop(id).unwrap().spec();
            (
                format!("{:?}", spec.kind),
                spec.interface,
                spec.gateway,
                spec.destination,
            )
        };
        self.next_hops
            .members(self.group_of(address))
            .into_iter()
            .map(seen)
            .collect()
    }

    /// Returns the interfaces and gateways of packets to an address, as `12 10.0.2.9`, and the treatment of others.
    pub(crate) fn path(&self, address: &str) -> Vec<String> {
        let name = |(kind, interface, gateway, _): Seen| match (kind.as_str(), gateway) {
            ("Forward" | "Glean", Some(gateway)) => format!("{interface} {gateway}"),
            ("Forward" | "Glean", None) => format!("{interface}"),
            ("Local", _) if interface != u16::MAX => format!("Local {interface}"),
            _ => kind,
        };
        self.seen(ip(address)).into_iter().map(name).collect()
    }

    /// Returns the treatment of packets to an address: that of the only next hop.
    pub(crate) fn kind(&self, address: &str) -> Option<NextHopKind> {
        self.next_hops
            .member(self.group(address), 0)
            .map(millrace_fib::NextHop::kind)
    }
}
