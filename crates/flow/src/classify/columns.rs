//! The words of a key, rearranged so that the fields which rules use together share words.
//!
//! A [`FlowKey`] keeps every field at a place that suits a parser. An exact match on an IPv4 5-tuple looks
//! at four of its words; here the same bits fill two: addresses in column 0; ports, protocol, ethertype
//! and layers in column 1. Half the words means half the hashing, half the comparing and half the memory
//! of an entry.
//!
//! The arrangement is fixed and loses nothing: every bit of the key has exactly one place in the columns.

use super::BURST;
use crate::key::{FlowKey, FlowMask};

/// Number of columns.
pub(super) const COLUMNS: usize = FlowKey::WORDS;

/// A run of bits that moves as one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Step {
    /// The word that it comes from.
    word: u8,
    /// The column that it goes to.
    column: u8,
    /// How far to rotate to the left.
    rotate: u8,
    /// Its bits, in the word.
    mask: u64,
}

impl Step {
    /// These bits of a key, in their place in the column.
    #[inline(always)]
    fn take(self, words: &[u64; FlowKey::WORDS]) -> u64 {
        (words[usize::from(self.word) % FlowKey::WORDS] & self.mask).rotate_left(self.rotate.into())
    }
}

/// `bits` bits of word `word`, from bit `from` up, go to column `column`, from bit `to` up.
const fn step(word: u8, from: u8, bits: u8, column: u8, to: u8) -> Step {
    Step {
        word,
        column,
        rotate: (64 + to - from) % 64,
        mask: (u64::MAX >> (64 - bits)) << from,
    }
}

/// The arrangement.
const STEPS: [Step; 31] = [
    // IPv4 or ARP addresses.
    step(6, 0, 64, 0, 0),
    // L4 ports, IP protocol; eth_type; layers.
    step(5, 0, 40, 1, 0),
    step(3, 0, 16, 1, 40),
    step(13, 0, 8, 1, 56),
    // eth_dst, vlan_vid: a MAC table is one word.
    step(3, 16, 48, 2, 16),
    step(4, 0, 16, 2, 0),
    // eth_src, arp_op.
    step(4, 16, 48, 3, 16),
    step(11, 0, 16, 3, 0),
    // in_port; vlan_pcp, ip_dscp, ip_ecn.
    step(0, 32, 32, 4, 32),
    step(5, 40, 24, 4, 0),
    step(13, 8, 8, 4, 24),
    // in_phy_port; pbb_isid.
    step(0, 0, 32, 5, 0),
    step(13, 32, 32, 5, 32),
    // metadata; tunnel_id.
    step(1, 0, 64, 6, 0),
    step(2, 0, 64, 7, 0),
    // IPv6 addresses; ND target.
    step(7, 0, 64, 8, 0),
    step(8, 0, 64, 9, 0),
    step(9, 0, 64, 10, 0),
    step(10, 0, 64, 11, 0),
    step(14, 0, 64, 12, 0),
    step(15, 0, 64, 13, 0),
    // Hardware addresses of ARP and ND; ipv6_exthdr; mpls_tc, mpls_bos.
    step(16, 0, 48, 14, 0),
    step(11, 16, 16, 14, 48),
    step(17, 0, 48, 15, 0),
    step(12, 16, 16, 15, 48),
    // mpls_label, ipv6_flabel.
    step(12, 32, 32, 16, 0),
    step(11, 32, 32, 16, 32),
    // Bits that no field uses.
    step(12, 0, 16, 17, 0),
    step(13, 16, 16, 17, 16),
    step(16, 48, 16, 17, 32),
    step(17, 48, 16, 17, 48),
];

/// A key, or a mask, in columns.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(super) struct Columns(pub(super) [u64; COLUMNS]);

impl Columns {
    /// Rearranges a key.
    pub(super) fn of(key: &FlowKey) -> Columns {
        let mut columns = [0; COLUMNS];
        for step in &STEPS {
            columns[usize::from(step.column)] |= step.take(key.words());
        }
        Columns(columns)
    }

    /// Rearranges a mask.
    pub(super) fn of_mask(mask: &FlowMask) -> Columns {
        Columns::of(&mask.0)
    }

    /// Whether every bit of `self` is in `other`.
    pub(super) fn is_subset_of(&self, other: &Columns) -> bool {
        self.0
            .iter()
            .zip(&other.0)
            .all(|(mine, theirs)| mine & !theirs == 0)
    }

    /// The bits that both have.
    pub(super) fn and(&self, other: &Columns) -> Columns {
        let mut both = *self;
        both.0
            .iter_mut()
            .zip(&other.0)
            .for_each(|(mine, theirs)| *mine &= theirs);
        both
    }

