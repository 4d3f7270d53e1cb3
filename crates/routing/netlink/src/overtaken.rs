//! Objects that changed while a dump lists them.
//!
//! ```text
//!  dump:      part with R is filled ·················· part is queued ──▶ socket: "R is gone", "R is listed"
//!  deletion:             R is deleted, its notification is queued
//! ```
//!
//! Since Linux 6.9, most dumps run without the lock that changes hold. A part of a dump may therefore be queued behind the
//! notification of a change that it does not contain. What a dump lists behind a notification of the same object is the older
//! of both.

use std::collections::HashMap;
use std::net::IpAddr;

use millrace_fib::Prefix;
use millrace_rib::event::{Change, Object, Route, RouteMode};

/// The identity of an object in the kernel. Routes may share theirs.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Key {
    Link(u32),
    Address(u32, IpAddr, u8),
    Neighbour(u32, IpAddr),
    NextHop(u32),
    Route {
        table: u32,
        prefix: Prefix,
        tos: u8,
        metric: u32,
    },
}

/// Notifications of one key since the beginning of a dump.
#[derive(Default, Debug)]
struct Notified {
    /// Routes that are there, and those that are gone.
    there: Vec<Route>,
    gone: Vec<Route>,
    /// True if a route replaced an earlier one.
    is_replaced: bool,
}

/// The objects that notifications named since the beginning of a dump.
#[derive(Default, Debug)]
pub(crate) struct Overtaken {
    notified: HashMap<Key, Notified>,
}

impl Overtaken {
    /// Takes notice of a notification.
    pub(crate) fn note(&mut self, change: &Change) {
        let (object, is_there) = match change {
            Change::There(object) => (object, true),
            Change::Gone(object) => (object, false),
            _ => return,
        };
        let notified = self.notified.entry(key(object)).or_default();
        let Object::Route(route) = object else { return };
        for routes in [&mut notified.there, &mut notified.gone] {
            routes.retain(|known| !is_same(known, route));
        }
        notified.is_replaced |= is_there && route.mode == RouteMode::Replace;
        let routes = if is_there {
            &mut notified.there
        } else {
            &mut notified.gone
        };
        routes.push(route.clone());
    }

    /// Returns true if an object that the dump lists is older than a notification.
    pub(crate) fn overtakes(&self, listed: &Object) -> bool {
        let Some(notified) = self.notified.get(&key(listed)) else {
            return false;
        };
        let Object::Route(route) = listed else {
            return true;
        };
        let is_in = |routes: &[Route]| routes.iter().any(|known| is_same(known, route));
        is_in(&notified.gone) || notified.is_replaced && !is_in(&notified.there)
    }
}

fn key(object: &Object) -> Key {
    match object {
        Object::Link(link) => Key::Link(link.ifindex),
        Object::Address(address) => Key::Address(address.ifindex, address.address, address.prefix_len),
        Object::Neighbour(neighbour) => Key::Neighbour(neighbour.ifindex, neighbour.address),
        Object::NextHop(object) => Key::NextHop(object.id),
        Object::Route(route) => Key::Route {
            table: route.table,
            prefix: route.prefix,
            tos: route.tos,
            metric: route.metric,
        },
    }
}

/// Returns true if both messages are about one route, whatever its place among its equals is.
fn is_same(one: &Route, other: &Route) -> bool {
    let mode = one.mode;
    *one == Route {
        mode,
        ..other.clone()
    }
}

#[cfg(test)]
mod tests {
    use millrace_rib::event::{Hop, Hops, Link, LinkKind, RouteKind};
    use millrace_types::Mac;

    use super::*;

    fn route(gateway: &str, mode: RouteMode) -> Object {
        Object::Route(Route {
            table: 254,
            prefix: "198.51.100.0/24".parse().unwrap(),
            kind: RouteKind::Unicast,
            metric: 20,
            tos: 0,
            protocol: 186,
            source: None,
            mtu: 0,
            hops: Hops::One(Hop {
                ifindex: 2,
                gateway: Some(gateway.parse().unwrap()),
                weight: 1,
                onlink: false,
            }),
            mode,
        })
    }

    fn link(mtu: u32) -> Object {
        Object::Link(Link {
            ifindex: 2,
            name: "v2".to_owned(),
            up: true,
            carrier: true,
            mtu,
            mac: Mac::default(),
            kind: LinkKind::Other,
        })
    }

    #[test]
    fn what_a_dump_lists_behind_a_notification_is_older() {
        use Change::{Gone, There};
        let (a, b) = ("10.0.2.1", "10.0.2.2");
        let add = |gateway| route(gateway, RouteMode::Add);
        let cases: [(&[Change], Object, bool); 10] = [
            (&[], add(a), false),
            (&[Gone(add(a))], add(a), true),
            (&[Gone(add(a))], add(b), false),
            (&[Gone(add(a)), There(add(a))], add(a), false),
            (&[Gone(add(a)), There(add(b))], add(a), true),
            (&[There(add(b))], add(a), false),
            (&[There(route(b, RouteMode::Replace))], add(a), true),
            (&[There(route(b, RouteMode::Replace))], add(b), false),
            (&[There(link(1_500))], link(9_000), true),
            (&[Gone(link(1_500))], link(1_500), true),
        ];
        for (changes, listed, is_older) in cases {
            let listed = match listed {
                Object::Route(route) => Object::Route(Route {
                    mode: RouteMode::Append,
                    ..route
                }),
                other => other,
            };
            let mut overtaken = Overtaken::default();
            changes.iter().for_each(|change| overtaken.note(change));
            assert_eq!(overtaken.overtakes(&listed), is_older, "{changes:?} {listed:?}");
        }
    }
}
