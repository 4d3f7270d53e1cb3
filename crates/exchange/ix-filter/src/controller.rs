//! The peers, the evidence, and the rules that the peers announce.

use core::net::IpAddr;
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use data_encoding::HEXLOWER;
use millrace_bgp::{Change, FamilySet, LargeCommunity, Peer, PeerSettings, RouteKey};
use millrace_ix_model::{AccountId, FilterId, Prefix, Reason, Timestamp};
use millrace_types::Time;

use crate::evidence::{RouteObjects, VrpState};
use crate::reference::reference;

/// The largest number of malformed rules of a peer that are kept for display.
const MALFORMED_MAX: usize = 20;
/// If at least this number of prefixes have changed, all filters are checked again, and not only filters that
/// overlap the prefixes.
const CHANGED_MAX: usize = 64;

/// The settings of filters.
#[derive(Clone, Debug)]
pub struct Settings {
    /// True if every switch has the match extensions of Open vSwitch.
    pub extensions: bool,
    /// The communities with which a route requests a drop, in addition to BLACKHOLE (65535:666).
    pub blackhole_communities: BTreeSet<u32>,
    /// The large communities with which a route requests a drop.
    pub blackhole_large: BTreeSet<LargeCommunity>,
    /// The next hops with which a route requests a drop.
    pub blackhole_next_hops: BTreeSet<IpAddr>,
    /// The largest number of changes of BGP rules of one account in a second; further changes are delayed.
    pub changes_per_sec: u32,
    /// The time for which a filter stays after its owner lost the prefix.
    pub hold: Duration,
    /// The time for which the rules of a peer stay after a start of the engine.
    pub restart: Duration,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            extensions: false,
            blackhole_communities: BTreeSet::new(),
            blackhole_large: BTreeSet::new(),
            blackhole_next_hops: BTreeSet::new(),
            changes_per_sec: 50,
            hold: Duration::from_secs(300),
            restart: Duration::from_secs(120),
        }
    }
}

/// The type of a BGP session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SessionKind {
    /// The peer is a router of one account. Its routes belong to that account.
    Member,
    /// The peer is a route server: a route belongs to the account that has its first AS and its next hop.
    RouteServer,
}

/// The data of the exchange about a BGP peer.
#[derive(Clone, Debug)]
pub struct PeerInfo {
    pub kind: SessionKind,
    /// The account to which a member's router belongs.
    pub account: Option<AccountId>,
    /// The AS number.
    pub asn: u32,
}

/// The state of a session, for display.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SessionStatus {
    pub peer: IpAddr,
    /// The AS number of the peer.
    pub asn: u32,
    /// The type of the session.
    pub kind: SessionKind,
    /// The account to which a member's router belongs.
    pub account: Option<AccountId>,
    /// `idle`, `open_sent`, `open_confirm` or `established`.
    pub state: &'static str,
    /// The time of the last change of the state.
    pub since: Timestamp,
    /// The families of the established session.
    pub families: FamilySet,
    /// The number of prefixes that the peer announces.
    pub routes: usize,
    /// The number of flow specifications that the peer announces.
    pub flowspec: usize,
    /// The reason why the last session ended.
    pub last_error: Option<String>,
    /// The newest malformed attributes and rules, in words.
    pub problems: Vec<String>,
}

/// A peer with its session and routes.
pub(crate) struct Neighbour {
    pub(crate) info: PeerInfo,
    pub(crate) peer: Peer,
    /// True once all routes were received after a start of the engine.
    pub(crate) is_synced: bool,
    malformed: VecDeque<String>,
}

/// A rule that a peer announces.
#[derive(Clone, Debug)]
pub(crate) struct Announced {
    pub(crate) peer: IpAddr,
    pub(crate) route: RouteKey,
    /// The result of the last comparison of the rule's translation with a filter. It remains correct until the rule is
    /// announced again, because neither the account of a filter nor its matches and action can change.
    pub(crate) compared: Option<Compared>,
}

/// The result of the comparison of a rule's translation with a filter.
#[derive(Clone, Debug)]
pub(crate) struct Compared {
    pub(crate) filter: FilterId,
    /// The account to which the rule belonged.
    pub(crate) account: AccountId,
    /// True if the filter is the one that the rule asks for.
    pub(crate) is_equal: bool,
    /// The reason why switches cannot implement the rule.
    pub(crate) untranslatable: Option<Reason>,
}

/// The filters and rules that are to be compared again.
#[derive(Debug, Default)]
pub(crate) struct Dirty {
    /// External references of rules.
    pub(crate) rules: BTreeSet<String>,
    /// Prefixes whose routes changed.
    pub(crate) prefixes: BTreeSet<Prefix>,
    /// True if all filters and rules are to be compared.
    pub(crate) all: bool,
}

/// The token bucket that limits the changes of an account's BGP rules.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    pub(crate) tokens: f64,
    pub(crate) at: Timestamp,
}