    /// The columns that have a bit, in order.
    pub(super) fn occupied(&self) -> impl Iterator<Item = usize> {
        (0..COLUMNS).filter(|column| self.0[*column] != 0)
    }
}

/// The keys of a burst, column by column; each column is as long as a burst, so that an index modulo
/// [`BURST`] is always inside.
pub(super) type Burst = [[u64; BURST]];

/// Which runs of bits some rule looks at, and so must be extracted from each key.
#[derive(Clone, Debug, Default)]
pub(super) struct Projection {
    /// The columns in use, each with the runs that go to it; the place in this list is the position in a
    /// [`Burst`].
    columns: Vec<(u8, Vec<Step>)>,
}

impl Projection {
    /// Extracts what `mask` covers, too. The positions of columns already in use stay the same.
    pub(super) fn extend(&mut self, mask: &FlowMask) {
        for step in &STEPS {
            if mask.words()[usize::from(step.word)] & step.mask == 0 {
                continue;
            }
            let position = self.position(step.column.into()).unwrap_or_else(|| {
                self.columns.push((step.column, Vec::new()));
                self.columns.len() - 1
            });
            let steps = &mut self.columns[position].1;
            if !steps.contains(step) {
                steps.push(*step);
            }
        }
    }

    /// The position of a column in a [`Burst`], if it is in use.
    pub(super) fn position(&self, column: usize) -> Option<usize> {
        self.columns
            .iter()
            .position(|(held, _)| usize::from(*held) == column)
    }

    /// The columns in use, in the order of their positions.
    pub(super) fn columns(&self) -> impl Iterator<Item = usize> {
        self.columns.iter().map(|(column, _)| usize::from(*column))
    }

    /// Number of columns in use.
    pub(super) fn len(&self) -> usize {
        self.columns.len()
    }

    /// Forgets everything.
    pub(super) fn clear(&mut self) {
        self.columns = Vec::new();
    }

    /// Writes the selected keys into the columns, of which there must be as many as are in use.
    #[inline(always)]
    pub(super) fn extract(&self, keys: &[FlowKey], select: &[u8], burst: &mut Burst) {
        for ((_, steps), column) in self.columns.iter().zip(burst) {
            let places = column.iter_mut().zip(select);
            let places = places.map(|(place, packet)| (place, keys[usize::from(*packet)].words()));
            match **steps {
                [a] => places.for_each(|(place, words)| *place = a.take(words)),
                [a, b] => places.for_each(|(place, words)| *place = a.take(words) | b.take(words)),
                [a, b, c] => {
                    places.for_each(|(place, words)| *place = a.take(words) | b.take(words) | c.take(words));
                }
                ref steps => places.for_each(|(place, words)| {
                    *place = steps.iter().fold(0, |column, step| column | step.take(words));
                }),
            }
        }
    }

    /// Bytes of heap in use.
    pub(super) fn heap_size(&self) -> usize {
        let steps: usize = self.columns.iter().map(|(_, steps)| steps.capacity()).sum();
        self.columns.capacity() * size_of::<(u8, Vec<Step>)>() + steps * size_of::<Step>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::field::Field;

    #[test]
    fn every_bit_of_a_key_has_one_place_in_the_columns() {
        let mut seen = [0u64; COLUMNS];
        for word in 0..FlowKey::WORDS {
            for bit in 0..64 {
                let mut key = FlowKey::default();
                key.words_mut()[word] = 1 << bit;
                let columns = Columns::of(&key);
                assert_eq!(columns.0.iter().map(|column| column.count_ones()).sum::<u32>(), 1);
                seen.iter_mut().zip(columns.0).for_each(|(seen, column)| {
                    assert_eq!(*seen & column, 0);
                    *seen |= column;
                });
            }
        }
    }

    #[test]
    fn a_five_tuple_fits_two_columns_and_a_mac_with_its_vlan_fits_one() {
        let occupied = |fields: &[Field]| {
            let mut mask = FlowKey::default();
            fields
                .iter()
                .for_each(|field| mask.put(*field, field.max_value()));
            Columns::of(&mask).occupied().count()
        };
        use Field::*;
        assert_eq!(occupied(&[EthType, IpProto, Ipv4Src, Ipv4Dst, TcpSrc, TcpDst]), 2);
        assert_eq!(
            occupied(&[InPort, EthType, IpProto, Ipv4Src, Ipv4Dst, TcpSrc, TcpDst]),
            3
        );
        assert_eq!(occupied(&[VlanVid, EthDst]), 1);
        assert_eq!(occupied(&[EthType, IpProto, Ipv6Src, Ipv6Dst, UdpSrc, UdpDst]), 5);
    }
}
