//! The MAC between a sender and one receiver: SipHash-2-4 (Aumasson and Bernstein, 2012) under a key that no other member of
//! the group has.
//!
//! It covers the head, the seal counter and the tag, 29 bytes. It costs 45 ns for each packet and receiver.
//! AES-128-GCM over 1,428 bytes costs 500 ns (`cargo bench -p millrace-transport`, two busy cores).

use siphasher::sip::SipHasher24;
use std::hash::Hasher;

/// The key of one direction between two peers.
#[derive(Clone)]
pub struct PairwiseKey(SipHasher24);

impl PairwiseKey {
    /// Returns the key with these bytes.
    pub fn new(key: [u8; 16]) -> PairwiseKey {
        PairwiseKey(SipHasher24::new_with_key(&key))
    }

    /// Returns the MAC of a head and the authenticated parts of a body.
    #[inline]
    pub fn mac(&self, head: &[u8], parts: [&[u8]; 2]) -> [u8; 8] {
        let mut hasher = self.0;
        hasher.write(head);
        hasher.write(parts[0]);
        hasher.write(parts[1]);
        hasher.finish().to_le_bytes()
    }

    /// Returns true if `mac` is the MAC. The time of the comparison does not depend on the bytes.
    #[inline]
    pub fn verify(&self, head: &[u8], parts: [&[u8]; 2], mac: &[u8]) -> bool {
        let expected = u64::from_le_bytes(self.mac(head, parts));
        let Ok(mac) = <[u8; 8]>::try_from(mac) else {
            return false;
        };
        expected ^ u64::from_le_bytes(mac) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The paper's appendix A: key 00 01 … 0f, message 00 01 … 0e.
    #[test]
    fn it_is_siphash_2_4_of_the_paper() {
        let key = PairwiseKey::new(std::array::from_fn(|at| at as u8));
        let message: Vec<u8> = (0..15).collect();
        let mac = key.mac(&message[..8], [&message[8..13], &message[13..]]);
        assert_eq!(u64::from_le_bytes(mac), 0xa129_ca61_49be_45e5);
        assert!(key.verify(&message, [&[], &[]], &mac));
        assert!(!key.verify(&message, [&[], &[]], &mac[1..]));
    }
}
