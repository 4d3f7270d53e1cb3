//! The key of a packet, 512 bits: the fields of the OpenFlow view.
//!
//! ```text
//! word  63            48 47            32 31            16 15             0
//!   0  eth_type         | eth_dst
//!   1  pcp| vlan_vid    | eth_src
//!   2  source address, bits 127 to 64 (IPv6)
//!   3  source address, bits 63 to 0 (IPv4: the low 32 bits)
//!   4  destination address, bits 127 to 64 (IPv6)
//!   5  destination address, bits 63 to 0 (IPv4: the low 32 bits)
//!   6  dscp_ecn| proto  | layers | port  | l4 destination | l4 source
//!   7  -| tcp_flags     | pbb_isid              | bos, tc, mpls_label
//! ```
//! Fields that a packet does not have are 0. The header of each field is that of OpenFlow 1.3.5, section 7.2.3.8: the first
//! VLAN tag, the EtherType after all tags (0x05ff without an EtherType), the outermost label and the outermost PBB tag;
//! nothing inside MPLS or PBB.

use crate::bits::{BitField, field};

/// Number of 64-bit words of a key.
pub const WORDS: usize = 8;
/// Size of a key in bytes.
pub const SIZE: usize = 8 * WORDS;
/// Number of 64-bit words of the key of the ternary table.
pub const TERNARY_WORDS: usize = 4;

/// The fields of a key. Words are in little-endian order, so bit 64 × w + b is bit b of word w.
pub const FIELDS: [BitField; 18] = [
    field("eth_dst", 0, 48, "Destination MAC address."),
    field(
        "eth_type",
        48,
        16,
        "EtherType after all tags and SNAP; 0x05ff for another 802.3 frame.",
    ),
    field("eth_src", 64, 48, "Source MAC address."),
    field(
        "vlan_vid",
        112,
        13,
        "VLAN of the first tag, with bit 12 set; 0 without a tag.",
    ),
    field("vlan_pcp", 125, 3, "Priority of the first tag."),
    field("src_high", 128, 64, "Upper half of the IPv6 source address."),
    field(
        "src_low",
        192,
        64,
        "Lower half of the IPv6 source address, or the IPv4 source address.",
    ),
    field("dst_high", 256, 64, "Upper half of the IPv6 destination address."),
    field(
        "dst_low",
        320,
        64,
        "Lower half of the IPv6 destination address, or the IPv4 destination address.",
    ),
    field(
        "l4_src",
        384,
        16,
        "Source port of TCP, UDP or SCTP, or the type of ICMP.",
    ),
    field(
        "l4_dst",
        400,
        16,
        "Destination port of TCP, UDP or SCTP, or the code of ICMP.",
    ),
    field("in_port", 416, 8, "Number of the device's port, from 0."),
    field(
        "layers",
        424,
        8,
        "Headers that are there in full, and the fragment: LAYER_*, FRAGMENT_*.",
    ),
    field(
        "ip_proto",
        432,
        8,
        "IPv4 protocol, or the IPv6 next header after the extension headers.",
    ),
    field(
        "dscp_ecn",
        440,
        8,
        "Second byte of IPv4, or the traffic class of IPv6.",
    ),
    field(
        "mpls",
        448,
        24,
        "Outermost label stack entry: label in bits 0 to 19, TC in 20 to 22, bottom of stack in 23.",
    ),
    field("pbb_isid", 472, 24, "Service instance of the outermost PBB tag."),
    field("tcp_flags", 496, 12, "The flags of TCP, with its reserved bits."),
];