/// The peers and the evidence.
pub struct FilterController {
    pub(crate) settings: Settings,
    pub(crate) neighbours: BTreeMap<IpAddr, Neighbour>,
    pub(crate) rules: BTreeMap<String, Announced>,
    pub(crate) dirty: Dirty,
    /// References of rules that a peer announced and withdrew, until their filters are gone.
    pub(crate) withdrawn: BTreeSet<String>,
    pub(crate) vrps: VrpState,
    /// `None` if no registry is configured.
    pub(crate) registry: Option<BTreeMap<AccountId, RouteObjects>>,
    /// The filters whose owner lost the prefix, each with the time of the loss.
    pub(crate) lost: BTreeMap<FilterId, Timestamp>,
    pub(crate) budgets: BTreeMap<AccountId, Budget>,
    /// The entries that each filter needs.
    pub(crate) entries: BTreeMap<FilterId, usize>,
    /// The number of translations of rules to filters.
    pub(crate) translations: u64,
    recheck: BTreeSet<AccountId>,
    started: (Time, Timestamp),
}

impl FilterController {
    /// Returns a controller without peers. `has_registry` is true if an IRR is configured.
    pub fn new(settings: Settings, has_registry: bool, now: Time, wall: Timestamp) -> FilterController {
        FilterController {
            settings,
            neighbours: BTreeMap::new(),
            rules: BTreeMap::new(),
            dirty: Dirty {
                all: true,
                ..Dirty::default()
            },
            withdrawn: BTreeSet::new(),
            vrps: VrpState::NotConfigured,
            registry: has_registry.then(BTreeMap::new),
            lost: BTreeMap::new(),
            budgets: BTreeMap::new(),
            entries: BTreeMap::new(),
            translations: 0,
            recheck: BTreeSet::new(),
            started: (now, wall),
        }
    }

    /// Adds a peer. A peer with the same address is replaced, and its routes are dropped.
    pub fn put_peer(&mut self, address: IpAddr, info: PeerInfo, settings: PeerSettings, now: Time) {
        self.neighbours.insert(
            address,
            Neighbour {
                info,
                peer: Peer::new(settings, now),
                is_synced: false,
                malformed: VecDeque::new(),
            },
        );
        self.dirty.all = true;
    }

    /// Sets or clears the account of a member's router. The account may appear and disappear while the peer
    /// remains.
    pub fn set_account(&mut self, address: IpAddr, account: Option<AccountId>) {
        if let Some(neighbour) = self.neighbours.get_mut(&address)
            && neighbour.info.account != account
        {
            neighbour.info.account = account;
            self.dirty.all = true;
        }
    }

    /// Runs the timers of all peers that are due.
    pub fn poll(&mut self, now: Time) {
        let addresses: Vec<IpAddr> = self.neighbours.keys().copied().collect();
        for address in addresses {
            if let Some(peer) = self.peer(address) {
                peer.poll(now);
            }
            self.collect(address);
        }
    }

    /// Returns the peer with an address, for the task of its connection. [`FilterController::collect`] processes the
    /// peer's route changes.
    pub fn peer(&mut self, address: IpAddr) -> Option<&mut Peer> {
        self.neighbours
            .get_mut(&address)
            .map(|neighbour| &mut neighbour.peer)
    }

    /// Processes the changes of a peer's routes. Returns true if filters may have to change.
    pub fn collect(&mut self, address: IpAddr) -> bool {
        let Some(neighbour) = self.neighbours.get_mut(&address) else {
            return false;
        };
        let changes = neighbour.peer.take_changes();
        let has_changes = !changes.is_empty();
        for change in changes {
            self.change(address, change);
        }
        has_changes
    }

    fn change(&mut self, address: IpAddr, change: Change) {
        match change {
            Change::Announced(route) => {
                let is_rule = match &route {
                    RouteKey::Flowspec { .. } => true,
                    RouteKey::Unicast { prefix, .. } => {
                        self.changed(*prefix);
                        self.is_blackhole(address, &route)
                    }
                };
                let reference = reference(address, &route);
                if is_rule {
                    let announced = Announced {
                        peer: address,
                        route,
                        compared: None,
                    };
                    self.rules.insert(reference.clone(), announced);
                    self.withdrawn.remove(&reference);
                    self.dirty.rules.insert(reference);
                } else {
                    self.forget(reference);
                }
            }
            Change::Withdrawn(route) => {
                if let RouteKey::Unicast { prefix, .. } = &route {
                    self.changed(*prefix);
                }
                let reference = reference(address, &route);
                self.forget(reference);
            }
            Change::Malformed { bytes, error, .. } => {
                if let Some(neighbour) = self.neighbours.get_mut(&address) {
                    let hex = HEXLOWER.encode(&bytes[..bytes.len().min(32)]);
                    neighbour
                        .malformed
                        .push_back(format!("flow specification {hex}: {error}"));
                    while neighbour.malformed.len() > MALFORMED_MAX {
                        neighbour.malformed.pop_front();
                    }
                }
            }
            Change::EndOfRib(_) => {
                if let Some(neighbour) = self.neighbours.get_mut(&address)
                    && neighbour.peer.has_all_routes()
                    && !neighbour.is_synced
                {
                    neighbour.is_synced = true;
                    self.dirty.all = true;
                }
            }
        }
    }

