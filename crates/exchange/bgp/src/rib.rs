//! The routes of one peer (Adj-RIB-In, RFC 4271, section 3.2), with limits of number and memory.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use crate::attributes::Attributes;
use crate::family::{Afi, Family};
use crate::flowspec::FlowRule;
use crate::nlri::Nlri;
use crate::prefix::Prefix;
use crate::update::Update;

/// The maximum number and size of a peer's routes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// The maximum number of unicast routes of both families together; each path to a prefix counts.
    pub unicast: usize,
    /// The maximum number of flow specifications.
    pub flowspec: usize,
    /// The maximum estimated memory of all routes and attributes, in bytes.
    pub bytes: usize,
}

impl Default for Limits {
    /// Returns the limits for a member: 10,000 prefixes, 1,000 flow specifications, 64 MiB.
    fn default() -> Limits {
        Limits {
            unicast: 10_000,
            flowspec: 1_000,
            bytes: 64 << 20,
        }
    }
}

/// The number of routes of one peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RouteCounts {
    /// The number of unicast routes of both families together; each path to a prefix counts.
    pub unicast: usize,
    /// The number of flow specifications.
    pub flowspec: usize,
}

/// The identity of a route of one peer.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum RouteKey {
    Unicast {
        prefix: Prefix,
        /// The path identifier of Add-Path (RFC 7911); 0 without Add-Path.
        path_id: u32,
    },
    Flowspec {
        rule: FlowRule,
        /// The path identifier of Add-Path (RFC 7911); 0 without Add-Path.
        path_id: u32,
    },
}

/// A route of a peer, as its last UPDATE announced it.
#[derive(Clone, Debug)]
pub struct Route {
    /// The attributes; routes with equal attributes share them.
    pub attributes: Arc<Attributes>,
    /// True if the peer is restarting and has not announced the route again.
    pub is_stale: bool,
}

/// A change of a peer's routes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Change {
    /// The route is new or has other attributes.
    Announced(RouteKey),
    /// The route was removed.
    Withdrawn(RouteKey),
    /// The peer has announced all routes of a family.
    EndOfRib(Family),
    /// The peer sent a flow specification with malformed contents.
    Malformed {
        afi: Afi,
        /// The flow specification in wire format.
        bytes: Box<[u8]>,
        /// The error message.
        error: String,
    },
}

/// A limit that the routes of a peer exceed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Exceeded {
    Unicast,
    Flowspec,
    Memory,
}

/// The estimated memory of one entry of a map, in bytes.
const ENTRY_SIZE: usize = 72;

/// The routes of one peer.
#[derive(Debug, Default)]
pub struct Rib {
    unicast: BTreeMap<(Prefix, u32), Route>,
    flowspec: BTreeMap<(FlowRule, u32), Route>,
    shared: HashSet<Arc<Attributes>>,
    attribute_bytes: usize,
    rule_bytes: usize,
}

impl Rib {
    /// Returns the prefixes with path identifiers and routes, in order.
    pub fn unicast(&self) -> impl Iterator<Item = (Prefix, u32, &Route)> {
        self.unicast
            .iter()
            .map(|((prefix, path_id), route)| (*prefix, *path_id, route))
    }

    /// Returns the rules with path identifiers and routes.
    pub fn flowspec(&self) -> impl Iterator<Item = (&FlowRule, u32, &Route)> {
        self.flowspec
            .iter()
            .map(|((rule, path_id), route)| (rule, *path_id, route))
    }

    /// Returns a route.
    pub fn route(&self, key: &RouteKey) -> Option<&Route> {
        match key {
            RouteKey::Unicast { prefix, path_id } => self.unicast.get(&(*prefix, *path_id)),
            RouteKey::Flowspec { rule, path_id } => self.flowspec.get(&(rule.clone(), *path_id)),
        }
    }

    /// Returns the paths to exactly this prefix.
    pub fn paths(&self, prefix: Prefix) -> impl Iterator<Item = &Route> {
        self.unicast
            .range((prefix, 0)..=(prefix, u32::MAX))
            .map(|(_, route)| route)
    }

    /// Returns the prefixes inside a prefix, without the prefix itself, and their routes.
    pub fn more_specific(&self, prefix: Prefix) -> impl Iterator<Item = (Prefix, &Route)> {
        self.unicast
            .range((prefix, u32::MAX)..)
            .map(|((other, _), route)| (*other, route))
            .take_while(move |(other, _)| {
                Prefix::new(other.address(), prefix.len())
                    .is_some_and(|start| start.address() == prefix.address())
            })
            .filter(move |(other, _)| other.len() > prefix.len())
    }

