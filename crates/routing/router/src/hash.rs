//! The hash by which a flow takes one of several next hops.
//!
//! The fields are those of select groups: addresses, protocol and ports. Fragments are hashed without ports, because only
//! the first one has them, and ICMP without type and code, which differ between a request and its reply. The hash is
//! keyed, so that nobody can choose flows that take one next hop. It is not symmetric: the two directions of a flow
//! take different routes anyway.

use millrace_types::split_mix;

/// A keyed hash of flows.
#[derive(Clone, Debug)]
pub(crate) struct NextHopHash {
    keys: [u64; 3],
}

impl NextHopHash {
    pub(crate) fn new(seed: u64) -> NextHopHash {
        let mut state = seed ^ 0x6e65_7874_686f_7073;
        NextHopHash {
            keys: core::array::from_fn(|_| split_mix::next(&mut state) | 1),
        }
    }

    /// Returns the hash of a flow of IPv4. `ports` are the two ports, or zero without ports.
    #[inline]
    pub(crate) fn of4(&self, src: u32, dst: u32, protocol: u8, ports: u32) -> u64 {
        let addresses = u64::from(src) << 32 | u64::from(dst);
        self.finish(addresses.wrapping_mul(self.keys[0]), protocol, ports)
    }

    /// Returns the hash of a flow of IPv6. `ports` are the two ports, or zero without ports.
    #[inline]
    pub(crate) fn of6(&self, src: u128, dst: u128, protocol: u8, ports: u32) -> u64 {
        let fold = |address: u128, key: u64| {
            let (high, low) = ((address >> 64) as u64, address as u64);
            (high ^ key).wrapping_mul(low.rotate_left(32) ^ self.keys[2] | 1) ^ low
        };
        let addresses = split_mix::mix(fold(src, self.keys[0])) ^ fold(dst, self.keys[1]);
        self.finish(addresses.wrapping_mul(self.keys[0]), protocol, ports)
    }

    #[inline]
    fn finish(&self, addresses: u64, protocol: u8, ports: u32) -> u64 {
        let transport = u64::from(ports) << 8 | u64::from(protocol);
        split_mix::mix(addresses ^ transport.wrapping_mul(self.keys[1]) ^ addresses >> 32)
    }
}
