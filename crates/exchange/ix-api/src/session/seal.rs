//! Secrets at rest: sealed by ChaCha20-Poly1305 (RFC 8439) with a key from a file, not from the database.

use data_encoding::HEXLOWER;
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::hmac;

use super::{NoRandom, random};

/// A value that could not be sealed or opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SealError {
    /// No random nonce is available.
    #[error(transparent)]
    Random(#[from] NoRandom),
    /// The value was sealed with another key or for another purpose, or it was changed.
    #[error("a sealed value cannot be opened: it belongs to another key file, or it was changed")]
    Open,
    /// The key has the wrong length.
    #[error("the sealing key has {found} bytes: expected 32")]
    Key {
        /// The length in bytes.
        found: usize,
    },
}

/// Seals and opens secrets with one key.
pub struct Sealer {
    key: LessSafeKey,
    /// Makes names from the key, which tell nothing about it.
    naming: hmac::Key,
}

impl std::fmt::Debug for Sealer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Sealer(..)")
    }
}

impl Sealer {
    /// Returns a sealer with the 32 bytes of a key file.
    ///
    /// # Errors
    /// [`SealError::Key`].
    pub fn new(key: &[u8]) -> Result<Sealer, SealError> {
        let unbound =
            UnboundKey::new(&CHACHA20_POLY1305, key).map_err(|_| SealError::Key { found: key.len() })?;
        Ok(Sealer {
            key: LessSafeKey::new(unbound),
            naming: hmac::Key::new(hmac::HMAC_SHA256, key),
        })
    }

    /// Returns a name for a purpose, which no exchange with another key has: 24 hex digits.
    pub(crate) fn name(&self, purpose: &str) -> String {
        let tag = hmac::sign(&self.naming, purpose.as_bytes());
        HEXLOWER.encode(tag.as_ref().get(..12).unwrap_or_default())
    }

    /// Seals a secret. [`open`](Sealer::open) fails with another `purpose`, so the value has no other use.
    ///
    /// # Errors
    /// [`SealError`].
    pub fn seal(&self, purpose: &str, secret: &[u8]) -> Result<Vec<u8>, SealError> {
        let nonce = random::<NONCE_LEN>()?;
        let mut sealed = secret.to_vec();
        let aad = Aad::from(purpose.as_bytes());
        self.key
            .seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), aad, &mut sealed)
            .map_err(|_| SealError::Open)?;
        let mut value = nonce.to_vec();
        value.append(&mut sealed);
        Ok(value)
    }

    /// Opens a sealed secret.
    ///
    /// # Errors
    /// [`SealError::Open`].
    pub fn open(&self, purpose: &str, value: &[u8]) -> Result<Vec<u8>, SealError> {
        let (nonce, sealed) = value.split_at_checked(NONCE_LEN).ok_or(SealError::Open)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| SealError::Open)?;
        let mut sealed = sealed.to_vec();
        let aad = Aad::from(purpose.as_bytes());
        let secret = self
            .key
            .open_in_place(nonce, aad, &mut sealed)
            .map_err(|_| SealError::Open)?;
        Ok(secret.to_vec())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_of_its_key_and_purpose() {
        let sealer = |byte: u8| Sealer::new(&[byte; 32]).unwrap();
        let name = sealer(7).name("calendar");
        assert_eq!(name, sealer(7).name("calendar"));
        assert_eq!(name.len(), 24);
        assert_ne!(name, sealer(8).name("calendar"));
        assert_ne!(name, sealer(7).name("other"));
    }

    #[test]
    fn a_sealed_secret_opens_with_its_key_and_purpose_only() {
        let sealer = Sealer::new(&[7; 32]).unwrap();
        let sealed = sealer.seal("totp us-3", b"secret").unwrap();
        assert!(!sealed.windows(6).any(|window| window == b"secret"));
        assert_eq!(sealer.open("totp us-3", &sealed).unwrap(), b"secret");
        assert_eq!(sealer.open("totp us-4", &sealed), Err(SealError::Open));
        assert_eq!(
            Sealer::new(&[8; 32]).unwrap().open("totp us-3", &sealed),
            Err(SealError::Open)
        );
        let mut changed = sealed.clone();
        *changed.last_mut().unwrap() ^= 1;
        assert_eq!(sealer.open("totp us-3", &changed), Err(SealError::Open));
        assert_eq!(sealer.open("totp us-3", &[1, 2]), Err(SealError::Open));
        assert_eq!(Sealer::new(&[7; 31]).unwrap_err(), SealError::Key { found: 31 });
    }
}
