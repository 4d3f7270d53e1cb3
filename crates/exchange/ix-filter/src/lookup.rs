//! The live routes to a prefix, and those of a member, with their states by RPKI and in the routing registry.

use std::collections::BTreeSet;
use std::net::IpAddr;

use millrace_ix_model::{AccountId, Exchange, Prefix, Timestamp};

use crate::controller::{FilterController, SessionKind};
use crate::evidence::{Validity, VrpState, covering};
use crate::ownership::Index;

/// The largest number of routes of an answer to a looking glass.
const ROUTES_MAX: usize = 100;
/// The largest number of routes of a member.
const MEMBER_ROUTES_MAX: usize = 10_000;

/// A live route of a peer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FoundRoute {
    pub prefix: Prefix,
    /// The address of the peer that announces it.
    pub peer: IpAddr,
    /// The account of the member that announces it, as far as it is known.
    pub account: Option<AccountId>,
    pub next_hop: Option<IpAddr>,
    /// The AS path as text.
    pub as_path: String,
    /// The communities, standard ones first, then large ones, as text.
    pub communities: Vec<String>,
    /// The origin AS; `None` if the path ends with a set.
    pub origin: Option<u32>,
    /// The validity by RPKI (RFC 6811); `None` without a fresh cache.
    pub rpki: Option<Validity>,
    /// True if a route object of the account's AS-SET covers the prefix with this origin; `None` without fresh objects.
    pub irr: Option<bool>,
}

impl FilterController {
    /// Returns the routes of sessions of a type to the longest prefix with routes that covers `prefix`, and the routes to its parts,
    /// at most 100.
    pub fn lookup(
        &self,
        exchange: &Exchange,
        kind: SessionKind,
        prefix: Prefix,
        now: Timestamp,
    ) -> Vec<FoundRoute> {
        let peers = || {
            self.neighbours
                .iter()
                .filter(|(_, neighbour)| neighbour.info.kind == kind)
        };
        let index = Index::new(exchange);
        let bgp = |prefix: Prefix| millrace_bgp::Prefix::new(prefix.address(), prefix.len());
        let mut found: Vec<FoundRoute> = Vec::new();
        for wider in covering(prefix) {
            for (peer, neighbour) in peers() {
                let Some(wider_bgp) = bgp(wider) else { continue };
                let paths = neighbour.peer.rib().paths(wider_bgp);
                found.extend(paths.map(|route| self.found(&index, (*peer, neighbour), wider, route, now)));
            }
            if !found.is_empty() {
                break;
            }
        }
        for (peer, neighbour) in peers() {
            let Some(bgp) = bgp(prefix) else { continue };
            let parts = neighbour.peer.rib().more_specific(bgp);
            let room = ROUTES_MAX.saturating_sub(found.len());
            let parts = parts.filter_map(|(part, route)| {
                let part = crate::prefix(part)?;
                (part != prefix).then(|| self.found(&index, (*peer, neighbour), part, route, now))
            });
            found.extend(parts.take(room));
        }
        found.truncate(ROUTES_MAX);
        found
    }

    /// Returns the routes that route servers have accepted from a member, by prefix: those with one of its addresses as next hop;
    /// at most 10,000. All routes of the route servers are searched.
    pub fn routes_of(
        &self,
        exchange: &Exchange,
        account: AccountId,
        addresses: &BTreeSet<IpAddr>,
        now: Timestamp,
    ) -> Vec<FoundRoute> {
        let index = Index::new(exchange);
        let mut found = Vec::new();
        for (peer, neighbour) in &self.neighbours {
            if neighbour.info.kind != SessionKind::RouteServer {
                continue;
            }
            let routes = neighbour.peer.rib().unicast().filter(|(_, _, route)| {
                let next_hop = route.attributes.next_hop;
                next_hop.is_some_and(|next_hop| addresses.contains(&next_hop))
            });
            let routes = routes.filter_map(|(prefix, _, route)| {
                let prefix = crate::prefix(prefix)?;
                Some(self.found(&index, (*peer, neighbour), prefix, route, now))
            });
            let own = routes.filter(|route| route.account == Some(account));
            found.extend(own.take(MEMBER_ROUTES_MAX - found.len()));
        }
        found.sort_by_key(|route| route.prefix);
        found
    }

    /// Returns the validity by RPKI of a prefix with its origin, and true if a route object of the account's AS-SET covers both;
    /// `None` for what no fresh data tell.
    pub fn states(
        &self,
        account: AccountId,
        prefix: Prefix,
        origin: Option<u32>,
        now: Timestamp,
    ) -> (Option<Validity>, Option<bool>) {
        let objects = self.registry.as_ref().and_then(|registry| registry.get(&account));
        let irr = objects.filter(|objects| objects.expires > now).map(|objects| {
            let mut covering = objects.covering(prefix);
            covering.any(|(_, object)| Some(object) == origin)
        });
        (self.validity(prefix, origin), irr)
    }

    fn validity(&self, prefix: Prefix, origin: Option<u32>) -> Option<Validity> {
        match &self.vrps {
            VrpState::Fresh(table) => Some(table.validity(prefix, origin)),
            VrpState::NotConfigured | VrpState::Stale => None,
        }
    }

    fn found(
        &self,
        index: &Index,
        (peer, neighbour): (IpAddr, &crate::controller::Neighbour),
        prefix: Prefix,
        route: &millrace_bgp::Route,
        now: Timestamp,
    ) -> FoundRoute {
        let attributes = &route.attributes;
        let origin = attributes.as_path.origin();
        let account = self.account_of(index, &neighbour.info, attributes);
        let (rpki, irr) = match account {
            Some(account) => self.states(account, prefix, origin, now),
            None => (self.validity(prefix, origin), None),
        };
        let standard = attributes.communities.iter();
        let standard = standard.map(|community| format!("{}:{}", community >> 16, community & 0xffff));
        FoundRoute {
            prefix,
            peer,
            account,
            next_hop: attributes.next_hop,
            as_path: attributes.as_path.to_string(),
            communities: standard
                .chain(attributes.large.iter().map(ToString::to_string))
                .collect(),
            origin,
            rpki,
            irr,
        }
    }
}