    /// Records that a peer no longer announces a rule.
    fn forget(&mut self, reference: String) {
        if self.rules.remove(&reference).is_some() {
            self.withdrawn.insert(reference.clone());
            self.dirty.rules.insert(reference);
        }
    }

    /// Returns true if the route requests a drop: by BLACKHOLE (RFC 7999), or by a community or next hop in
    /// the settings.
    fn is_blackhole(&self, address: IpAddr, route: &RouteKey) -> bool {
        let neighbour = self.neighbours.get(&address);
        let route = neighbour.and_then(|neighbour| neighbour.peer.rib().route(route));
        route.is_some_and(|route| self.asks_for_drop(&route.attributes))
    }

    pub(crate) fn asks_for_drop(&self, attributes: &millrace_bgp::Attributes) -> bool {
        let settings = &self.settings;
        attributes.has_community(millrace_bgp::BLACKHOLE)
            || attributes
                .communities
                .iter()
                .any(|community| settings.blackhole_communities.contains(community))
            || attributes
                .large
                .iter()
                .any(|community| settings.blackhole_large.contains(community))
            || attributes
                .next_hop
                .is_some_and(|next_hop| settings.blackhole_next_hops.contains(&next_hop))
    }

    fn changed(&mut self, prefix: millrace_bgp::Prefix) {
        if self.dirty.prefixes.len() >= CHANGED_MAX {
            self.dirty.all = true;
            self.dirty.prefixes.clear();
        } else if !self.dirty.all {
            self.dirty.prefixes.extend(crate::prefix(prefix));
        }
    }

    /// Replaces the validated ROA payloads.
    pub fn set_vrps(&mut self, vrps: VrpState) {
        self.vrps = vrps;
        self.dirty.all = true;
    }

    /// Replaces the registry's objects of an account.
    pub fn set_route_objects(&mut self, account: AccountId, objects: RouteObjects) {
        if let Some(registry) = &mut self.registry {
            self.dirty.all |= registry.get(&account) != Some(&objects);
            registry.insert(account, objects);
        }
    }

    /// Requests a new query to the registry for an account, and marks all filters to be compared again.
    pub fn recheck(&mut self, account: AccountId) {
        self.recheck.insert(account);
        self.dirty.all = true;
        for neighbour in self.neighbours.values_mut() {
            if neighbour.info.account == Some(account) {
                neighbour.peer.refresh();
            }
        }
    }

    /// Returns and removes the accounts for which a new query to the registry was requested.
    pub fn take_rechecks(&mut self) -> BTreeSet<AccountId> {
        core::mem::take(&mut self.recheck)
    }

    /// Records that an order from another source has changed accounts, addresses or filters of the exchange.
    pub fn exchange_changed(&mut self) {
        self.dirty.all = true;
    }

    /// Returns true if there is something to compare.
    pub fn is_dirty(&self) -> bool {
        self.dirty.all || !self.dirty.rules.is_empty() || !self.dirty.prefixes.is_empty()
    }

    /// Returns true while the rules of a peer are kept although the peer does not announce them: after a
    /// start of the engine, until the peer has announced all routes or [`Settings::restart`] has elapsed.
    pub(crate) fn may_come_back(&self, address: IpAddr, now: Timestamp) -> bool {
        now < self.started.1.after(self.settings.restart)
            && self
                .neighbours
                .get(&address)
                .is_some_and(|neighbour| !neighbour.is_synced)
    }

    /// Returns the end of the time for which rules are kept after the start.
    pub(crate) fn restart_end(&self) -> Timestamp {
        self.started.1.after(self.settings.restart)
    }

    /// Returns the number of translations of rules to filters since the start. Only new rules need one.
    pub const fn translations(&self) -> u64 {
        self.translations
    }

    /// Returns the state of all sessions, by address.
    pub fn sessions(&self) -> Vec<SessionStatus> {
        let status = |(address, neighbour): (&IpAddr, &Neighbour)| {
            let state = neighbour.peer.state();
            let (mono, wall) = self.started;
            let attribute = |problem: &millrace_bgp::Problem| {
                format!("attribute {}: {}", problem.attribute, problem.text)
            };
            SessionStatus {
                peer: *address,
                asn: neighbour.info.asn,
                kind: neighbour.info.kind,
                account: neighbour.info.account,
                state: state.session,
                since: wall.after(state.since.since(mono)),
                families: state.families,
                routes: state.unicast,
                flowspec: state.flowspec,
                last_error: state.last_error,
                problems: state
                    .problems
                    .iter()
                    .map(attribute)
                    .chain(neighbour.malformed.iter().cloned())
                    .collect(),
            }
        };
        self.neighbours.iter().map(status).collect()
    }
}
