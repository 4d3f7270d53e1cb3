//! What the choice of a bucket depends on.

use millrace_flow::{Field, FieldSet, FlowKey};

/// The keyed hash of a packet's flow: the same for all packets of a flow, and different for most others.
///
/// Whoever sends packets must not be able to prepare many that take the same bucket, so it is drawn by the seed of
/// the bridge from the family that the classifiers use (pair-multiply-shift; Thorup, "High speed hashing for integers
/// and strings", 2015), which takes one multiplication for each word of the key, none of which waits for another.
#[derive(Clone, Debug)]
pub(crate) struct SelectHash {
    mask: [u64; FlowKey::WORDS],
    keys: [(u64, u64); FlowKey::WORDS],
    start: u64,
}

impl SelectHash {
    /// Addresses, VLAN, protocol and ports, or what a packet has of them. All are in packets that are parsed as deep
    /// as [`millrace_wire::Depth::L4`].
    ///
    /// Fragments but the first have no ports: they may take another bucket than the first.
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
        // Of UDP, SCTP and ICMP, too, whose numbers are at the same place.
        Field::TcpSrc,
        Field::TcpDst,
        Field::ArpSpa,
        Field::ArpTpa,
        Field::MplsLabel,
        Field::PbbIsid,
    ];

    /// A hash of these fields.
    pub(crate) fn new(seed: u64, fields: FieldSet) -> SelectHash {
        let mut key = FlowKey::default();
        for field in fields.iter() {
            key.set_field(field, field.max_value());
        }
        // Not the numbers that the classifiers draw from the same seed.
        let mut state = seed ^ 0x6772_6f75_7073_656c;
        SelectHash {
            mask: *key.words(),
            keys: core::array::from_fn(|_| (split_mix(&mut state), split_mix(&mut state))),
            start: split_mix(&mut state),
        }
    }

    /// The hash of a packet with this key.
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
        // Only the high half of the sum is good, and the low bits choose.
        mix(sum >> 32)
    }
}

/// SplitMix64 (Steele, Lea and Flood 2014): the next number of a sequence.
fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mix(*state)
}

#[inline]
fn mix(number: u64) -> u64 {
    let mut z = number;
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
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
