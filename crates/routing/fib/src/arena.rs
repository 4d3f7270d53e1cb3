//! The memory of nodes and of cells: cache lines of 16 words, in blocks of some lines.
//!
//! Readers follow the numbers of lines that the writer has published. A block that is no longer published is *retired*:
//! it returns to the allocator after a grace period, when no reader can still be in it. Blocks are kept in free lists by
//! the number of their lines and are not merged: the memory of a size is bounded by the most that was in use of it.

use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

use crate::chunks::{CHUNK_LEN, Chunks, INDEX_MAX};

/// The number of words in a line.
pub(crate) const LINE_LEN: usize = 16;

/// A cache line.
#[repr(align(64))]
#[derive(Debug, Default)]
pub(crate) struct Line(pub(crate) [AtomicU32; LINE_LEN]);

/// The lines that readers see.
pub(crate) type Lines = Chunks<Line>;

/// The arena is full: 2^24 lines, 1 GiB.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the memory of the FIB is full: {lines} lines of 64 bytes are in use; expected fewer routes")]
pub struct Full {
    pub lines: u32,
}

/// A number of adjacent lines of one chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Block {
    pub(crate) line: u32,
    pub(crate) lines: u32,
}

/// The writer's side: which lines are free.
#[derive(Debug)]
pub(crate) struct Allocator {
    /// The first line that was never used. Line 0 stays unused.
    next: u32,
    /// Free blocks by the number of their lines.
    free: Vec<Vec<u32>>,
    /// The number of lines in blocks that are in use or retired.
    used: u32,
}

impl Allocator {
    pub(crate) fn new() -> Allocator {
        Allocator {
            next: 1,
            free: Vec::new(),
            used: 0,
        }
    }

    /// Returns a block of `lines` lines, from 1 to [`CHUNK_LEN`]. Its words have any value.
    pub(crate) fn allocate(&mut self, memory: &Lines, lines: u32) -> Result<Block, Full> {
        if let Some(line) = self.free.get_mut(lines as usize).and_then(Vec::pop) {
            self.used += lines;
            return Ok(Block { line, lines });
        }
        let chunk_len = CHUNK_LEN as u32;
        let left = chunk_len - self.next % chunk_len;
        if lines > left {
            // The rest of the chunk becomes small blocks: most nodes have one line.
            for line in self.next..self.next + left {
                self.list(1).push(line);
            }
            self.next += left;
        }
        let line = self.next;
        if lines > chunk_len || line + lines - 1 > INDEX_MAX {
            return Err(Full { lines: self.used });
        }
        self.next += lines;
        self.used += lines;
        memory.make(line);
        Ok(Block { line, lines })
    }

    pub(crate) fn free(&mut self, block: Block) {
        self.used -= block.lines;
        self.list(block.lines).push(block.line);
    }

    fn list(&mut self, lines: u32) -> &mut Vec<u32> {
        let lines = lines as usize;
        if self.free.len() <= lines {
            self.free.resize_with(lines + 1, Vec::new);
        }
        &mut self.free[lines]
    }

    /// Returns the number of lines in use, in bytes.
    pub(crate) fn used_size(&self) -> usize {
        self.used as usize * size_of::<Line>()
    }
}

/// Returns a word of a block; `at` counts from the first line of the block.
#[inline(always)]
pub(crate) fn word(memory: &Lines, line: u32, at: usize) -> Option<&AtomicU32> {
    memory
        .get(line + (at / LINE_LEN) as u32)
        .map(|line| &line.0[at % LINE_LEN])
}

/// Reads a word; 0 outside of the memory.
#[inline(always)]
pub(crate) fn read(memory: &Lines, line: u32, at: usize) -> u32 {
    word(memory, line, at).map_or(0, |word| word.load(Relaxed))
}

/// Writes a word of a block that is not published.
pub(crate) fn write(memory: &Lines, line: u32, at: usize, value: u32) {
    if let Some(word) = word(memory, line, at) {
        word.store(value, Relaxed);
    }
}
