//! Sealing: one content key for a group, so that a packet is sealed once and sent to N receivers.
//!
//! ```text
//!  content secret ──HKDF-Expand("subkey", i)──> subkey i     for seal counters i·2^20 .. (i + 1)·2^20 − 1
//!  (of one session)   ──HKDF-Expand("iv", i)──> IV i         nonce = IV i XOR seal counter
//! ```
//!
//! * **The nonce is the seal counter**, never a function of the address: if a source file changed between the
//!   first sending and a repair, two plaintexts would have one nonce. Bytes that are read again are sealed
//!   again, under a new counter.
//! * **Each subkey seals 2^20 packets.** RFC 9001, section B.1.1, allows 2^28 packets of up to 2 KiB and 2^23
//!   of up to 64 KiB under AES-128-GCM. A sender at 10 Gbit/s exceeds the second limit in ten seconds.
//! * **The tag excludes forgeries from outside the group.** Members of the group hold the content key. The
//!   pairwise MAC ([`PairwiseKey`]) rejects packets that a member off the path sends in the sender's name. A
//!   member on the path can replace the ciphertext under a tag that it chooses. The digest of the extent,
//!   which arrives by the receiver's own control channel, reveals this.

mod aead;
mod pairwise;
mod replay;

pub use aead::{Algorithm, ContentKey};
pub use pairwise::PairwiseKey;
pub use replay::ReplayWindow;

use thiserror::Error;

/// The largest seal counter, which has 40 bits.
pub const COUNTER_MAX: u64 = (1 << 40) - 1;
/// Binary logarithm of the packets that one subkey seals.
pub const SUBKEY_BITS: u32 = 20;

/// The reason why a packet was not sealed or not opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum SealError {
    /// All 2^40 seal counters of the content key are used.
    #[error(
        "seal counter {counter} is beyond 2^40 − 1, the last one of a session; send again, which resumes with a new key"
    )]
    Exhausted { counter: u64 },
    /// The secret is too short.
    #[error("a content secret of {size} bytes is too short; 32 are needed")]
    ShortSecret {
        /// Bytes of the secret.
        size: usize,
    },
    /// The tag is not that of the packet.
    #[error("the packet under seal counter {counter} does not match its tag")]
    Forged { counter: u64 },
}

/// Seals and opens the shared part of packets.
pub trait Seal {
    /// Encrypts `bytes` (address and payload) in place and returns the tag.
    ///
    /// # Errors
    /// If the counter is beyond [`COUNTER_MAX`].
    fn seal(&mut self, counter: u64, bytes: &mut [u8]) -> Result<[u8; 16], SealError>;

    /// Decrypts `bytes` (ciphertext, then the tag) in place and returns the plaintext.
    ///
    /// # Errors
    /// If the tag does not match. The content of `bytes` is then undefined.
    fn open<'a>(&mut self, counter: u64, bytes: &'a mut [u8]) -> Result<&'a mut [u8], SealError>;
}
