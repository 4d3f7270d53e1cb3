//! The audit chain. docs/audit-chain.md describes it completely, so that others can write a verifier.
//!
//! An entry is a JSON object. Its hash is the SHA-256 of its canonical form (RFC 8785), which contains the
//! hash of the previous entry; so the hash of the head commits to all entries. A signed head (Ed25519, RFC
//! 8032) proves that the holder of the key had the chain in that form.

use data_encoding::{HEXLOWER, HEXLOWER_PERMISSIVE};
use ring::digest::{SHA256, digest};
use ring::rand::SystemRandom;
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair as _, UnparsedPublicKey};
use serde_json::{Value, json};

use crate::canonical::{CanonicalError, canonical, canonical_object};
use crate::time::UnixMillis;

/// A SHA-256 hash, as 64 lower-case hexadecimal digits.
pub type Hash = String;

/// The `previous` of the first entry: 64 zeros.
pub const GENESIS: &str = "0000000000000000000000000000000000000000000000000000000000000000";

/// An act to be recorded in the chain.
#[derive(Clone, PartialEq, Debug)]
pub struct AuditEntry {
    /// The user or program that acted.
    pub actor: String,
    /// The act: `create_service`, `login`, `read`…
    pub action: String,
    /// The object, such as `sv-77`; empty if there is none.
    pub object: String,
    /// Further facts; numbers are integers.
    pub detail: Value,
}

/// An entry of the chain.
#[derive(Clone, PartialEq, Debug)]
pub struct AuditRecord {
    /// The position in the chain; the first entry has 1.
    pub serial: u64,
    /// The entry: `serial`, `time`, `actor`, `action`, `object`, `detail`, `previous`.
    pub body: Value,
    /// The hash of the canonical form of `body`.
    pub hash: Hash,
}

/// An entry of the chain, as the database stores it.
#[derive(Debug)]
pub(crate) struct AuditRow {
    /// The position in the chain; the first entry has 1.
    pub(crate) serial: u64,
    /// The canonical form of the entry.
    pub(crate) text: String,
    /// The hash of the canonical form.
    pub(crate) hash: Hash,
}

impl AuditRow {
    /// Returns the entry that follows the number `serial - 1` with the hash `previous`.
    pub(crate) fn new(
        serial: u64,
        previous: &str,
        entry: &AuditEntry,
        now: UnixMillis,
    ) -> Result<AuditRow, CanonicalError> {
        let text = |text: &str| Value::from(text);
        let text = canonical_object(vec![
            ("serial", &Value::from(serial)),
            ("time", &Value::from(now.0)),
            ("actor", &text(&entry.actor)),
            ("action", &text(&entry.action)),
            ("object", &text(&entry.object)),
            ("detail", &entry.detail),
            ("previous", &text(previous)),
        ])?;
        let hash = sha256(&text);
        Ok(AuditRow { serial, text, hash })
    }
}

/// A signature of the chain's head.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SignedHead {
    /// The serial number of the newest entry.
    pub serial: u64,
    /// The hash of that entry.
    pub hash: Hash,
    /// The time of the signature.
    pub at: UnixMillis,
    /// The public key, 64 hexadecimal digits.
    pub public_key: String,
    /// The signature, 128 hexadecimal digits.
    pub signature: String,
}

/// A line that is not a signed head.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("expected a head of the audit chain as JSON, with hash, public_key, serial, signature and time")]
pub struct NoHead;

/// The text of a head is one line of JSON, as in the export of the chain (docs/audit-chain.md).
impl std::fmt::Display for SignedHead {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.to_json().fmt(f)
    }
}

impl std::str::FromStr for SignedHead {
    type Err = NoHead;

    fn from_str(text: &str) -> Result<SignedHead, NoHead> {
        let value: Value = serde_json::from_str(text).map_err(|_| NoHead)?;
        let hex = |name: &str, len: usize| {
            let text = value[name].as_str()?;
            let is_hex = text.len() == len && text.bytes().all(|byte| byte.is_ascii_hexdigit());
            is_hex.then(|| text.to_owned())
        };
        let head = || {
            Some(SignedHead {
                serial: value["serial"].as_u64()?,
                hash: hex("hash", 64)?,
                at: UnixMillis(value["time"].as_u64()?),
                public_key: hex("public_key", 64)?,
                signature: hex("signature", 128)?,
            })
        };
        head().ok_or(NoHead)
    }
}

impl SignedHead {
    /// Returns the head as a JSON object.
    pub fn to_json(&self) -> Value {
        json!({
            "signature": self.signature, "public_key": self.public_key, "serial": self.serial, "hash": self.hash,
            "time": self.at.0,
        })
    }

    /// Returns the bytes that the signature covers: the canonical form of serial, hash and time.
    fn message(serial: u64, hash: &str, at: UnixMillis) -> Result<String, CanonicalError> {
        canonical(&json!({"hash": hash, "serial": serial, "time": at.0}))
    }

    /// Returns `true` if the signature is right under `public_key` (hexadecimal).
    fn is_valid(&self, public_key: &str) -> bool {
        let (Some(key), Some(signature)) = (
            HEXLOWER_PERMISSIVE.decode(public_key.as_bytes()).ok(),
            HEXLOWER_PERMISSIVE.decode(self.signature.as_bytes()).ok(),
        ) else {
            return false;
        };
        let Ok(message) = SignedHead::message(self.serial, &self.hash, self.at) else {
            return false;
        };
        UnparsedPublicKey::new(&ED25519, key)
            .verify(message.as_bytes(), &signature)
            .is_ok()
    }
}

/// An Ed25519 key that signs heads.
pub struct SigningKey(Ed25519KeyPair);

impl std::fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SigningKey({})", self.public_key())
    }
}

