//! The hash that selects a bucket.

use millrace_flow::{Field, FieldSet, FlowKey};
use millrace_types::split_mix;
use millrace_wire::IpProto;

/// The keyed hash of a packet's flow: the same for all packets of a flow, and different for most others.
///
/// Senders must not be able to prepare many packets that take the same bucket. So the seed of the bridge draws the
/// function from the family that the classifiers use (pair-multiply-shift; Thorup, "High speed hashing for integers and
/// strings", 2015). It takes one multiplication for each word of the key, and the multiplications do not depend on each
/// other.
///
/// * Both directions of a flow have one hash: of each pair of addresses and of ports, the greater value is hashed in the
///   place of the destination or the source, whichever is first in the key.
/// * All fragments of a datagram have one hash: none is hashed with its ports, because only the first one has them.
/// * ICMP is hashed without type and code, which differ between a request and its reply.
#[derive(Clone, Debug)]
pub(crate) struct SelectHash {
    mask: [u64; FlowKey::WORDS],
    keys: [(u64, u64); FlowKey::WORDS],
    start: u64,
}

impl SelectHash {
    /// Addresses, VLAN, protocol and ports, as far as a packet has them. Packets that are parsed as deep as
    /// [`millrace_wire::Depth::L4`] have all of them.
    pub(crate) const FIELDS: [Field; 15] = [
        Field::EthDst,
        Field::EthSrc,
        Field::EthType,
        Field::VlanVid,
        Field::IpProto,
        Field::Ipv4Src,
        Field::Ipv4Dst,
        Field::Ipv6Src,
        Field::Ipv6Dst,
        // UDP and SCTP ports, and ICMP type and code, are at the same position of the key.
        Field::TcpSrc,
        Field::TcpDst,
        Field::ArpSpa,
        Field::ArpTpa,
        Field::MplsLabel,
        Field::PbbIsid,
    ];

    /// Returns a hash function of these fields.
    pub(crate) fn new(seed: u64, fields: FieldSet) -> SelectHash {
        let mut key = FlowKey::default();
        for field in fields.iter() {
            key.set_field(field, field.max_value());
        }
        // The classifiers draw other numbers from the same seed.
        let mut state = seed ^ 0x6772_6f75_7073_656c;
        SelectHash {
            mask: *key.words(),
            keys: core::array::from_fn(|_| (split_mix::next(&mut state), split_mix::next(&mut state))),
            start: split_mix::next(&mut state),
        }
    }

    /// Returns the hash of a packet with this key.
    #[inline]
    pub(crate) fn of(&self, key: &FlowKey) -> u64 {
        let mut words = *key.words();
        for (word, mask) in words.iter_mut().zip(&self.mask) {
            *word &= mask;
        }
        let has_ports = !is_fragment(key) && !is_icmp(key);
        without_direction(&mut words, has_ports);
        let mut sum = self.start;
        for (word, (a, b)) in words.iter().zip(&self.keys) {
            sum = sum.wrapping_add(
                a.wrapping_add(word >> 32)
                    .wrapping_mul(b.wrapping_add(word & 0xffff_ffff)),
            );
        }
        // Only the high half of the sum is well mixed, and the low bits select.
        split_mix::mix(sum >> 32)
    }
}

/// Returns true for every IP fragment, the first one included.
#[inline]
fn is_fragment(key: &FlowKey) -> bool {
    key.field(Field::IpFrag) & 1 != 0
}

#[inline]
fn is_icmp(key: &FlowKey) -> bool {
    let proto = key.field(Field::IpProto);
    proto == u128::from(IpProto::ICMPV4.0) || proto == u128::from(IpProto::ICMPV6.0)
}