/// Bits of the field `layers`.
pub mod layer {
    /// A valid IPv4 or IPv6 header.
    pub const IP: u8 = 1 << 0;
    /// A valid header of TCP, UDP, SCTP or ICMP.
    pub const L4: u8 = 1 << 1;
    /// A valid ARP packet for IPv4 over Ethernet.
    pub const ARP: u8 = 1 << 2;
    /// At least one label stack entry.
    pub const MPLS: u8 = 1 << 3;
    /// A PBB tag.
    pub const PBB: u8 = 1 << 4;
    /// The first fragment of an IP packet.
    pub const FRAGMENT_FIRST: u8 = 0b01 << 6;
    /// A later fragment of an IP packet.
    pub const FRAGMENT_LATER: u8 = 0b11 << 6;

    /// All bits with their names.
    pub const ALL: [(&str, u8, &str); 7] = [
        ("LAYER_IP", IP, "A valid IPv4 or IPv6 header."),
        ("LAYER_L4", L4, "A valid header of TCP, UDP, SCTP or ICMP."),
        ("LAYER_ARP", ARP, "A valid ARP packet for IPv4 over Ethernet."),
        ("LAYER_MPLS", MPLS, "At least one label stack entry."),
        ("LAYER_PBB", PBB, "A PBB tag."),
        (
            "FRAGMENT_FIRST",
            FRAGMENT_FIRST,
            "The first fragment of an IP packet.",
        ),
        (
            "FRAGMENT_LATER",
            FRAGMENT_LATER,
            "A later fragment of an IP packet (both bits).",
        ),
    ];
}

/// The key of a packet, or the mask of keys.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Key(pub [u64; WORDS]);

impl Key {
    /// The mask of all bits that fields use.
    pub const ALL: Key = Key([
        u64::MAX,
        u64::MAX,
        u64::MAX,
        u64::MAX,
        u64::MAX,
        u64::MAX,
        u64::MAX,
        (1 << 60) - 1,
    ]);

    /// Returns the key that is in `bytes`.
    #[must_use]
    pub fn from_bytes(bytes: &[u8; SIZE]) -> Key {
        let mut words = [0; WORDS];
        for (word, bytes) in words.iter_mut().zip(bytes.as_chunks::<8>().0) {
            *word = u64::from_le_bytes(*bytes);
        }
        Key(words)
    }

    /// Returns the bytes of the key.
    #[must_use]
    pub fn to_bytes(self) -> [u8; SIZE] {
        let mut bytes = [0; SIZE];
        for (to, word) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(self.0) {
            *to = word.to_le_bytes();
        }
        bytes
    }

    /// Returns the key without the bits outside of `mask`.
    #[must_use]
    pub fn masked(self, mask: &Key) -> Key {
        Key(core::array::from_fn(|at| self.0[at] & mask.0[at]))
    }

    /// Returns the key of the ternary table: words 0 and 6 of the key, then the upper 64 bits of an IPv6 source and
    /// destination address, or the whole word of an IPv4 address.
    #[must_use]
    pub fn ternary(self) -> [u64; TERNARY_WORDS] {
        let is_ipv6 = self.0[0] >> 48 == 0x86dd;
        let [src, dst] = if is_ipv6 {
            [self.0[2], self.0[4]]
        } else {
            [self.0[3], self.0[5]]
        };
        [self.0[0], self.0[6], src, dst]
    }

    /// Returns the value of a field of [`FIELDS`] by its name; 0 for another name.
    #[must_use]
    pub fn field(&self, name: &str) -> u64 {
        let field = FIELDS.iter().find(|field| field.name == name);
        field.map_or(0, |field| field.read(&self.to_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fields_of_a_key_follow_each_other_without_overlap() {
        let mut at = 0;
        for field in FIELDS {
            assert_eq!(field.lsb, at, "{}", field.name);
            at += field.width;
        }
        assert_eq!(at, 508);
        assert_eq!(
            Key::ALL,
            Key(core::array::from_fn(|word| if word == 7 {
                u64::MAX >> 4
            } else {
                u64::MAX
            }))
        );
    }

    #[test]
    fn bytes_and_words_of_a_key_are_one() {
        let key = Key([1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(Key::from_bytes(&key.to_bytes()), key);
        assert_eq!(key.field("src_low"), 4);
    }
}
