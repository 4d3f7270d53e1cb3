//! Ownership: a prefix may be filtered by the account that is authorised for it and announces it.
//!
//! ```text
//!   authorised   a ROA (VRP) covers it, with an origin of the account's AS-SET          else, if ROAs cover it: refused
//!                or a route object covers it, with such an origin
//!   alive        page, API, RTBH: the account announces a prefix that covers it
//!                Flowspec: RFC 9117: the best match is the account's, and nobody else announces a part of it
//! ```

use core::net::IpAddr;
use std::collections::{BTreeMap, BTreeSet};

use millrace_bgp::Attributes;
use millrace_ix_model::{AccountId, Exchange, FilterMatch, Prefix, Reason, Timestamp, reason};

use crate::controller::{FilterController, PeerInfo, SessionKind};
use crate::evidence::{RouteObjects, Validity, VrpState, covering};

/// The answer to the question whether an account may filter a prefix.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Finding {
    /// The account owns the prefix.
    Owned {
        /// The objects that prove it.
        evidence: Vec<String>,
    },
    /// The account does not own the prefix.
    NotOwned {
        reason: Reason,
        /// The object that is missing.
        missing: Reason,
    },
    /// The evidence is not available: active filters stay, and new filters need an operator.
    Unknown { reason: Reason },
}

/// A [`Finding`] for pages and the API, with the feasibility in the switches.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Verdict {
    /// True if the filter may become active.
    pub allowed: bool,
    /// The reason of a refusal.
    pub reason: Option<Reason>,
    /// The object that is missing.
    pub missing: Option<Reason>,
    /// The objects that prove ownership.
    pub evidence: Vec<String>,
}

/// Accounts by address and AS number.
pub(crate) struct Index {
    by_address: BTreeMap<IpAddr, AccountId>,
    asns: BTreeMap<AccountId, BTreeSet<u32>>,
    by_asn: BTreeMap<u32, Vec<AccountId>>,
    as_sets: BTreeMap<AccountId, String>,
    /// The number of ends of each account.
    ends: BTreeMap<AccountId, usize>,
}

impl Index {
    pub(crate) fn new(exchange: &Exchange) -> Index {
        let mut asns: BTreeMap<AccountId, BTreeSet<u32>> = exchange
            .accounts
            .iter()
            .map(|(id, account)| (*id, account.asns.clone()))
            .collect();
        let mut ends: BTreeMap<AccountId, usize> = BTreeMap::new();
        for config in exchange.configs.values() {
            asns.entry(config.account).or_default().extend(&config.asns);
            *ends.entry(config.account).or_default() += 1;
        }
        let mut by_asn: BTreeMap<u32, Vec<AccountId>> = BTreeMap::new();
        for (account, numbers) in &asns {
            for asn in numbers {
                by_asn.entry(*asn).or_default().push(*account);
            }
        }
        let account = |config| exchange.configs.get(config).map(|config| config.account);
        Index {
            by_address: exchange
                .ips
                .values()
                .filter_map(|ip| Some((ip.address, account(&ip.config)?)))
                .collect(),
            as_sets: exchange
                .accounts
                .iter()
                .filter_map(|(id, account)| Some((*id, account.as_set.clone()?)))
                .collect(),
            asns,
            by_asn,
            ends,
        }
    }

    /// Returns the number of entries for each match of a filter: one, or one for each end of the peers that the
    /// filter names.
    pub(crate) fn sources(&self, peers: &BTreeSet<AccountId>) -> usize {
        if peers.is_empty() {
            return 1;
        }
        peers.iter().filter_map(|peer| self.ends.get(peer)).sum()
    }

    /// Returns the account of a route. On a member's session it is the account of the session. On a route server's
    /// session it is the account that has the first AS and, if the route has a next hop, also the address of the
    /// next hop. A blackhole next hop is the address of no account.
    fn account(
        &self,
        peer: &PeerInfo,
        attributes: &Attributes,
        blackhole_next_hops: &BTreeSet<IpAddr>,
    ) -> Option<AccountId> {
        if peer.kind == SessionKind::Member {
            return peer.account;
        }
        let candidates = self.by_asn.get(&attributes.as_path.first()?)?;
        match attributes
            .next_hop
            .filter(|next_hop| !blackhole_next_hops.contains(next_hop))
        {
            Some(next_hop) => {
                let account = self.by_address.get(&next_hop)?;
                candidates.contains(account).then_some(*account)
            }
            None => match candidates[..] {
                [account] => Some(account),
                _ => None,
            },
        }
    }

    /// Returns the AS numbers of an account.
    fn asns(&self, account: AccountId) -> BTreeSet<u32> {
        self.asns.get(&account).cloned().unwrap_or_default()
    }

