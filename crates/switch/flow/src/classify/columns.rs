//! The keys of a burst, transposed: the first words of all keys, then the second words, for the words that some rule
//! compares. One instruction hashes or compares a word of several packets.

use super::BURST;
use crate::key::{FlowKey, FlowMask};

/// Number of columns: one for each word of a key.
pub(super) const COLUMNS: usize = FlowKey::WORDS;

/// The words of a key, or of a mask.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(super) struct Columns(pub(super) [u64; COLUMNS]);

impl Columns {
    /// Returns the words of a key.
    pub(super) fn of(key: &FlowKey) -> Columns {
        Columns(*key.words())
    }

    /// Returns the words of a mask.
    pub(super) fn of_mask(mask: &FlowMask) -> Columns {
        Columns::of(&mask.0)
    }

    /// Returns true if `other` contains every bit of `self`.
    pub(super) fn is_subset_of(&self, other: &Columns) -> bool {
        self.0
            .iter()
            .zip(&other.0)
            .all(|(mine, theirs)| mine & !theirs == 0)
    }

    /// Returns the intersection of both.
    pub(super) fn and(&self, other: &Columns) -> Columns {
        let mut both = *self;
        both.0
            .iter_mut()
            .zip(&other.0)
            .for_each(|(mine, theirs)| *mine &= theirs);
        both
    }

    /// Returns the union of both.
    pub(super) fn or(&self, other: &Columns) -> Columns {
        let mut either = *self;
        either
            .0
            .iter_mut()
            .zip(&other.0)
            .for_each(|(mine, theirs)| *mine |= theirs);
        either
    }

    /// Returns the indices of nonzero columns, in order.
    pub(super) fn occupied(&self) -> impl Iterator<Item = usize> {
        (0..COLUMNS).filter(|column| self.0[*column] != 0)
    }
}

/// The keys of a burst, column by column. Each column is as long as a burst, so that an index modulo [`BURST`] is
/// always in bounds.
pub(super) type Burst = [[u64; BURST]];

/// Memory for `N` columns, each aligned to a cache line: a vector load across two cache lines costs twice as much.
#[repr(align(64))]
pub(super) struct AlignedColumns<const N: usize>(pub(super) [[u64; BURST]; N]);

impl<const N: usize> AlignedColumns<N> {
    #[inline(always)]
    pub(super) fn new() -> AlignedColumns<N> {
        AlignedColumns([[0; BURST]; N])
    }
}

/// The words that some rule compares, which must be extracted from each key.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Projection {
    /// The columns in use; the index in this list is the position in a [`Burst`].
    columns: Vec<u8>,
}

impl Projection {
    /// Adds the words of `mask`. The positions of columns already in use do not change.
    pub(super) fn extend(&mut self, mask: &FlowMask) {
        for column in Columns::of_mask(mask).occupied() {
            if self.position(column).is_none() {
                self.columns.push(column as u8);
            }
        }
    }

    /// Returns true if some word has fields before the IP header.
    pub(super) fn matches_layer2(&self) -> bool {
        self.columns().any(|column| matches!(column, 3 | 4 | 7))
    }

    /// Returns the position of a column in a [`Burst`], if it is in use.
    pub(super) fn position(&self, column: usize) -> Option<usize> {
        self.columns.iter().position(|held| usize::from(*held) == column)
    }

    /// Returns the columns in use, in the order of their positions.
    pub(super) fn columns(&self) -> impl Iterator<Item = usize> {
        self.columns.iter().map(|column| usize::from(*column))
    }

    /// Returns the number of columns in use.
    pub(super) fn len(&self) -> usize {
        self.columns.len()
    }

    /// Removes every column.
    pub(super) fn clear(&mut self) {
        self.columns = Vec::new();
    }

    /// Writes the columns in use of the selected keys to `burst`. Words are copied whole, including bits that no rule
    /// compares.
    #[inline(always)]
    pub(super) fn extract(&self, keys: &[FlowKey], select: &[u8], burst: &mut Burst) {
        for (from, column) in self.columns.iter().zip(burst) {
            let from = usize::from(*from) % COLUMNS;
            for (place, packet) in column.iter_mut().zip(select) {
                *place = keys[usize::from(*packet)].words()[from];
            }
        }
    }

    /// Returns the size in bytes of the heap memory in use.
    pub(super) fn heap_size(&self) -> usize {
        self.columns.capacity()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::field::Field;

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
