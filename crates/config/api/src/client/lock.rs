//! The lock on the configuration.

use super::config::{Event, events_of};
use super::connection::{Client, RESPONSE_TIMEOUT};
use super::error::ClientError;
use super::query::Params;
use crate::view::{Lock, LockState, LockTaken};

impl Client {
    /// Returns the client with the token of a lock, which it sends with every request.
    #[must_use]
    pub fn with_lock(mut self, token: Option<String>) -> Client {
        self.lock = token;
        self
    }

    /// Returns the lock, if a session holds it.
    ///
    /// # Errors
    /// [`ClientError`], as in every method below.
    pub fn lock(&self) -> Result<LockState, ClientError> {
        self.get("/api/v1/lock")
    }

    /// Takes the lock for `lease_s` seconds.
    pub fn take_lock(&self, author: &str, lease_s: u64) -> Result<LockTaken, ClientError> {
        let mut params = Params::default();
        params.add("author", author);
        params.maybe("lease", Some(lease_s));
        let request = self.agent.post(format!("{}/api/v1/lock{}", self.base, params.0));
        let request = request.config().timeout_global(Some(RESPONSE_TIMEOUT)).build();
        self.json(self.with_token(request).send_empty())
    }

    /// Renews the lease of the lock whose token this client has.
    pub fn renew_lock(&self, lease_s: u64) -> Result<Lock, ClientError> {
        let request = self
            .agent
            .put(format!("{}/api/v1/lock?lease={lease_s}", self.base));
        let request = request.config().timeout_global(Some(RESPONSE_TIMEOUT)).build();
        self.json(self.with_token(request).send_empty())
    }

    /// Releases the lock whose token this client has, or breaks the lock of any session.
    pub fn release_lock(&self, force: bool) -> Result<Lock, ClientError> {
        let mut params = Params::default();
        params.maybe("force", force.then_some(true));
        let request = self
            .agent
            .delete(format!("{}/api/v1/lock{}", self.base, params.0));
        let request = request.config().timeout_global(Some(RESPONSE_TIMEOUT)).build();
        self.json(self.with_token(request).call())
    }

    /// Takes the lock until the returned events are dropped. The first event carries a [`LockTaken`].
    pub fn hold_lock(&self, author: &str) -> Result<impl Iterator<Item = Event> + use<>, ClientError> {
        let mut params = Params::default();
        params.add("author", author);
        let request = self
            .agent
            .post(format!("{}/api/v1/lock/session{}", self.base, params.0));
        Ok(events_of(self.check(self.with_token(request).send_empty())?))
    }
}
