//! Access to the filter controller from several threads.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use millrace_ix_model::{AccountId, Exchange, FilterMatch, Prefix, Timestamp};
use parking_lot::{Mutex, MutexGuard};

use crate::controller::{FilterController, SessionKind, SessionStatus};
use crate::evidence::Validity;
use crate::lookup::FoundRoute;
use crate::ownership::Verdict;

/// A [`FilterController`] that several threads use. Clones are cheap.
#[derive(Clone)]
pub struct Shared(Arc<Mutex<FilterController>>);

impl Shared {
    /// Returns shared access to a filter controller.
    pub fn new(controller: FilterController) -> Shared {
        Shared(Arc::new(Mutex::new(controller)))
    }

    /// Locks the filter controller. The guard must be dropped soon, because all sessions wait for it.
    pub fn lock(&self) -> MutexGuard<'_, FilterController> {
        self.0.lock()
    }

    /// Returns the verdict on whether an account may have a filter, with the evidence or the missing object.
    pub fn check(
        &self,
        exchange: &Exchange,
        account: AccountId,
        matching: &FilterMatch,
        peers: &BTreeSet<AccountId>,
        now: Timestamp,
    ) -> Verdict {
        self.lock().verdict(exchange, account, matching, peers, now)
    }

    /// Returns the live routes of sessions of a type to a prefix.
    pub fn lookup(
        &self,
        exchange: &Exchange,
        kind: SessionKind,
        prefix: Prefix,
        now: Timestamp,
    ) -> Vec<FoundRoute> {
        self.lock().lookup(exchange, kind, prefix, now)
    }

    /// Returns the routes that route servers have accepted from a member.
    pub fn routes_of(
        &self,
        exchange: &Exchange,
        account: AccountId,
        addresses: &BTreeSet<IpAddr>,
        now: Timestamp,
    ) -> Vec<FoundRoute> {
        self.lock().routes_of(exchange, account, addresses, now)
    }

    /// Returns the states of prefixes with their origins by RPKI and in the registry: [`FilterController::states`].
    pub fn states(
        &self,
        account: AccountId,
        routes: &[(Prefix, Option<u32>)],
        now: Timestamp,
    ) -> Vec<(Option<Validity>, Option<bool>)> {
        let controller = self.lock();
        let states = routes
            .iter()
            .map(|(prefix, origin)| controller.states(account, *prefix, *origin, now));
        states.collect()
    }

    /// Returns the state of all BGP sessions.
    pub fn sessions(&self) -> Vec<SessionStatus> {
        self.lock().sessions()
    }

    /// Queries the registry again for an account, and checks its filters again.
    pub fn recheck(&self, account: AccountId) {
        self.lock().recheck(account);
    }
}
