//! Access to the authority from several threads.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use millrace_ix_model::{AccountId, Exchange, FilterMatch, Timestamp};

use crate::authority::{Authority, SessionStatus};
use crate::ownership::Verdict;

/// An [`Authority`] that several threads use. Clones are cheap.
#[derive(Clone)]
pub struct Shared(Arc<Mutex<Authority>>);

impl Shared {
    /// Returns shared access to an authority.
    pub fn new(authority: Authority) -> Shared {
        Shared(Arc::new(Mutex::new(authority)))
    }

    /// Locks the authority. The guard must be dropped soon, because all sessions wait for it.
    pub fn lock(&self) -> MutexGuard<'_, Authority> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
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

    /// Returns the state of all BGP sessions.
    pub fn sessions(&self) -> Vec<SessionStatus> {
        self.lock().sessions()
    }

    /// Queries the registry again for an account, and checks its filters again.
    pub fn recheck(&self, account: AccountId) {
        self.lock().recheck(account);
    }
}