    /// Returns the AS numbers and the AS-SET of an account in words: "AS64500, AS-EXAMPLE".
    fn origins(&self, account: AccountId) -> String {
        let numbers = self.asns(account).into_iter().map(|asn| format!("AS{asn}"));
        let all: Vec<String> = numbers.chain(self.as_sets.get(&account).cloned()).collect();
        if all.is_empty() {
            // The account has no AS.
            return account.to_string();
        }
        all.join(", ")
    }
}

/// A live route.
struct Path<'a> {
    account: Option<AccountId>,
    attributes: &'a Attributes,
}

impl Path<'_> {
    fn words(&self, prefix: Prefix) -> String {
        format!("route {prefix} with AS path \"{}\"", self.attributes.as_path)
    }
}

impl FilterController {
    /// Returns the account of a route from a neighbour.
    pub(crate) fn account_of(
        &self,
        index: &Index,
        neighbour: &PeerInfo,
        attributes: &Attributes,
    ) -> Option<AccountId> {
        index.account(neighbour, attributes, &self.settings.blackhole_next_hops)
    }

    /// Returns whether an account owns a destination and may filter it. With `is_flowspec` the rules of RFC 9117
    /// apply.
    pub(crate) fn ownership(
        &self,
        index: &Index,
        account: AccountId,
        destination: Prefix,
        is_flowspec: bool,
        now: Timestamp,
    ) -> Finding {
        let authorised = self.authorised(index, account, destination, now);
        if matches!(authorised, Finding::NotOwned { .. }) {
            return authorised;
        }
        match (authorised, self.alive(index, account, destination, is_flowspec)) {
            (Finding::Owned { mut evidence }, Finding::Owned { evidence: live }) => {
                evidence.extend(live);
                Finding::Owned { evidence }
            }
            (_, alive @ Finding::NotOwned { .. }) => alive,
            (authorised, _) => authorised,
        }
    }

    /// Returns the verdict on a filter that the page or the API orders, for frames of all members or of `peers`.
    pub fn verdict(
        &self,
        exchange: &Exchange,
        account: AccountId,
        matching: &FilterMatch,
        peers: &BTreeSet<AccountId>,
        now: Timestamp,
    ) -> Verdict {
        let refused = |reason: Reason, missing| Verdict {
            reason: Some(reason),
            missing,
            ..Verdict::default()
        };
        let entries = match millrace_ix_plan::filter_entries(matching, self.settings.extensions) {
            Ok(entries) => entries,
            Err(reason) => return refused(reason, None),
        };
        let index = Index::new(exchange);
        match self.ownership(&index, account, matching.destination, false, now) {
            Finding::Owned { evidence } => {
                let needed = entries * index.sources(peers);
                match self.excess(exchange, &index, account, needed) {
                    Some(reason) => refused(reason, None),
                    None => Verdict {
                        allowed: true,
                        evidence,
                        ..Verdict::default()
                    },
                }
            }
            Finding::NotOwned { reason, missing } => refused(reason, Some(missing)),
            Finding::Unknown { reason } => refused(reason, None),
        }
    }

    fn authorised(&self, index: &Index, account: AccountId, destination: Prefix, now: Timestamp) -> Finding {
        let objects = self.registry.as_ref().map(|registry| registry.get(&account));
        let fresh = |objects: &&RouteObjects| objects.expires > now;
        let mut asns = index.asns(account);
        if let Some(objects) = objects.flatten().filter(fresh) {
            asns.extend(&objects.asns);
        }
        let origins = index.origins(account);
        if let VrpState::Fresh(table) = &self.vrps {
            let covering: Vec<_> = table.covering(destination).collect();
            if let Some((prefix, max_len, asn)) = covering
                .iter()
                .find(|(_, _, asn)| *asn != 0 && asns.contains(asn))
            {
                let evidence = vec![format!("ROA {prefix}-{max_len} AS{asn}")];
                return Finding::Owned { evidence };
            }
            // The origin of a ROA may be a customer in the AS-SET, whose members only the registry knows.
            let is_away = objects.is_some_and(|objects| objects.is_none_or(|objects| objects.expires <= now));
            if !covering.is_empty() && is_away && index.as_sets.contains_key(&account) {
                return Finding::Unknown {
                    reason: reason::registry_away(),
                };
            }
            if let Some((prefix, ..)) = covering.first() {
                let others: BTreeSet<String> =
                    covering.iter().map(|(_, _, asn)| format!("AS{asn}")).collect();
                let others: Vec<String> = others.into_iter().collect();
                return Finding::NotOwned {
                    reason: reason::roa_of_others(destination, others.join(", "), &origins),
                    missing: reason::missing_roa(prefix, &origins),
                };
            }
        }
        if matches!(self.vrps, VrpState::Stale) {
            return Finding::Unknown {
                reason: reason::rpki_away(),
            };
        }
        match objects {
            Some(Some(objects)) if objects.expires > now => {
                if let Some((prefix, origin)) = objects.covering(destination).next() {
                    let kind = if prefix.is_ipv6() { "route6" } else { "route" };
                    let evidence = vec![format!("{kind} object {prefix} AS{origin}")];
                    return Finding::Owned { evidence };
                }
            }
            Some(_) => {
                return Finding::Unknown {
                    reason: reason::registry_away(),
                };
            }
            None => {}
        }
        let kind = if destination.is_ipv6() { "route6" } else { "route" };
        let announced = self
            .announced_by(index, account, destination)
            .unwrap_or(destination);
        // Without a registry only a ROA can help.
        let (reason, missing) = if objects.is_some() {
            let missing = reason::missing_object(kind, announced, &origins);
            (reason::no_object(kind, destination, &origins), missing)
        } else {
            let missing = reason::missing_roa(announced, &origins);
            (reason::no_roa(destination, &origins), missing)
        };
        Finding::NotOwned { reason, missing }
    }

