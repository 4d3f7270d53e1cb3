//! A number that is equal for all packets of one connection.
//!
//! Code that reorders packets of a burst keeps the order of packets with equal numbers. Packets of one connection
//! always have equal numbers; packets of different connections may have equal numbers by chance.

use crate::key::{FlowKey, Layer};

impl FlowKey {
    /// Returns the connection number of a packet that is parsed to its ports. It is computed from addresses, protocol
    /// and ports, or from the MAC addresses if there is no IP header.
    #[inline]
    pub fn connection(&self) -> u32 {
        /// The bits of a MAC address in its word of the key.
        const LINK: u64 = !0xffff;
        let words = self.words();
        if !self.has(Layer::Ip) {
            return number(words[3] & LINK, words[4] & LINK);
        }
        let ipv6 = words[8..12].iter();
        let addresses = ipv6.fold(words[6], |mixed, word| {
            mixed ^ word.wrapping_mul(0xff51_afd7_ed55_8ccd)
        });
        of_ip(addresses, words[5])
    }
}

/// Returns the connection number of a packet with an IPv4 header, from the two words of its key with the addresses and
/// the ports.
#[inline(always)]
pub(crate) const fn of_ip(addresses: u64, ports: u64) -> u32 {
    /// The bits of ports and IP protocol.
    const TRANSPORT: u64 = 0xffff_ffff_ff00_0000;
    number(addresses, ports & TRANSPORT)
}

#[inline(always)]
const fn number(one: u64, other: u64) -> u32 {
    let mixed = (one ^ one >> 29).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ other;
    (mixed.wrapping_mul(0xff51_afd7_ed55_8ccd) >> 32) as u32
}
