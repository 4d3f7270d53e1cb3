//! Descriptors, and the buffers that a chain of them names.

use arrayvec::ArrayVec;

use super::CHAIN_MAX;
use crate::Lie;
use crate::memory::{Place, View};

/// `VIRTQ_DESC_F_NEXT`: the chain goes on.
pub(super) const NEXT: u16 = 1;
/// `VIRTQ_DESC_F_WRITE`: the buffer is to be written to by us.
pub(super) const WRITE: u16 = 2;
/// `VIRTQ_DESC_F_INDIRECT`: the buffer is a table of descriptors.
pub(super) const INDIRECT: u16 = 4;

/// Bytes of a descriptor.
const DESCRIPTOR: u32 = 16;

/// What a descriptor says.
#[derive(Clone, Copy, Debug)]
pub(super) struct Descriptor {
    pub(super) guest: u64,
    pub(super) size: u32,
    pub(super) flags: u16,
    /// Which is next, in a split ring; the chain's number, in a packed one.
    pub(super) next: u16,
}

impl Descriptor {
    /// Whether it is all of its chain, and for what this queue is for.
    #[inline(always)]
    pub(super) fn is_alone(&self, use_of: Use) -> bool {
        self.flags & (NEXT | WRITE | INDIRECT) == use_of as u16
    }
}

/// What a queue is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u16)]
pub(super) enum Use {
    Read = 0,
    Write = WRITE,
}

/// What a driver made available at once.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chain {
    pub(super) first: Descriptor,
    /// Its number.
    pub(super) id: u16,
    /// Where in the ring it was taken.
    pub(super) mark: u16,
    /// Descriptors that it takes in a packed ring.
    pub(super) slots: u16,
}

/// The buffers of a chain, or of several.
pub(super) struct Pieces<'a> {
    use_of: Use,
    places: ArrayVec<Place<'a>, CHAIN_MAX>,
    /// The first that is not used up.
    at: usize,
    /// Bytes that are left.
    pub(super) size: usize,
}

impl<'a> Pieces<'a> {
    pub(super) fn new(use_of: Use) -> Pieces<'a> {
        Pieces {
            use_of,
            places: ArrayVec::new(),
            at: 0,
            size: 0,
        }
    }

    /// One buffer, to be read.
    pub(super) fn of(place: Place<'a>) -> Pieces<'a> {
        let mut pieces = Pieces::new(Use::Read);
        pieces.size = place.size();
        pieces.places.push(place);
        pieces
    }

    /// Adds the buffer of a descriptor.
    pub(super) fn add(&mut self, view: &'a View, descriptor: Descriptor) -> Result<(), Lie> {
        let is_written = descriptor.flags & WRITE != 0;
        if is_written != (self.use_of == Use::Write) {
            let word = |is_written| {
                if is_written {
                    "to be written to"
                } else {
                    "to be read"
                }
            };
            return Err(Lie::Direction {
                found: word(is_written),
                expected: word(!is_written),
            });
        }
        let (mut guest, mut left) = (descriptor.guest, descriptor.size);
        while left > 0 {
            let place = view.place(guest, left)?;
            self.size += place.size();
            left -= place.size() as u32;
            guest += place.size() as u64;
            self.places.try_push(place).map_err(|_| Lie::Chain)?;
        }
        Ok(())
    }

    /// Adds the buffers of a table. `parse` reads a descriptor of it; `follow` says which comes behind that at an index, none
    /// behind the last.
    pub(super) fn add_table(
        &mut self,
        view: &'a View,
        table: Descriptor,
        parse: impl Fn([u64; 2]) -> Descriptor,
        follow: impl Fn(u16, Descriptor) -> Option<u16>,
    ) -> Result<(), Lie> {
        let Descriptor { guest, size, .. } = table;
        let len = u16::try_from(size / DESCRIPTOR).unwrap_or(u16::MAX);
        if table.flags & NEXT != 0 || len == 0 || !size.is_multiple_of(DESCRIPTOR) {
            return Err(Lie::Table { size });
        }
        let place = view.place(guest, size)?;
        if place.size() < size as usize {
            return Err(Lie::Outside { guest, size });
        }
        let mut index = 0;
        for _ in 0..CHAIN_MAX {
            let words = (index < len).then(|| place.behind(DESCRIPTOR as usize * usize::from(index)).words());
            let Some(words) = words.flatten() else {
                return Err(Lie::Descriptor { index, len });
            };
            let descriptor = parse(words);
            if descriptor.flags & INDIRECT != 0 {
                return Err(Lie::Table { size });
            }
            self.add(view, descriptor)?;
            match follow(index, descriptor) {
                Some(next) => index = next,
                None => return Ok(()),
            }
        }
        Err(Lie::Chain)
    }

    /// Copies as many bytes out as are wanted and are left.
    pub(super) fn read(&mut self, into: &mut [u8]) {
        let mut rest = into;
        while let Some(place) = self.next(rest.len()) {
            let (part, behind) = rest.split_at_mut(place.size().min(rest.len()));
            place.read(part);
            rest = behind;
        }
    }

    /// Copies as many bytes in as there is room for.
    pub(super) fn write(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        while let Some(place) = self.next(rest.len()) {
            let (part, behind) = rest.split_at(place.size().min(rest.len()));
            place.write(part);
            rest = behind;
        }
    }

    /// What is left of the buffer that is to be used next, of which so many bytes will be; none if that is none.
    fn next(&mut self, wanted: usize) -> Option<Place<'a>> {
        let place = *self.places.get(self.at).filter(|_| wanted > 0)?;
        let left = place.behind(wanted);
        self.size -= place.size() - left.size();
        if left.size() == 0 {
            self.at += 1;
        } else {
            self.places[self.at] = left;
        }
        Some(place)
    }
}
