//! Identities: an Ed25519 key for each user and machine, in a file that nobody else can read.
//!
//! A peer is its public key, as with ssh. The text form is base32 (RFC 4648, lower case, without padding), 52 characters.

use crate::base32;
use ring::rand::{SecureRandom, SystemRandom};
use ring::signature::{Ed25519KeyPair, KeyPair, UnparsedPublicKey};
use std::fmt;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use thiserror::Error;

/// The reason why an identity cannot be used.
#[derive(Debug, Error)]
pub enum IdentityError {
    /// The file cannot be read or written.
    #[error("cannot {verb} the identity {}: {error}; give another file with --identity", path.display())]
    File {
        /// The operation that failed.
        verb: &'static str,
        path: PathBuf,
        error: io::Error,
    },
    /// Others may read the file.
    #[error("the identity {} has mode {mode:o}, so that others can read it; run `chmod 600` on it", path.display())]
    Mode { path: PathBuf, mode: u32 },
    /// The file holds no key.
    #[error("{} holds no Ed25519 key in PKCS #8; move it away, and a new one is made", path.display())]
    Content { path: PathBuf },
    /// The system gives no random numbers.
    #[error("the system gives no random numbers for a new key")]
    Random,
}

/// A text that is not a public key. A key has 52 characters of base32.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("`{text}` is no key; expected 52 characters of a-z and 2-7, as `millrace receive` prints them")]
pub struct KeyTextError {
    text: String,
}

/// The public key of a peer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PublicKey([u8; 32]);

impl PublicKey {
    /// Returns the key with these bytes.
    pub const fn new(bytes: [u8; 32]) -> PublicKey {
        PublicKey(bytes)
    }

    /// Returns the bytes.
    pub fn bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Returns true if `signature` is this key's signature of `message`.
    pub fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        UnparsedPublicKey::new(&ring::signature::ED25519, &self.0)
            .verify(message, signature)
            .is_ok()
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&base32::encode(&self.0))
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PublicKey({self})")
    }
}

impl FromStr for PublicKey {
    type Err = KeyTextError;

    fn from_str(text: &str) -> Result<PublicKey, KeyTextError> {
        base32::decode(text)
            .and_then(|bytes| <[u8; 32]>::try_from(bytes).ok())
            .map(PublicKey)
            .ok_or_else(|| KeyTextError {
                text: text.to_owned(),
            })
    }
}

/// A key pair.
pub struct Identity {
    pair: Ed25519KeyPair,
    pkcs8: Vec<u8>,
}

