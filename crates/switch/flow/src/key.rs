//! The flow key: every match field at a fixed position in seventeen 64-bit words.
//!
//! ```text
//! word  63            48 47            32 31            16 15             0
//!   0  in_port                           | in_phy_port
//!   1  metadata
//!   2  tunnel_id
//!   3  eth_dst                                             | vlan_vid
//!   4  eth_src                                             | arp_op
//!   5  l4 src, icmp type| l4 dst, code   | ip_proto| layers| eth_type
//!   6  ipv4_src, arp_spa                 | ipv4_dst, arp_tpa
//!   7  vlan_pcp| ip_dscp| mpls | nw_ttl | ipv6_exthdr     | tcp, fragment
//! 8,9  ipv6_src
//! 10,11 ipv6_dst
//! 12,13 ipv6_nd_target
//!  14  arp_sha, ipv6_nd_sll (low 48 bits)
//!  15  arp_tha, ipv6_nd_tll (low 48 bits)
//!  16  mpls_label (20 bits) | pbb_isid (24 bits) | ipv6_flabel (20 bits)
//!
//! word 7, bit by bit:
//!  56..58 vlan_pcp   48..53 ip_dscp    47 mpls_bos      44..46 mpls_tc   40..41 ip_ecn
//!  32..39 nw_ttl     16..24 exthdr     12..13 ip_frag    0..11 tcp_flags
//! ```
//! Fields that rules often match together share words: an IPv4 5-tuple takes two words, and a MAC address with its
//! VLAN takes one. Fewer words cost less to hash and to compare, and make shorter table entries. The words that are zero
//! in most packets are the last ones.
//!
//! The key has one bit for each header that the packet contains in full (a [`Layer`]): a packet with IP protocol TCP
//! that ends before the ports must not match `tcp_dst=0`. A rule that matches a field therefore also matches the bit
//! of the field's [`Layer`].

use core::fmt;

use millrace_types::Priority;

use crate::field::Field;

/// A header whose presence is a bit of the key (bit `16 + layer` of word 5).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Layer {
    /// A complete IPv4 or IPv6 header.
    Ip = 0,
    /// The first bytes of TCP, UDP, SCTP, ICMP or ICMPv6, in an unfragmented packet or a first fragment.
    L4 = 1,
    /// A complete ARP packet for Ethernet and IPv4.
    Arp = 2,
    /// At least one complete MPLS shim header.
    Mpls = 3,
    /// A complete PBB I-TAG.
    Pbb = 4,
    /// The target address of a neighbour solicitation or advertisement.
    NdTarget = 5,
}

impl Layer {
    /// Returns the bit of the header, in word 5 of the key.
    pub(crate) const fn bit(self) -> u64 {
        1 << (LAYERS_SHIFT + self as u32)
    }
}

const LAYERS_WORD: usize = 5;
const LAYERS_SHIFT: u32 = 16;

/// The match fields of one packet. Absent fields are zero; a [`Layer`] bit distinguishes them from fields with the
/// value zero.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
#[repr(C, align(16))]
pub struct FlowKey {
    words: [u64; FlowKey::WORDS],
}

impl FlowKey {
    /// Number of 64-bit words.
    pub const WORDS: usize = 17;

    /// Returns the words, in the layout of the module's diagram.
    #[inline]
    pub const fn words(&self) -> &[u64; FlowKey::WORDS] {
        &self.words
    }

    /// Returns the words for writing, in the layout of the module's diagram.
    #[inline]
    pub const fn words_mut(&mut self) -> &mut [u64; FlowKey::WORDS] {
        &mut self.words
    }

    /// Returns the value of `field`; zero if the packet does not have it.
    pub const fn field(&self, field: Field) -> u128 {
        let position = field.position();
        let word = position.word as usize;
        if field.bits() == 128 {
            (self.words[word] as u128) << 64 | self.words[word + 1] as u128
        } else {
            (self.words[word] >> position.shift) as u128 & field.max_value()
        }
    }

    /// Sets `field` to `value`; bits beyond the field's width are ignored. The field's [`Layer`] bit does not change.
    pub const fn set_field(&mut self, field: Field, value: u128) {
        let position = field.position();
        let word = position.word as usize;
        if field.bits() == 128 {
            self.words[word] = (value >> 64) as u64;
            self.words[word + 1] = value as u64;
        } else {
            let mask = (field.max_value() as u64) << position.shift;
            self.words[word] = self.words[word] & !mask | ((value as u64) << position.shift) & mask;
        }
    }

    /// Copies the fields that are not in the packet's bytes from `other`: ports, metadata and tunnel.
    #[inline]
    pub const fn copy_pipeline_fields(&mut self, other: &FlowKey) {
        [self.words[0], self.words[1], self.words[2]] = [other.words[0], other.words[1], other.words[2]];
    }

    /// Returns true if the packet has this header.
    #[inline]
    pub const fn has(&self, layer: Layer) -> bool {
        self.words[LAYERS_WORD] & layer.bit() != 0
    }