impl SigningKey {
    /// Returns a new key in PKCS #8 (RFC 5958), as it is stored in the key file.
    ///
    /// # Errors
    /// A message if the system has no randomness.
    pub fn generate() -> Result<Vec<u8>, String> {
        let document = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new());
        document
            .map(|document| document.as_ref().to_vec())
            .map_err(|_| "the system gives no random bytes".to_owned())
    }

    /// Reads a key in PKCS #8.
    ///
    /// # Errors
    /// A message if the bytes are no Ed25519 key.
    pub fn from_pkcs8(bytes: &[u8]) -> Result<SigningKey, String> {
        let pair = Ed25519KeyPair::from_pkcs8_maybe_unchecked(bytes);
        pair.map(SigningKey)
            .map_err(|error| format!("no Ed25519 key in PKCS #8: {error}"))
    }

    /// Returns the public key, as 64 hexadecimal digits.
    pub fn public_key(&self) -> String {
        HEXLOWER.encode(self.0.public_key().as_ref())
    }

    /// Signs a head.
    pub(crate) fn sign(&self, serial: u64, hash: &str, at: UnixMillis) -> Result<SignedHead, CanonicalError> {
        let message = SignedHead::message(serial, hash, at)?;
        let signature = HEXLOWER.encode(self.0.sign(message.as_bytes()).as_ref());
        Ok(SignedHead {
            serial,
            hash: hash.to_owned(),
            at,
            public_key: self.public_key(),
            signature,
        })
    }
}

/// The result of a successful verification.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ChainSummary {
    /// The number of entries.
    pub len: u64,
    /// The hash of the newest entry.
    pub head: Hash,
    /// The serial number of the newest entry that a valid signature covers; 0 if there is none.
    pub signed_up_to: u64,
}

/// The first violation that a verification finds.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BrokenChain {
    /// An entry is missing, doubled or out of order.
    #[error("entry {expected} is expected, entry {found} follows: an entry is missing or out of order")]
    Order {
        /// The serial number that must follow.
        expected: u64,
        /// The serial number that follows.
        found: u64,
    },
    /// An entry does not hold the hash of the previous entry.
    #[error("entry {serial} does not follow entry {}: its `previous` is not that entry's hash", serial - 1)]
    Link {
        /// The entry.
        serial: u64,
    },
    /// An entry differs from what was written.
    #[error("entry {serial} was changed: its hash is not the hash of its contents")]
    Contents {
        /// The entry.
        serial: u64,
    },
    /// A signature is wrong, or covers an entry that has another hash or is missing.
    #[error("the signature of {at} over entry {serial} is not valid for this chain")]
    Signature {
        /// The entry that the signature names.
        serial: u64,
        /// The time of the signature, in milliseconds since 1970.
        at: u64,
    },
    /// A signature covers an entry behind the end of the chain.
    #[error(
        "the chain ends at entry {len}, and entry {serial} was signed at {at}: entries were removed at the end"
    )]
    Cut {
        /// The number of entries.
        len: u64,
        /// The entry that the signature names.
        serial: u64,
        /// The time of the signature, in milliseconds since 1970.
        at: u64,
    },
}

/// Checks a chain and the signatures of its heads, in the order of their serial numbers. With `public_key`, signatures of other
/// keys are violations; without, each signature is checked with the key that it names.
///
/// A chain that was cut back to one of its signatures, together with the later signatures, is a shorter valid chain. `heads`
/// should therefore contain heads that were kept elsewhere, too.
///
/// # Errors
/// [`BrokenChain`]: the first violation.
pub fn verify<'a>(
    records: impl IntoIterator<Item = &'a AuditRecord>,
    heads: &[SignedHead],
    public_key: Option<&str>,
) -> Result<ChainSummary, BrokenChain> {
    let mut summary = ChainSummary {
        len: 0,
        head: GENESIS.to_owned(),
        signed_up_to: 0,
    };
    let mut heads = heads.iter().peekable();
    for record in records {
        let expected = summary.len + 1;
        if record.serial != expected || record.body["serial"] != json!(expected) {
            let found = if record.serial == expected {
                record.body["serial"].as_u64()
            } else {
                None
            };
            return Err(BrokenChain::Order {
                expected,
                found: found.unwrap_or(record.serial),
            });
        }
        if record.body["previous"] != json!(summary.head) {
            return Err(BrokenChain::Link { serial: expected });
        }
        let text = canonical(&record.body).map_err(|_| BrokenChain::Contents { serial: expected })?;
        if sha256(&text) != record.hash {
            return Err(BrokenChain::Contents { serial: expected });
        }
        summary.len = expected;
        summary.head.clone_from(&record.hash);
        while let Some(head) = heads.next_if(|head| head.serial == expected) {
            if head.hash != record.hash || !head.is_valid(public_key.unwrap_or(&head.public_key)) {
                return Err(BrokenChain::Signature {
                    serial: head.serial,
                    at: head.at.0,
                });
            }
            summary.signed_up_to = expected;
        }
    }
    match heads.next() {
        // Serial numbers begin with 1, and those of `heads` ascend.
        Some(head) if head.serial <= summary.len => Err(BrokenChain::Signature {
            serial: head.serial,
            at: head.at.0,
        }),
        Some(head) => Err(BrokenChain::Cut {
            len: summary.len,
            serial: head.serial,
            at: head.at.0,
        }),
        None => Ok(summary),
    }
}

fn sha256(text: &str) -> Hash {
    sha256_hex(text.as_bytes())
}

/// Returns the SHA-256 of bytes as 64 lower-case hexadecimal digits.
pub fn sha256_hex(bytes: &[u8]) -> Hash {
    HEXLOWER.encode(digest(&SHA256, bytes).as_ref())
}
