//! The live routes to a prefix with their states by RPKI and in the routing registry, for a looking glass.

use std::net::IpAddr;

use millrace_ix_model::{AccountId, Exchange, Prefix, Timestamp};

use crate::controller::{FilterController, SessionKind};
use crate::evidence::{Validity, VrpState, covering};
use crate::ownership::Index;

/// The largest number of routes of an answer.
const ROUTES_MAX: usize = 100;

/// A live route of a peer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FoundRoute {
    pub prefix: Prefix,
    /// The address of the peer that announces it.
    pub peer: IpAddr,
    /// The account of the member that announces it, as far as it is known.
    pub account: Option<AccountId>,
    /// The AS path as text.
    pub as_path: String,
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
        let rpki = match &self.vrps {
            VrpState::Fresh(table) => Some(table.validity(prefix, origin)),
            VrpState::NotConfigured | VrpState::Stale => None,
        };
        let objects = account.and_then(|account| self.registry.as_ref()?.get(&account));
        let irr = objects.filter(|objects| objects.expires > now).map(|objects| {
            let mut covering = objects.covering(prefix);
            covering.any(|(_, object)| Some(object) == origin)
        });
        FoundRoute {
            prefix,
            peer,
            account,
            as_path: attributes.as_path.to_string(),
            origin,
            rpki,
            irr,
        }
    }
}