impl Identity {
    /// Returns a new identity, without writing it to a file.
    ///
    /// # Errors
    /// If the system gives no random numbers.
    pub fn generate() -> Result<Identity, IdentityError> {
        let document =
            Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).map_err(|_| IdentityError::Random)?;
        Identity::from_pkcs8(document.as_ref()).ok_or(IdentityError::Random)
    }

    fn from_pkcs8(pkcs8: &[u8]) -> Option<Identity> {
        let pair = Ed25519KeyPair::from_pkcs8(pkcs8).ok()?;
        Some(Identity {
            pair,
            pkcs8: pkcs8.to_vec(),
        })
    }

    /// Returns the identity in a file, which is created with mode 0600 if it does not exist. Only one of several concurrent callers
    /// creates it; the others read it.
    ///
    /// # Errors
    /// If the file cannot be read or written, others may read it, or it holds no key.
    pub fn load_or_create(path: &Path) -> Result<Identity, IdentityError> {
        if let Some(identity) = Identity::load(path)? {
            return Ok(identity);
        }
        let failed = |verb: &'static str| {
            move |error| IdentityError::File {
                verb,
                path: path.to_owned(),
                error,
            }
        };
        let identity = Identity::generate()?;
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).map_err(failed("create the directory of"))?;
        }
        // The file gets its name only when it is complete, and only if no other process has created it:
        // link(2) replaces nothing.
        let mut temporary = path.as_os_str().to_owned();
        temporary.push(format!(".{:016x}", u64::from_be_bytes(random()?)));
        let temporary = PathBuf::from(temporary);
        let written = identity.write(&temporary).map_err(failed("write"));
        let linked = written.map(|()| fs::hard_link(&temporary, path));
        let _ = fs::remove_file(&temporary);
        match linked? {
            Ok(()) => Ok(identity),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                Identity::load(path)?.ok_or_else(|| failed("read")(io::Error::from(io::ErrorKind::NotFound)))
            }
            Err(error) => Err(failed("create")(error)),
        }
    }

    /// Returns the identity in a file; `None` if there is no file.
    fn load(path: &Path) -> Result<Option<Identity>, IdentityError> {
        let failed = |error| IdentityError::File {
            verb: "read",
            path: path.to_owned(),
            error,
        };
        let metadata = match fs::metadata(path) {
            Ok(metadata) => metadata,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed(error)),
        };
        let mode = metadata.permissions().mode() & 0o777;
        if mode & 0o077 != 0 {
            return Err(IdentityError::Mode {
                path: path.to_owned(),
                mode,
            });
        }
        let bytes = fs::read(path).map_err(failed)?;
        let identity = Identity::from_pkcs8(&bytes).ok_or_else(|| IdentityError::Content {
            path: path.to_owned(),
        })?;
        Ok(Some(identity))
    }

    /// Writes the key pair to a new file with mode 0600.
    fn write(&self, path: &Path) -> io::Result<()> {
        let mut options = fs::OpenOptions::new();
        let mut file = options.write(true).create_new(true).mode(0o600).open(path)?;
        file.write_all(&self.pkcs8)?;
        file.sync_all()
    }

    /// Returns the public key.
    pub fn public_key(&self) -> PublicKey {
        let mut bytes = [0; 32];
        bytes.copy_from_slice(self.pair.public_key().as_ref());
        PublicKey(bytes)
    }

    /// Returns the signature of a message.
    pub fn sign(&self, message: &[u8]) -> Vec<u8> {
        self.pair.sign(message).as_ref().to_vec()
    }

    /// Returns the key pair in PKCS #8, for TLS.
    pub(crate) fn pkcs8(&self) -> &[u8] {
        &self.pkcs8
    }
}

/// Returns random bytes from the operating system.
///
/// # Errors
/// If the system gives no random numbers.
pub(crate) fn random<const N: usize>() -> Result<[u8; N], IdentityError> {
    let mut bytes = [0; N];
    SystemRandom::new()
        .fill(&mut bytes)
        .map_err(|_| IdentityError::Random)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_is_created_once_with_mode_0600_and_read_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("deep/identity");
        let first = Identity::load_or_create(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let again = Identity::load_or_create(&path).unwrap();
        assert_eq!(first.public_key(), again.public_key());
        let text = first.public_key().to_string();
        assert_eq!(text.parse(), Ok(first.public_key()));
        assert!(first.public_key().verifies(b"x", &again.sign(b"x")));
        assert!(!first.public_key().verifies(b"y", &again.sign(b"x")));
    }

    #[test]
    fn processes_that_start_at_once_get_the_same_identity() {
        let dir = tempfile::tempdir().unwrap();
        for round in 0..20 {
            let path = dir.path().join(format!("{round}/identity"));
            let start = std::sync::Barrier::new(8);
            let keys: Vec<PublicKey> = std::thread::scope(|scope| {
                let load = || {
                    start.wait();
                    Identity::load_or_create(&path).unwrap().public_key()
                };
                let threads = [(); 8].map(|()| scope.spawn(load));
                threads.map(|thread| thread.join().unwrap()).to_vec()
            });
            assert!(keys.iter().all(|key| *key == keys[0]), "{keys:?}");
            assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
        }
    }

    #[test]
    fn an_identity_that_others_can_read_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("identity");
        Identity::load_or_create(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        assert!(matches!(
            Identity::load_or_create(&path),
            Err(IdentityError::Mode { mode: 0o640, .. })
        ));
    }
}
