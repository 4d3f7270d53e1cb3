//! The lock of the store: taken, renewed, released, and watched.

use tokio::sync::watch;

use crate::lock::{Lock, LockError, LockToken};
use crate::store::Store;
use crate::time::UnixTime;

impl Store {
    /// Takes the lock for `holder`, for `lease_s` seconds: until it is released, changes without `token` are refused.
    ///
    /// # Errors
    /// [`LockError::Held`] if another session holds it.
    pub fn lock(
        &self,
        holder: &str,
        token: LockToken,
        lease_s: u64,
        now: UnixTime,
    ) -> Result<Lock, LockError> {
        let writer = self.writer();
        self.expire_lock(&writer, now);
        if let Some(lock) = &*self.inner.lock.borrow() {
            return Err(lock.held());
        }
        let lock = Lock::new(holder, token, lease_s, now);
        self.inner.lock.send_replace(Some(lock.clone()));
        Ok(lock)
    }

    /// Lets the lease of the lock end `lease_s` seconds after `now`.
    ///
    /// # Errors
    /// [`LockError::NotHeld`] if `token` does not hold it.
    pub fn renew_lock(&self, token: LockToken, lease_s: u64, now: UnixTime) -> Result<Lock, LockError> {
        let writer = self.writer();
        self.expire_lock(&writer, now);
        let held = self.inner.lock.borrow().clone();
        let held = held.filter(|lock| lock.is_of(Some(token)));
        let lock = Lock::new(&held.ok_or(LockError::NotHeld)?.holder, token, lease_s, now);
        self.inner.lock.send_replace(Some(lock.clone()));
        Ok(lock)
    }

    /// Releases the lock, or breaks the lock of another session if `token` is `None`. Returns the lock that was held.
    ///
    /// # Errors
    /// [`LockError::NotHeld`] if nobody holds it, or another session than that of `token`.
    pub fn unlock(&self, token: Option<LockToken>, now: UnixTime) -> Result<Lock, LockError> {
        let writer = self.writer();
        self.expire_lock(&writer, now);
        let held = self.inner.lock.borrow().clone();
        let held = held.filter(|lock| token.is_none() || lock.is_of(token));
        let lock = held.ok_or(LockError::NotHeld)?;
        self.inner.lock.send_replace(None);
        Ok(lock)
    }

    /// Returns the lock that is held at `now`.
    pub fn locked(&self, now: UnixTime) -> Option<Lock> {
        self.inner.lock.borrow().clone()?.at(now)
    }

    /// Returns a receiver that always holds the lock. [`Store::tick`] ends an overdue lease.
    pub fn watch_lock(&self) -> watch::Receiver<Option<Lock>> {
        self.inner.lock.subscribe()
    }
}
