//! A file whose ranges are joined.

use core::ops::Range;

use millrace_types::Time;

use super::beside::{BESIDE, keep_last};
use crate::app::file::File;
use crate::app::heap::Heap;
use crate::app::open_files::HELD_SIZE;
use crate::pieces::{OverlapPolicy, Pieces};

/// Memory of a file in addition to its bytes, with its entries in both tables, in bytes: an estimate.
const OVERHEAD: usize = 512;

/// The ranges of a file so far.
#[derive(Debug)]
pub(super) struct RangedFile {
    /// The bytes without a hole from the first on.
    file: File,
    /// The size in bytes, if a range told it.
    total: Option<u64>,
    /// The first bytes, up to those of a body that are inspected.
    head: Vec<u8>,
    limit: usize,
    /// The last bytes without a hole, at most [`BESIDE`].
    tail: Vec<u8>,
    /// Bytes behind holes, at most [`HELD_SIZE`] with their overhead. More are not kept.
    held: Pieces,
    /// True if a rule stores the file.
    pub(super) is_stored: bool,
    /// Time of the last bytes.
    pub(super) last: Time,
    /// The number of the last use; `None` before the first.
    pub(super) used: Option<u64>,
    /// Memory that is charged, in bytes.
    pub(super) charged: usize,
}

impl RangedFile {
    pub(super) fn new(file: File, limit: usize, now: Time) -> RangedFile {
        RangedFile {
            file,
            total: None,
            head: Vec::new(),
            limit,
            tail: Vec::new(),
            held: Pieces::default(),
            is_stored: false,
            last: now,
            used: None,
            charged: 0,
        }
    }

    /// Returns the memory in bytes.
    pub(super) fn memory(&self) -> usize {
        let buffers = self.head.capacity() + self.tail.capacity();
        OVERHEAD + buffers + self.held.memory() + self.file.heap()
    }

    /// Returns true if bytes at an offset differ from those that are kept of the file, or the size from that of an earlier range:
    /// they belong to another version of the file.
    pub(super) fn differs(&self, offset: u64, bytes: &[u8], total: Option<u64>) -> bool {
        let is_other = |kept: &[u8], begin: u64| {
            let end = (begin + kept.len() as u64).min(offset + bytes.len() as u64);
            let shared = offset.max(begin)..end;
            !shared.is_empty() && part(kept, begin, &shared) != part(bytes, offset, &shared)
        };
        let has_other_total = self.total.zip(total).is_some_and(|(known, total)| known != total);
        has_other_total
            || is_other(&self.head, 0)
            || is_other(&self.tail, self.file.size - self.tail.len() as u64)
            || !self.held.is_empty() && self.held.overwrite(offset, &mut bytes.to_vec())
    }

    /// Adds bytes at an offset.
    pub(super) fn add(&mut self, offset: u64, bytes: &[u8], total: Option<u64>) {
        self.total = total.or(self.total);
        let next = self.file.size;
        let known = usize::try_from(next.saturating_sub(offset)).unwrap_or(usize::MAX);
        let Some(new) = bytes.get(known..).filter(|new| !new.is_empty()) else {
            return;
        };
        if offset <= next {
            self.extend(new);
        } else if self.held.memory() + Pieces::OVERHEAD + new.len() <= HELD_SIZE {
            self.held.insert(offset, new, OverlapPolicy::First);
        }
    }

    /// Adds the bytes behind the last one without a hole.
    fn extend(&mut self, bytes: &[u8]) {
        self.file.update(bytes);
        let room = self.limit.saturating_sub(self.head.len()).min(bytes.len());
        self.head.extend_from_slice(&bytes[..room]);
        keep_last(&mut self.tail, bytes);
    }

    /// Takes the bytes that waited for those before them.
    pub(super) fn join(&mut self) {
        let mut held = core::mem::take(&mut self.held);
        held.take_contiguous(self.file.size, u64::MAX, |bytes| self.extend(bytes));
        self.held = held;
    }

    /// Returns the known bytes that end at an offset, at most [`BESIDE`].
    pub(super) fn before(&self, offset: u64) -> Vec<u8> {
        let next = self.file.size;
        let of = |kept: &[u8], begin: u64| {
            let end = (offset - begin) as usize;
            kept[end.saturating_sub(BESIDE)..end].to_vec()
        };
        let tail = next - self.tail.len() as u64;
        match offset {
            offset if offset > next => self.held.run_before(offset, BESIDE),
            offset if offset <= self.head.len() as u64 => of(&self.head, 0),
            offset if offset >= tail => of(&self.tail, tail),
            _ => Vec::new(),
        }
    }

    /// Returns the known bytes that begin at an offset, at most [`BESIDE`].
    pub(super) fn behind(&self, offset: u64) -> Vec<u8> {
        let next = self.file.size;
        let of = |kept: &[u8], begin: u64| {
            let rest = &kept[(offset - begin) as usize..];
            rest[..rest.len().min(BESIDE)].to_vec()
        };
        let tail = next - self.tail.len() as u64;
        match offset {
            offset if offset >= next => self.held.run_behind(offset, BESIDE),
            offset if offset < self.head.len() as u64 => of(&self.head, 0),
            offset if offset >= tail => of(&self.tail, tail),
            _ => Vec::new(),
        }
    }

    /// Returns true if all bytes of the file are there.
    pub(super) fn is_complete(&self) -> bool {
        self.total.is_some_and(|total| self.file.size >= total)
    }

    /// Returns the complete file, and its first bytes.
    pub(super) fn finish(mut self) -> (File, Vec<u8>) {
        self.file.close(true);
        (self.file, self.head)
    }
}

/// Returns the bytes of a range of offsets; `begin` is the offset of the first byte.
fn part<'a>(bytes: &'a [u8], begin: u64, range: &Range<u64>) -> &'a [u8] {
    &bytes[(range.start - begin) as usize..(range.end - begin) as usize]
}
