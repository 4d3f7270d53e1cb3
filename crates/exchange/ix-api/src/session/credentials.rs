//! The credentials of users as the exchange stores them, and the trait of the store.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::future::BoxFuture;
use millrace_ix_model::Timestamp;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

/// The credentials could not be read or written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the store of credentials failed: {reason}")]
pub struct CredentialError {
    pub reason: String,
    /// Why this engine writes nothing, if another one leads.
    pub follows: Option<String>,
}

/// The answer of a store, which may wait for the disk.
pub type Stored<'a, T> = BoxFuture<'a, Result<T, CredentialError>>;

/// Values by key, which survive a restart.
///
/// Keys are `user/us-3`, `session/FINGERPRINT`, `key/FINGERPRINT`, `refresh/FINGERPRINT`, `oidc/FINGERPRINT/ac-2`, `token-key`
/// and `record/ct-7`.
pub trait CredentialStore: Send + Sync {
    /// Returns the value of a key.
    ///
    /// # Errors
    /// [`CredentialError`].
    fn load<'a>(&'a self, key: &'a str) -> Stored<'a, Option<Vec<u8>>>;

    /// Sets the value of a key, or removes it.
    ///
    /// # Errors
    /// [`CredentialError`].
    fn save<'a>(&'a self, key: &'a str, value: Option<&'a [u8]>) -> Stored<'a, ()>;

    /// Returns all keys with this prefix and their values.
    ///
    /// # Errors
    /// [`CredentialError`].
    fn list<'a>(&'a self, prefix: &'a str) -> Stored<'a, Vec<(String, Vec<u8>)>>;
}

/// A store in memory, for tests and for exchanges without a database.
#[derive(Debug, Default)]
pub struct MemoryCredentials(Mutex<BTreeMap<String, Vec<u8>>>);

impl CredentialStore for MemoryCredentials {
    fn load<'a>(&'a self, key: &'a str) -> Stored<'a, Option<Vec<u8>>> {
        Box::pin(async move { Ok(self.0.lock().get(key).cloned()) })
    }

    fn save<'a>(&'a self, key: &'a str, value: Option<&'a [u8]>) -> Stored<'a, ()> {
        Box::pin(async move {
            let mut values = self.0.lock();
            match value {
                Some(value) => values.insert(key.to_owned(), value.to_vec()),
                None => values.remove(key),
            };
            Ok(())
        })
    }

    fn list<'a>(&'a self, prefix: &'a str) -> Stored<'a, Vec<(String, Vec<u8>)>> {
        Box::pin(async move {
            let values = self.0.lock();
            let found = values
                .range(prefix.to_owned()..)
                .take_while(|(key, _)| key.starts_with(prefix));
            Ok(found.map(|(key, value)| (key.clone(), value.clone())).collect())
        })
    }
}

/// The stored proofs of a user's identity: password hash and TOTP secret.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserCredentials {
    /// The password's hash (argon2id, PHC string format); `None` before the user has chosen a password.
    pub password: Option<String>,
    /// The sealed TOTP secret.
    pub totp: Option<Vec<u8>>,
    /// The last step for which a TOTP code was accepted.
    #[serde(default)]
    pub totp_step: u64,
    /// The wrong TOTP codes from unknown browsers since the last right one.
    #[serde(default)]
    pub wrong_codes: WrongCodes,
    /// The wrong TOTP codes from browsers that signed in before.
    #[serde(default)]
    pub known_wrong_codes: WrongCodes,
}

/// Wrong TOTP codes after a right password. A code has six digits and three are valid at a time, so that somebody with a stolen
/// password would find one in weeks, if each failure cost only seconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WrongCodes {
    count: u32,
    last: Timestamp,
}

impl WrongCodes {
    /// The number of wrong codes after which further ones have to wait.
    const FREE: u32 = 10;
    /// The wait after the last free wrong code. Each further one doubles it.
    const FIRST_WAIT: Duration = Duration::from_secs(15 * 60);
    const LONGEST_WAIT: Duration = Duration::from_secs(86_400);

    /// Adds a wrong code.
    pub(crate) fn add(&mut self, now: Timestamp) {
        self.count = self.count.saturating_add(1);
        self.last = now;
    }

    /// Returns the time until the next code is accepted; `None` if one is accepted now.
    pub(crate) fn wait(&self, now: Timestamp) -> Option<Duration> {
        let doublings = self.count.checked_sub(Self::FREE)?.min(20);
        let wait = Self::FIRST_WAIT
            .saturating_mul(1 << doublings)
            .min(Self::LONGEST_WAIT);
        let left = wait.saturating_sub(now.since(self.last));
        (!left.is_zero()).then_some(left)
    }
}

impl UserCredentials {
    /// Returns the key of a user's credentials.
    pub fn key(user: &str) -> String {
        format!("user/{user}")
    }

    /// Returns the wrong codes from browsers that signed in before, or from others.
    pub(crate) fn wrong_codes(&mut self, is_known: bool) -> &mut WrongCodes {
        if is_known {
            &mut self.known_wrong_codes
        } else {
            &mut self.wrong_codes
        }
    }
}

/// Reads a JSON value from the store.
pub(crate) async fn load_json<T: for<'de> Deserialize<'de>>(
    store: &dyn CredentialStore,
    key: &str,
) -> Result<Option<T>, CredentialError> {
    let found = store.load(key).await?;
    found.map(|bytes| parse(&bytes)).transpose()
}

pub(crate) fn parse<T: for<'de> Deserialize<'de>>(bytes: &[u8]) -> Result<T, CredentialError> {
    serde_json::from_slice(bytes).map_err(|error| CredentialError {
        reason: format!("a stored value is not as expected: {error}"),
        follows: None,
    })
}

/// Writes a JSON value to the store.
pub(crate) async fn save_json<T: Serialize + Sync>(
    store: &dyn CredentialStore,
    key: &str,
    value: &T,
) -> Result<(), CredentialError> {
    let bytes = serde_json::to_vec(value).map_err(|error| CredentialError {
        reason: error.to_string(),
        follows: None,
    })?;
    store.save(key, Some(&bytes)).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_wrong_codes_are_free_and_each_further_one_doubles_the_wait_up_to_a_day() {
        let mut codes = WrongCodes::default();
        let mut now = Timestamp::from_secs(1_000_000);
        for _ in 0..10 {
            assert_eq!(codes.wait(now), None);
            codes.add(now);
        }
        let mut waits = Vec::new();
        for _ in 0..9 {
            let wait = codes.wait(now).unwrap();
            waits.push(wait.as_secs() / 60);
            assert!(codes.wait(now.after(wait - Duration::from_secs(1))).is_some());
            now = now.after(wait);
            assert_eq!(codes.wait(now), None);
            codes.add(now);
        }
        assert_eq!(waits, [15, 30, 60, 120, 240, 480, 960, 1440, 1440]);
    }
}
