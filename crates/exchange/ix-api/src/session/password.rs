//! Passwords as argon2id with 19 MiB of memory, 2 passes, 1 lane (OWASP, "Password Storage Cheat Sheet").

use argon2::password_hash::{PasswordHash, PasswordHasher, PasswordVerifier, SaltString};
use argon2::{Algorithm, Argon2, Params, Version};

use super::{NoRandom, random};

/// The shortest password, in characters.
pub(crate) const MIN_LEN: usize = 12;
/// The longest password, in bytes.
pub(crate) const MAX_LEN: usize = 256;

/// A password that cannot be hashed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PasswordError {
    /// The password is too short or too long.
    #[error("the password has {found} characters: expected {MIN_LEN} to {MAX_LEN}")]
    Length {
        /// The number of characters.
        found: usize,
    },
    /// No random salt is available.
    #[error(transparent)]
    Random(#[from] NoRandom),
    /// The hash function failed.
    #[error("the password could not be hashed: {0}")]
    Hash(String),
}

fn argon2() -> Argon2<'static> {
    // 19 MiB, 2 passes and 1 lane are also the defaults of the crate; they are written here so that its next version
    // does not change them.
    let params = Params::new(19 * 1024, 2, 1, None).unwrap_or_default();
    Argon2::new(Algorithm::Argon2id, Version::V0x13, params)
}

/// Returns the hash of a password in the PHC string format.
///
/// # Errors
/// [`PasswordError`].
pub fn hash_password(password: &str) -> Result<String, PasswordError> {
    let found = password.chars().count();
    if found < MIN_LEN || password.len() > MAX_LEN {
        return Err(PasswordError::Length { found });
    }
    let failed = |error: argon2::password_hash::Error| PasswordError::Hash(error.to_string());
    let salt = SaltString::encode_b64(&random::<16>()?).map_err(failed)?;
    let hash = argon2()
        .hash_password(password.as_bytes(), &salt)
        .map_err(failed)?;
    Ok(hash.to_string())
}

/// Returns true if the password has this hash. Without a hash, as for an unknown login, it takes the same time and
/// returns false.
pub fn verify_password(password: &str, hash: Option<&str>) -> bool {
    /// The hash of a password that nobody knows.
    const NOBODY: &str = "$argon2id$v=19$m=19456,t=2,p=1$bm9ib2R5IGtub3dzIGl0$\
        hUNcpbE8yZ4PYc1tVBYcbTFt4qkMVXnEoqPwvHC8gIo";
    if password.len() > MAX_LEN {
        return false;
    }
    let known = hash.is_some();
    let Ok(parsed) = PasswordHash::new(hash.unwrap_or(NOBODY)) else {
        return false;
    };
    argon2().verify_password(password.as_bytes(), &parsed).is_ok() && known
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_verified_by_its_hash_alone() {
        let hash = hash_password("correct horse battery").unwrap();
        assert!(hash.starts_with("$argon2id$v=19$m=19456,t=2,p=1$"), "{hash}");
        assert!(verify_password("correct horse battery", Some(&hash)));
        assert!(!verify_password("correct horse batterz", Some(&hash)));
        assert!(!verify_password("correct horse battery", None));
        assert_ne!(hash, hash_password("correct horse battery").unwrap(), "salted");
    }

    #[test]
    fn short_and_huge_passwords_are_refused() {
        assert_eq!(
            hash_password("eleven char"),
            Err(PasswordError::Length { found: 11 })
        );
        assert!(hash_password(&"x".repeat(257)).is_err());
        assert!(!verify_password(&"x".repeat(1 << 20), None));
    }
}