    /// Returns the number of routes.
    pub fn counts(&self) -> RouteCounts {
        RouteCounts {
            unicast: self.unicast.len(),
            flowspec: self.flowspec.len(),
        }
    }

    /// Returns the estimated memory of routes and attributes, in bytes.
    pub fn bytes(&self) -> usize {
        (self.unicast.len() + self.flowspec.len()) * ENTRY_SIZE + self.attribute_bytes + self.rule_bytes
    }

    /// Applies an UPDATE, and appends the resulting changes. An identical announcement changes nothing.
    pub(crate) fn apply(
        &mut self,
        update: Update,
        limits: &Limits,
        changes: &mut Vec<Change>,
    ) -> Result<(), Exceeded> {
        for (_, route) in update.withdrawn {
            match key(route) {
                Ok(key) => self.remove(key, changes),
                // A malformed flow specification was never stored.
                Err(malformed) => changes.push(malformed),
            }
        }
        for reach in update.announced {
            let mut attributes = update.attributes.clone();
            attributes.next_hop = reach.next_hop;
            let attributes = self.share(attributes);
            for route in reach.routes {
                match key(route) {
                    Ok(key) => self.put(key, &attributes, changes),
                    Err(malformed) => changes.push(malformed),
                }
            }
            self.forget(&attributes);
            self.check(limits)?;
        }
        Ok(())
    }

    fn check(&self, limits: &Limits) -> Result<(), Exceeded> {
        if self.unicast.len() > limits.unicast {
            Err(Exceeded::Unicast)
        } else if self.flowspec.len() > limits.flowspec {
            Err(Exceeded::Flowspec)
        } else if self.bytes() > limits.bytes {
            Err(Exceeded::Memory)
        } else {
            Ok(())
        }
    }

    fn share(&mut self, attributes: Attributes) -> Arc<Attributes> {
        if let Some(shared) = self.shared.get(&attributes) {
            return Arc::clone(shared);
        }
        self.attribute_bytes += attributes.size();
        let shared = Arc::new(attributes);
        self.shared.insert(Arc::clone(&shared));
        shared
    }

    /// Removes the attributes from the set of shared attributes if no route refers to them any more.
    fn forget(&mut self, attributes: &Arc<Attributes>) {
        if Arc::strong_count(attributes) <= 2 && self.shared.remove(attributes) {
            self.attribute_bytes -= attributes.size();
        }
    }

    fn put(&mut self, key: RouteKey, attributes: &Arc<Attributes>, changes: &mut Vec<Change>) {
        let route = Route {
            attributes: Arc::clone(attributes),
            is_stale: false,
        };
        let before = match &key {
            RouteKey::Unicast { prefix, path_id } => self.unicast.insert((*prefix, *path_id), route),
            RouteKey::Flowspec { rule, path_id } => {
                let before = self.flowspec.insert((rule.clone(), *path_id), route);
                if before.is_none() {
                    self.rule_bytes += rule.as_bytes().len();
                }
                before
            }
        };
        let is_same = before
            .as_ref()
            .is_some_and(|before| before.attributes == *attributes);
        if let Some(before) = before {
            self.forget(&before.attributes);
        }
        if !is_same {
            changes.push(Change::Announced(key));
        }
    }

    fn remove(&mut self, key: RouteKey, changes: &mut Vec<Change>) {
        let before = match &key {
            RouteKey::Unicast { prefix, path_id } => self.unicast.remove(&(*prefix, *path_id)),
            RouteKey::Flowspec { rule, path_id } => {
                let before = self.flowspec.remove(&(rule.clone(), *path_id));
                if before.is_some() {
                    self.rule_bytes -= rule.as_bytes().len();
                }
                before
            }
        };
        if let Some(before) = before {
            self.forget(&before.attributes);
            changes.push(Change::Withdrawn(key));
        }
    }

    /// Marks the routes of a family as stale.
    pub(crate) fn mark_stale(&mut self, family: Family) {
        for (key, route) in &mut self.unicast {
            route.is_stale |= !family.is_flowspec() && key.0.afi() == family.afi();
        }
        for (key, route) in &mut self.flowspec {
            route.is_stale |= family.is_flowspec() && key.0.afi() == family.afi();
        }
    }

    /// Removes the routes of a family.
    pub(crate) fn clear(&mut self, family: Family, changes: &mut Vec<Change>) {
        self.remove_where(family, |_| true, changes);
    }

