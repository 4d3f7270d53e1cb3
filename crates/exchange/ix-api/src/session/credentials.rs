//! The credentials of users as the exchange stores them, and the trait of the store.

use std::collections::BTreeMap;
use std::sync::Mutex;

use serde::{Deserialize, Serialize};

/// The credentials could not be read or written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the store of credentials failed: {reason}")]
pub struct CredentialError {
    pub reason: String,
}

/// Values by key, which survive a restart. Calls may wait for the disk; they run on blocking threads.
///
/// Keys are `user/us-3`, `session/FINGERPRINT`, `key/FINGERPRINT`, `refresh/FINGERPRINT`, `oidc/FINGERPRINT/ac-2`, `token-key`
/// and `record/ct-7`.
pub trait CredentialStore: Send + Sync {
    /// Returns the value of a key.
    ///
    /// # Errors
    /// [`CredentialError`].
    fn load(&self, key: &str) -> Result<Option<Vec<u8>>, CredentialError>;

    /// Sets the value of a key, or removes it.
    ///
    /// # Errors
    /// [`CredentialError`].
    fn save(&self, key: &str, value: Option<&[u8]>) -> Result<(), CredentialError>;

    /// Returns all keys with this prefix and their values.
    ///
    /// # Errors
    /// [`CredentialError`].
    fn list(&self, prefix: &str) -> Result<Vec<(String, Vec<u8>)>, CredentialError>;
}

/// A store in memory, for tests and for exchanges without a database.
#[derive(Debug, Default)]
pub struct MemoryCredentials(Mutex<BTreeMap<String, Vec<u8>>>);

impl MemoryCredentials {
    fn values(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, Vec<u8>>> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl CredentialStore for MemoryCredentials {
    fn load(&self, key: &str) -> Result<Option<Vec<u8>>, CredentialError> {
        Ok(self.values().get(key).cloned())
    }

    fn save(&self, key: &str, value: Option<&[u8]>) -> Result<(), CredentialError> {
        let mut values = self.values();
        match value {
            Some(value) => values.insert(key.to_owned(), value.to_vec()),
            None => values.remove(key),
        };
        Ok(())
    }

    fn list(&self, prefix: &str) -> Result<Vec<(String, Vec<u8>)>, CredentialError> {
        let values = self.values();
        let found = values
            .range(prefix.to_owned()..)
            .take_while(|(key, _)| key.starts_with(prefix));
        Ok(found.map(|(key, value)| (key.clone(), value.clone())).collect())
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
}

impl UserCredentials {
    /// Returns the key of a user's credentials.
    pub fn key(user: &str) -> String {
        format!("user/{user}")
    }
}

/// Reads a JSON value from the store.
pub(crate) fn load_json<T: for<'de> Deserialize<'de>>(
    store: &dyn CredentialStore,
    key: &str,
) -> Result<Option<T>, CredentialError> {
    store.load(key)?.map(|bytes| parse(&bytes)).transpose()
}

pub(crate) fn parse<T: for<'de> Deserialize<'de>>(bytes: &[u8]) -> Result<T, CredentialError> {
    serde_json::from_slice(bytes).map_err(|error| CredentialError {
        reason: format!("a stored value is not as expected: {error}"),
    })
}

/// Writes a JSON value to the store.
pub(crate) fn save_json<T: Serialize>(
    store: &dyn CredentialStore,
    key: &str,
    value: &T,
) -> Result<(), CredentialError> {
    let bytes = serde_json::to_vec(value).map_err(|error| CredentialError {
        reason: error.to_string(),
    })?;
    store.save(key, Some(&bytes))
}
