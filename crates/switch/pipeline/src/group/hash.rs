//! The hash that selects a bucket.

use millrace_flow::{Field, FieldSet, FlowKey};
use millrace_types::split_mix;

/// The keyed hash of a packet's flow: the same for all packets of a flow, and different for most others.
///
/// Senders must not be able to prepare many packets that take the same bucket. So the seed of the bridge draws the
/// function from the family that the classifiers use (pair-multiply-shift; Thorup, "High speed hashing for integers and
/// strings", 2015). It takes one multiplication for each word of the key, and the multiplications do not depend on each
/// other.
#[derive(Clone, Debug)]
pub(crate) struct SelectHash {
    mask: [u64; FlowKey::WORDS],
    keys: [(u64, u64); FlowKey::WORDS],
    start: u64,
}

impl SelectHash {
    /// Addresses, VLAN, protocol and ports, as far as a packet has them. Packets that are parsed as deep as
    /// [`millrace_wire::Depth::L4`] have all of them.
    ///
    /// Later fragments have no ports, so they may take another bucket than the first fragment.
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
        let mut sum = self.start;
        for ((word, mask), (a, b)) in key.words().iter().zip(&self.mask).zip(&self.keys) {
            let word = word & mask;
            sum = sum.wrapping_add(
                a.wrapping_add(word >> 32)
                    .wrapping_mul(b.wrapping_add(word & 0xffff_ffff)),
            );
        }
        // Only the high half of the sum is well mixed, and the low bits select.
        split_mix::mix(sum >> 32)
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
}