/// Orders each pair of fields in masked words of a key (the diagram of [`FlowKey`]'s module) by value, and clears the ports
/// unless `has_ports`.
#[inline]
fn without_direction(words: &mut [u64; FlowKey::WORDS], has_ports: bool) {
    let ordered = |one: u64, other: u64| (one.max(other), one.min(other));
    // The addresses are above the low 16 bits, which have the VLAN beside one of them.
    let (high, low) = ordered(words[3] >> 16, words[4] >> 16);
    words[3] = high << 16 | words[3] & 0xffff;
    words[4] = low << 16 | words[4] & 0xffff;
    let (high, low) = ordered(words[5] >> 48, words[5] >> 32 & 0xffff);
    let ports = if has_ports { high << 48 | low << 32 } else { 0 };
    words[5] = ports | words[5] & 0xffff_ffff;
    let (high, low) = ordered(words[6] >> 32, words[6] & 0xffff_ffff);
    words[6] = high << 32 | low;
    if (words[8], words[9]) < (words[10], words[11]) {
        words.swap(8, 10);
        words.swap(9, 11);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use millrace_flow::depth_for;
    use millrace_wire::Depth;

    #[test]
    fn every_field_is_found_at_the_depth_that_is_promised_and_makes_a_difference() {
        let fields: FieldSet = SelectHash::FIELDS.into_iter().collect();
        assert_eq!(depth_for(fields), Some(Depth::L4));
        let hash = SelectHash::new(5, fields);
        let zero = hash.of(&FlowKey::default());
        for field in Field::ALL {
            let mut key = FlowKey::default();
            key.set_field(field, 1);
            let is_at_place = SelectHash::FIELDS.iter().any(|one| {
                let mut other = FlowKey::default();
                other.set_field(*one, 1);
                other == key
            });
            assert_eq!(hash.of(&key) != zero, is_at_place, "{field}");
        }
    }

    fn key(fields: &[(Field, u128)]) -> FlowKey {
        let mut key = FlowKey::default();
        for (field, value) in fields {
            key.put(*field, *value);
        }
        key
    }

    #[test]
    fn both_directions_of_a_flow_have_one_hash_and_other_flows_have_others() {
        let hash = SelectHash::new(5, SelectHash::FIELDS.into_iter().collect());
        let pairs = [
            (Field::EthSrc, Field::EthDst),
            (Field::Ipv4Src, Field::Ipv4Dst),
            (Field::Ipv6Src, Field::Ipv6Dst),
            (Field::TcpSrc, Field::TcpDst),
        ];
        let flow = |values: [(u128, u128); 4], is_reply: bool| {
            let mut fields = vec![
                (Field::EthType, 0x0800),
                (Field::IpProto, 6),
                (Field::VlanVid, 0x1005),
            ];
            for ((source, destination), (from, to)) in pairs.into_iter().zip(values) {
                let (from, to) = if is_reply { (to, from) } else { (from, to) };
                fields.extend([(source, from), (destination, to)]);
            }
            hash.of(&key(&fields))
        };
        let base = [(9, 4), (7, 8), (1 << 64, 3), (443, 40_000)];
        assert_eq!(flow(base, false), flow(base, true));
        for pair in 0..4 {
            let mut other = base;
            other[pair].0 += 100;
            assert_ne!(flow(other, false), flow(base, false), "pair {pair}");
            assert_eq!(flow(other, false), flow(other, true));
        }
    }

    #[test]
    fn fragments_and_icmp_are_hashed_without_ports() {
        let hash = SelectHash::new(5, SelectHash::FIELDS.into_iter().collect());
        let of = |proto, frag, ports: (u128, u128)| {
            hash.of(&key(&[
                (Field::Ipv4Src, 1),
                (Field::Ipv4Dst, 2),
                (Field::IpProto, proto),
                (Field::IpFrag, frag),
                (Field::UdpSrc, ports.0),
                (Field::UdpDst, ports.1),
            ]))
        };
        assert_eq!(of(17, 0b01, (5, 6)), of(17, 0b11, (0, 0)), "first and later");
        assert_eq!(of(1, 0, (8, 0)), of(1, 0, (0, 0)), "echo request and reply");
        assert_ne!(of(17, 0, (5, 6)), of(17, 0, (5, 7)));
    }
}