    /// Sets the bit of this header.
    #[inline]
    pub const fn add_layer(&mut self, layer: Layer) {
        self.words[LAYERS_WORD] |= layer.bit();
    }

    /// Sets `field`, and the bit of its header.
    pub const fn put(&mut self, field: Field, value: u128) {
        self.set_field(field, value);
        if let Some(layer) = field.layer() {
            self.add_layer(layer);
        }
    }

    /// Returns this key with every bit outside of `mask` cleared.
    #[inline]
    #[must_use]
    pub fn masked(&self, mask: &FlowMask) -> FlowKey {
        let mut words = self.words;
        for (word, mask) in words.iter_mut().zip(&mask.0.words) {
            *word &= mask;
        }
        FlowKey { words }
    }

    /// Returns true if this key equals `rule_key` in the bits of `mask`; `rule_key` has no other bits.
    #[inline]
    pub fn matches(&self, rule_key: &FlowKey, mask: &FlowMask) -> bool {
        let mut difference = 0;
        for i in 0..Self::WORDS {
            difference |= (self.words[i] & mask.0.words[i]) ^ rule_key.words[i];
        }
        difference == 0
    }
}

impl fmt::Debug for FlowKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FlowKey[")?;
        for (i, word) in self.words.iter().enumerate().filter(|(_, word)| **word != 0) {
            write!(f, " {i}:{word:016x}")?;
        }
        write!(f, " ]")
    }
}

/// The bits of a [`FlowKey`] that a rule compares.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct FlowMask(pub FlowKey);

impl FlowMask {
    /// Returns the words, in the layout of a key.
    #[inline]
    pub const fn words(&self) -> &[u64; FlowKey::WORDS] {
        &self.0.words
    }

    /// Adds the bits of `other`.
    pub fn merge(&mut self, other: &FlowMask) {
        for (word, other) in self.0.words.iter_mut().zip(&other.0.words) {
            *word |= other;
        }
    }

    /// Returns true if `other` contains every bit of `self`.
    pub fn is_subset_of(&self, other: &FlowMask) -> bool {
        self.0
            .words
            .iter()
            .zip(&other.0.words)
            .all(|(mine, theirs)| mine & !theirs == 0)
    }
}

/// A match compiled for lookup. OpenFlow treats two matches as identical if their rules are equal, whatever the order
/// of their fields.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Rule {
    /// The values; bits outside of `mask` are zero.
    pub key: FlowKey,
    /// The bits in which the key of a packet must equal `key`.
    pub mask: FlowMask,
    /// The priority; a higher one wins.
    pub priority: Priority,
}

impl Rule {
    /// Returns true if a packet with this key matches.
    #[inline]
    pub fn matches(&self, key: &FlowKey) -> bool {
        key.matches(&self.key, &self.mask)
    }

    /// Returns true if some packet could match both rules (overlap as in OpenFlow 1.3.5, section 6.4; the priorities
    /// are ignored).
    pub fn overlaps(&self, other: &Rule) -> bool {
        (0..FlowKey::WORDS).all(|i| {
            let common = self.mask.0.words[i] & other.mask.0.words[i];
            (self.key.words[i] ^ other.key.words[i]) & common == 0
        })
    }

    /// Returns true if every packet that matches `self` also matches `wider`: a non-strict delete with match `wider`
    /// deletes the entry `self` in this case (OpenFlow 1.3.5, section 6.4).
    pub fn is_within(&self, wider: &Rule) -> bool {
        wider.mask.is_subset_of(&self.mask) && self.key.matches(&wider.key, &wider.mask)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_reads_back_what_was_set_and_disturbs_no_other() {
        for field in Field::ALL {
            let mut key = FlowKey::default();
            let value = 0x5a5a_5a5a_5a5a_5a5a_5a5a_5a5a_5a5a_5a5a & field.max_value();
            key.set_field(field, u128::MAX);
            key.set_field(field, value);
            assert_eq!(key.field(field), value, "{field}");
            key.set_field(field, 0);
            assert_eq!(key, FlowKey::default(), "{field}");
        }
    }

    #[test]
    fn rules_with_disjoint_masks_overlap_and_neither_is_within_the_other() {
        let rule = |field: Field, value| {
            let (mut key, mut mask) = (FlowKey::default(), FlowMask::default());
            key.put(field, value);
            mask.0.put(field, field.max_value());
            Rule {
                key,
                mask,
                priority: Priority(1),
            }
        };
        let (port_1, port_2, vlan) = (
            rule(Field::InPort, 1),
            rule(Field::InPort, 2),
            rule(Field::VlanVid, 0x1001),
        );
        assert!(port_1.overlaps(&vlan) && !port_1.overlaps(&port_2));
        assert!(!port_1.is_within(&vlan) && port_1.is_within(&port_1));
        let all = Rule {
            key: FlowKey::default(),
            mask: FlowMask::default(),
            priority: Priority(0),
        };
        assert!(port_1.is_within(&all) && !all.is_within(&port_1));
    }
}
