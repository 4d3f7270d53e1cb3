//! Which packets may be of one connection, told by one number.
//!
//! Whoever changes the order of packets in a burst keeps those in order that have the same number. Packets of one
//! connection have it, whatever else differs between them; others may have it by chance.

use crate::key::{FlowKey, Layer};

impl FlowKey {
    /// The number of the connection of a packet that was read to its ports: of addresses, protocol and ports; without an
    /// IP header, of the MAC addresses.
    #[inline]
    pub fn connection(&self) -> u32 {
        /// A MAC address, in its word.
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

/// The number of the connection of a packet with an IPv4 header, by the two words of its key that have the addresses, and
/// the ports.
#[inline(always)]
pub(crate) const fn of_ip(addresses: u64, ports: u64) -> u32 {
    /// Ports and IP protocol.
    const TRANSPORT: u64 = 0xffff_ffff_ff00_0000;
    number(addresses, ports & TRANSPORT)
}

#[inline(always)]
const fn number(one: u64, other: u64) -> u32 {
    let mixed = (one ^ one >> 29).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ other;
    (mixed.wrapping_mul(0xff51_afd7_ed55_8ccd) >> 32) as u32
}
