//! The ranges of a file that one response carries.

use super::part::RangePart;
use crate::app::heap::heap;

/// Largest number of ranges of a response that are joined.
const PARTS: usize = 256;

/// The ranges of a file that the response of a transaction carries, and what was inspected beside them.
#[derive(Debug, Default)]
pub(crate) struct RangeParts {
    /// The ranges in the order of the response: bytes are added to the last one.
    pub(super) list: Vec<RangePart>,
    /// Buffers that do not begin with the file: their indices, and the offset of their first byte in it.
    pub(super) placed: Vec<(usize, u64)>,
}

heap!(RangeParts { list, placed });

impl RangeParts {
    /// Returns the ranges of a response whose first one is known, or none.
    pub(in crate::app) fn new(first: Option<RangePart>) -> RangeParts {
        RangeParts {
            list: first.into_iter().collect(),
            placed: Vec::new(),
        }
    }

    /// Begins another range. Returns false if there are too many.
    pub(in crate::app) fn push(&mut self, part: RangePart) -> bool {
        let has_room = self.list.len() < PARTS;
        if has_room {
            self.list.push(part);
        }
        has_room
    }

    /// Adds bytes of the range in progress. Those behind its end belong to no place of the file.
    pub(in crate::app) fn add(&mut self, bytes: &[u8]) {
        if let Some(part) = self.list.last_mut() {
            part.add(bytes);
        }
    }

    /// Notes that the range in progress has no further byte, or that bytes are lost.
    pub(in crate::app) fn end(&mut self) {
        if let Some(part) = self.list.last_mut() {
            part.end();
        }
    }

    /// Returns true if bytes wait to be joined, or if the end of a range was not looked at.
    pub(super) fn has_news(&self) -> bool {
        self.list.iter().any(RangePart::has_news)
    }

    /// Returns the offset in the file of the first byte of a buffer, by its index; `None` for one that is not beside a range.
    pub(in crate::app) fn placed_at(&self, is_it: impl Fn(usize) -> bool) -> Option<u64> {
        let placed = self.placed.iter().find(|(index, _)| is_it(*index));
        placed.map(|(_, offset)| *offset)
    }

    /// Removes and returns the bytes of each range that wait, with the offset of the first.
    #[cfg(test)]
    pub(in crate::app) fn taken(mut self) -> Vec<(u64, Vec<u8>)> {
        self.list.iter_mut().map(RangePart::take_fresh).collect()
    }
}