    /// Returns the longest prefix that the account announces and that covers the destination.
    fn announced_by(&self, index: &Index, account: AccountId, destination: Prefix) -> Option<Prefix> {
        covering(destination).find(|prefix| {
            self.paths(index, *prefix)
                .iter()
                .any(|path| path.account == Some(account))
        })
    }

    fn alive(&self, index: &Index, account: AccountId, destination: Prefix, is_flowspec: bool) -> Finding {
        let origins = index.origins(account);
        let missing = || reason::missing_route(destination, &origins);
        let mut invalid = None;
        for prefix in covering(destination) {
            let paths = self.paths(index, prefix);
            let own: Vec<&Path<'_>> = paths
                .iter()
                .filter(|path| path.account == Some(account))
                .collect();
            let is_valid = |path: &&&Path<'_>| match &self.vrps {
                VrpState::Fresh(table) => {
                    table.validity(prefix, path.attributes.as_path.origin()) != Validity::Invalid
                }
                _ => true,
            };
            if let Some(path) = own.iter().find(is_valid) {
                if is_flowspec
                    && let Some((prefix, path)) = self.more_specific(index, account, path, destination)
                {
                    return Finding::NotOwned {
                        reason: reason::part_of_another(destination, prefix, &path),
                        missing: reason::missing_withdrawal(prefix, &path),
                    };
                }
                let evidence = vec![path.words(prefix)];
                return Finding::Owned { evidence };
            }
            if let Some(path) = own.first() {
                invalid = Some(reason::rpki_invalid(prefix, &path.attributes.as_path));
            }
            if let (true, Some(other)) = (is_flowspec, paths.first()) {
                return Finding::NotOwned {
                    reason: reason::best_match_of_another(destination, prefix, &other.attributes.as_path),
                    missing: missing(),
                };
            }
        }
        let reason = invalid.unwrap_or_else(|| reason::no_live_route(destination));
        Finding::NotOwned {
            reason,
            missing: missing(),
        }
    }

    /// Returns prefix and AS path of a route to a part of the destination from another neighbouring AS (RFC 9117, section 4.1,
    /// rule c).
    fn more_specific(
        &self,
        index: &Index,
        account: AccountId,
        best: &Path<'_>,
        destination: Prefix,
    ) -> Option<(Prefix, String)> {
        let bgp = |prefix: Prefix| millrace_bgp::Prefix::new(prefix.address(), prefix.len());
        let first_as = best.attributes.as_path.first();
        for neighbour in self.neighbours.values() {
            for (prefix, route) in neighbour.peer.rib().more_specific(bgp(destination)?) {
                let is_own = route.attributes.as_path.first() == first_as
                    || self.account_of(index, &neighbour.info, &route.attributes) == Some(account);
                if !is_own && !self.asks_for_drop(&route.attributes) {
                    return Some((crate::prefix(prefix)?, route.attributes.as_path.to_string()));
                }
            }
        }
        None
    }

    /// Returns the live routes to exactly this prefix. A route that asks for a drop does not prove ownership.
    fn paths(&self, index: &Index, prefix: Prefix) -> Vec<Path<'_>> {
        let Some(bgp) = millrace_bgp::Prefix::new(prefix.address(), prefix.len()) else {
            return Vec::new();
        };
        let mut paths = Vec::new();
        for neighbour in self.neighbours.values() {
            let routes = neighbour.peer.rib().paths(bgp);
            paths.extend(
                routes
                    .filter(|route| !self.asks_for_drop(&route.attributes))
                    .map(|route| Path {
                        account: self.account_of(index, &neighbour.info, &route.attributes),
                        attributes: &route.attributes,
                    }),
            );
        }
        paths
    }
}
