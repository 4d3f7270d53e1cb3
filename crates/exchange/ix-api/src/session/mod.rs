//! Sign-in: passwords, one-time passwords, limits on attempts, sessions and API keys.
//!
//! ```text
//!  POST /api/v1/session --> Device: a browser that signed in before
//!                              |
//!                              v
//!                           Attempts (by login, network and device) --> refused: Failures (audit chain)
//!                              |
//!                              v
//!                           password (argon2id) --> totp (operators) --> Sessions: token in a cookie,
//!                                                                       SHA-256 of it in the store
//! ```
//! Nothing that a thief of the database could use is stored in clear: passwords as argon2id, tokens and keys as
//! SHA-256 of 256 random bits, TOTP secrets sealed with a key from a file.

mod api_key;
mod attempts;
mod base32;
mod credentials;
mod device;
mod failures;
mod password;
mod seal;
mod sessions;
mod token;
mod totp;

pub(crate) use api_key::PREFIX as KEY_PREFIX;
pub use api_key::{ApiKeyRecord, KeyScope};
pub use attempts::{Attempts, TooMany};
pub(crate) use base32::encode as base32;
pub use credentials::{
    CredentialError, CredentialStore, MemoryCredentials, Stored, UserCredentials, WrongCodes,
};
pub(crate) use credentials::{load_json, parse, save_json};

/// Returns the answer of a store that does not wait.
#[cfg(test)]
pub(crate) fn ready<T>(answer: impl Future<Output = T>) -> T {
    futures::FutureExt::now_or_never(answer).expect("a store in memory does not wait")
}
pub(crate) use device::Device;
pub(crate) use failures::{Failure, Failures, Next};
pub(crate) use password::{MAX_LEN as PASSWORD_LEN_MAX, MIN_LEN as PASSWORD_LEN_MIN};
pub use password::{PasswordError, hash_password, verify_password};
pub use seal::{SealError, Sealer};
pub(crate) use sessions::cookie;
pub use sessions::{COOKIE, PREFIX as SESSION_PREFIX, Session, Sessions};
pub(crate) use token::{TokenError, Tokens};
pub use totp::{TotpSecret, code_at};

use ring::rand::{SecureRandom, SystemRandom};

/// The system's random numbers are not available.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the system gave no random numbers: check /dev/urandom")]
pub struct NoRandom;

/// Returns random bytes from the system.
pub(crate) fn random<const N: usize>() -> Result<[u8; N], NoRandom> {
    let mut bytes = [0; N];
    SystemRandom::new().fill(&mut bytes).map_err(|_| NoRandom)?;
    Ok(bytes)
}

/// Returns a new key for a [`Sealer`].
///
/// # Errors
/// [`NoRandom`].
pub fn generate_key() -> Result<[u8; 32], NoRandom> {
    random()
}

/// Returns the key in the store for the address of a user's calendar.
pub(crate) fn calendar_key(user: millrace_ix_model::UserId) -> String {
    format!("calendar/{user}")
}

/// Returns the SHA-256 of a token as hexadecimal text, under which the token is stored.
pub(crate) fn fingerprint(token: &str) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, token.as_bytes());
    data_encoding::HEXLOWER.encode(digest.as_ref())
}