    /// Removes the stale routes of a family.
    pub(crate) fn clear_stale(&mut self, family: Family, changes: &mut Vec<Change>) {
        self.remove_where(family, |route| route.is_stale, changes);
    }

    fn remove_where(&mut self, family: Family, goes: impl Fn(&Route) -> bool, changes: &mut Vec<Change>) {
        let keys: Vec<RouteKey> = if family.is_flowspec() {
            self.flowspec
                .iter()
                .filter(|((rule, _), route)| rule.afi() == family.afi() && goes(route))
                .map(|((rule, path_id), _)| RouteKey::Flowspec {
                    rule: rule.clone(),
                    path_id: *path_id,
                })
                .collect()
        } else {
            self.unicast
                .iter()
                .filter(|((prefix, _), route)| prefix.afi() == family.afi() && goes(route))
                .map(|((prefix, path_id), _)| RouteKey::Unicast {
                    prefix: *prefix,
                    path_id: *path_id,
                })
                .collect()
        };
        for key in keys {
            self.remove(key, changes);
        }
    }
}

/// Returns the identity of a route; for a malformed flow specification, the change that reports it.
fn key(route: Nlri) -> Result<RouteKey, Change> {
    match route {
        Nlri::Unicast { path_id, prefix } => Ok(RouteKey::Unicast { prefix, path_id }),
        Nlri::Flowspec { path_id, rule } => Ok(RouteKey::Flowspec { rule, path_id }),
        Nlri::MalformedFlowspec { afi, bytes, error } => Err(Change::Malformed { afi, bytes, error }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::aspath::AsPath;
    use crate::update::Reach;

    fn announce(prefixes: core::ops::Range<u32>, asn: u32) -> Update {
        let routes = prefixes
            .map(|number| Nlri::Unicast {
                path_id: 0,
                prefix: Prefix::new(core::net::IpAddr::V4((0x0a00_0000 + (number << 8)).into()), 24).unwrap(),
            })
            .collect();
        Update {
            announced: vec![Reach {
                family: Family::Ipv4Unicast,
                next_hop: "192.0.2.9".parse().ok(),
                routes,
            }],
            attributes: Attributes {
                as_path: AsPath::sequence(&[asn]),
                ..Attributes::default()
            },
            ..Update::default()
        }
    }

    #[test]
    fn an_identical_announcement_changes_nothing_and_attributes_are_shared_and_freed() {
        let (mut rib, mut changes) = (Rib::default(), Vec::new());
        let limits = Limits::default();
        rib.apply(announce(0..100, 64_500), &limits, &mut changes)
            .unwrap();
        assert_eq!((changes.len(), rib.shared.len()), (100, 1));
        let bytes = rib.bytes();
        changes.clear();
        rib.apply(announce(0..100, 64_500), &limits, &mut changes)
            .unwrap();
        assert_eq!((changes.len(), rib.bytes()), (0, bytes));
        rib.apply(announce(0..50, 64_501), &limits, &mut changes).unwrap();
        assert_eq!((changes.len(), rib.shared.len()), (50, 2));
        changes.clear();
        rib.clear(Family::Ipv4Unicast, &mut changes);
        assert_eq!((changes.len(), rib.shared.len(), rib.bytes()), (100, 0, 0));
    }

    #[test]
    fn routes_over_the_limit_are_noticed_at_the_message_that_exceeds_it() {
        let mut rib = Rib::default();
        let limits = Limits {
            unicast: 10,
            ..Limits::default()
        };
        assert_eq!(rib.apply(announce(0..10, 1), &limits, &mut Vec::new()), Ok(()));
        assert_eq!(
            rib.apply(announce(10..11, 1), &limits, &mut Vec::new()),
            Err(Exceeded::Unicast)
        );
        let limits = Limits {
            bytes: 800,
            ..Limits::default()
        };
        let mut rib = Rib::default();
        assert_eq!(
            rib.apply(announce(0..10, 1), &limits, &mut Vec::new()),
            Err(Exceeded::Memory)
        );
    }

    #[test]
    fn stale_routes_go_unless_they_are_announced_again() {
        let (mut rib, mut changes) = (Rib::default(), Vec::new());
        let limits = Limits::default();
        rib.apply(announce(0..3, 1), &limits, &mut changes).unwrap();
        changes.clear();
        rib.mark_stale(Family::Ipv4Unicast);
        rib.apply(announce(0..2, 1), &limits, &mut changes).unwrap();
        assert_eq!(changes, []);
        rib.clear_stale(Family::Ipv4Unicast, &mut changes);
        assert_eq!((changes.len(), rib.counts().unicast), (1, 2));
    }
}
