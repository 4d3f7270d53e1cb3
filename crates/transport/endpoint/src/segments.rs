//! Datagrams in a list of parts that are cut anywhere: a cursor that yields one datagram after the other, without copies.

use std::ops::Deref;

use millrace_wire::checksum::Sum;

/// The remaining parts.
#[derive(Debug)]
pub(crate) struct Segments<'a, S> {
    parts: &'a [S],
    /// Bytes of the first part that were used.
    offset: usize,
    left: usize,
    size: usize,
    is_first: bool,
}

/// One datagram.
#[derive(Debug)]
pub(crate) struct Segment<'a, S> {
    parts: &'a [S],
    offset: usize,
    size: usize,
}

impl<'a, S: Deref<Target = [u8]>> Segments<'a, S> {
    /// Divides parts into datagrams of `size` bytes; the last may be shorter. Parts without bytes become one
    /// empty datagram.
    pub(crate) fn new(parts: &'a [S], size: usize) -> Segments<'a, S> {
        Segments {
            parts,
            offset: 0,
            left: parts.iter().map(|part| part.len()).sum(),
            size: size.max(1),
            is_first: true,
        }
    }

    /// Returns the size of the largest datagram in bytes.
    pub(crate) fn largest(&self) -> usize {
        self.size.min(self.left)
    }
}

impl<'a, S: Deref<Target = [u8]>> Iterator for Segments<'a, S> {
    type Item = Segment<'a, S>;

    fn next(&mut self) -> Option<Segment<'a, S>> {
        if self.left == 0 && !self.is_first {
            return None;
        }
        self.is_first = false;
        let size = self.largest();
        let segment = Segment {
            parts: self.parts,
            offset: self.offset,
            size,
        };
        self.left -= size;
        let mut skip = self.offset + size;
        while let Some((first, rest)) = self.parts.split_first()
            && skip >= first.len()
        {
            skip -= first.len();
            self.parts = rest;
        }
        self.offset = skip;
        Some(segment)
    }
}

impl<'a, S: Deref<Target = [u8]>> Segment<'a, S> {
    pub(crate) fn size(&self) -> usize {
        self.size
    }

    /// Returns the bytes in order, in slices that are not empty.
    pub(crate) fn slices(&self) -> impl Iterator<Item = &'a [u8]> + use<'a, S> {
        let (mut parts, mut offset, mut left) = (self.parts, self.offset, self.size);
        std::iter::from_fn(move || {
            while left > 0 {
                let (first, rest) = parts.split_first()?;
                let slice = &first[offset..];
                let slice = &slice[..slice.len().min(left)];
                (parts, offset) = (rest, 0);
                left -= slice.len();
                if !slice.is_empty() {
                    return Some(slice);
                }
            }
            None
        })
    }

    /// Returns the folded sum of the bytes for a checksum.
    #[inline]
    pub(crate) fn sum(&self) -> u16 {
        let (mut sum, mut at) = (Sum::default(), 0_usize);
        for slice in self.slices() {
            if at.is_multiple_of(2) {
                sum = sum.add_bytes(slice);
            } else {
                // A slice that begins at an odd offset is added byte-swapped (RFC 1071, section 2).
                sum = sum.add16(Sum::of(slice).folded().swap_bytes());
            }
            // The sum of an odd slice is padded with a zero byte, where the next slice begins: that slice is swapped.
            at += slice.len();
        }
        sum.folded()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn no_bytes_are_one_empty_datagram() {
        assert_eq!(
            Segments::<&[u8]>::new(&[], 5)
                .map(|segment| segment.size())
                .collect::<Vec<_>>(),
            [0]
        );
        assert_eq!(Segments::new(&[&b""[..], b""], 5).count(), 1);
    }

    proptest! {
        #[test]
        fn datagrams_and_their_sums_do_not_depend_on_how_parts_are_cut(
            parts in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..20), 0..12), size in 1usize..30,
        ) {
            let all = parts.concat();
            let expected: Vec<&[u8]> = if all.is_empty() { vec![&[]] } else { all.chunks(size).collect() };
            let segments: Vec<_> = Segments::new(&parts, size).collect();
            prop_assert_eq!(segments.len(), expected.len());
            for (segment, bytes) in segments.iter().zip(expected) {
                let slices: Vec<&[u8]> = segment.slices().collect();
                prop_assert!(slices.iter().all(|slice| !slice.is_empty()));
                prop_assert_eq!(&slices.concat()[..], bytes);
                prop_assert_eq!(segment.size(), bytes.len());
                // Zero has two forms in one's complement.
                let (sum, slow) = (segment.sum(), Sum::of(bytes).folded());
                prop_assert_eq!(sum % 0xffff, slow % 0xffff);
            }
        }
    }
}
