//! The keyed hash of the engine's tables: senders cannot choose keys that collide without knowing the seed.

use core::hash::BuildHasher;

use siphasher::sip::SipHasher13;

/// Builds hashers with the seed of the engine.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seed(pub(crate) [u64; 2]);

impl BuildHasher for Seed {
    type Hasher = SipHasher13;

    fn build_hasher(&self) -> SipHasher13 {
        SipHasher13::new_with_keys(self.0[0], self.0[1])
    }
}
