//! Frames in a ring of memory between two threads: a writer and a reader, without a lock.
//!
//! # Layout
//! The ring is divided into units of 16 bytes. A record is a head of one unit and the frame, padded to full
//! units:
//!
//! ```text
//!  unit   word 0                   word 1
//!  i      release in nanoseconds   size:16 | class:8 | flags:8 | link:32      (bits 0.. first)
//!  i+1…   the frame                                                            then the next record
//! ```
//!
//! A record that would not fit before the end of the ring begins at its start. A record with the flag `PAD`
//! fills the rest of the ring. Only the reader uses `link`: the unit of another record.
//!
//! # Guarantees
//! Records are read in the order in which they were written. Neither side waits, takes a lock or allocates.
//! The reader may free records in any order. Their memory returns to the writer in the order of the ring, so
//! it waits for the oldest record.
//!
//! # Correctness
//! Positions count units and only grow. A unit belongs to the writer after the writer has read a `freed` past
//! the unit, and until it publishes a `filled` past the unit. Otherwise the unit belongs to the reader. One
//! side writes each position with release order, after it has finished with the units before the position.
//! The other side reads it with acquire order. The words themselves are atomics with relaxed order, which are
//! plain loads and stores on all common processors. So a defect here would mix up frames, but would not be
//! undefined behaviour, and no code is unsafe.
//!
//! Loom explores this module (`crates/switch/interleavings`).

#![allow(
    unreachable_pub,
    reason = "`millrace-interleavings` compiles this file as a public module"
)]

#[cfg(not(loom))]
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
#[cfg(loom)]
use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;

use crossbeam_utils::CachePadded;

/// The bytes of a unit.
pub const UNIT: usize = 16;
/// The largest frame in bytes.
pub const MAX_FRAME: usize = u16::MAX as usize;
/// The link of a record that has no successor.
pub const NONE: u32 = u32::MAX;
/// The maximum number of units: 64 GiB. A link can name every unit, and [`NONE`].
pub const MAX_UNITS: usize = NONE as usize;

/// The distance in units at which [`Reader::reclaim`] prefetches memory: eight records of the shortest
/// frames.
const RECLAIM_AHEAD: u32 = 40;

const FREED: u64 = 1 << 24;
const PAD: u64 = 1 << 25;
const LINK: u32 = 32;

/// Memory for a ring, which both sides share: from the heap, or huge pages that the caller maps.
pub trait Memory: Send + Sync + 'static {
    /// Returns the memory. Every call returns the same memory.
    fn words(&self) -> &[AtomicU64];
}

impl Memory for Box<[AtomicU64]> {
    fn words(&self) -> &[AtomicU64] {
        self
    }
}

impl Memory for &'static [AtomicU64] {
    fn words(&self) -> &[AtomicU64] {
        self
    }
}

/// Returns memory of at least `bytes` bytes from the heap. Every page is written, so that no page fault
/// occurs later.
pub fn heap_memory(bytes: usize) -> Box<[AtomicU64]> {
    (0..bytes.div_ceil(8)).map(|_| AtomicU64::new(0)).collect()
}

struct Shared<M> {
    memory: M,
    /// The end of the units that hold records. The writer writes it.
    filled: CachePadded<AtomicU64>,
    /// The end of the units that are free again. The reader writes it.
    freed: CachePadded<AtomicU64>,
    /// True once a record may be released before an earlier one. The writer sets it before the first such
    /// record; it is never cleared.
    reordering: AtomicBool,
}

impl<M: Memory> Shared<M> {
    fn units(&self) -> usize {
        (self.memory.words().len() * 8 / UNIT).min(MAX_UNITS)
    }

    #[inline]
    fn word(&self, unit: u32, word: usize) -> &AtomicU64 {
        &self.memory.words()[unit as usize * 2 + word]
    }
}

/// Returns the number of units of a record.
#[inline]
const fn units_of(size: usize) -> u32 {
    1 + size.div_ceil(UNIT) as u32
}

/// A position in the ring, which only grows, and the unit at this position.
#[derive(Clone, Copy)]
struct Cursor {
    position: u64,
    unit: u32,
}

impl Cursor {
    const START: Cursor = Cursor { position: 0, unit: 0 };

    #[inline]
    fn advance(&mut self, by: u32, units: u32) {
        self.position += u64::from(by);
        self.unit += by;
        if self.unit == units {
            self.unit = 0;
        }
    }
}

/// The writing side of a ring.
pub struct Writer<M> {
    shared: Arc<Shared<M>>,
    units: u32,
    end: Cursor,
    published: u64,
    /// The last value of `freed` that the writer read.
    freed: u64,
}

/// The reading side of a ring.
pub struct Reader<M> {
    shared: Arc<Shared<M>>,
    units: u32,
    /// The first record that [`Reader::arrived`] has not returned.
    next: Cursor,
    /// The oldest record whose memory is not freed.
    oldest: Cursor,
    /// The last value of `filled` that the reader read.
    filled: u64,
    reordering: bool,
}

/// The head of a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Head {
    /// The time of release in nanoseconds.
    pub release: u64,
    /// The size of the frame in bytes.
    pub size: u16,
    /// The class of the frame.
    pub class: u8,
}

/// Returns the writing and the reading side of a ring.
pub fn ring<M: Memory>(memory: M) -> (Writer<M>, Reader<M>) {
    let position = || CachePadded::new(AtomicU64::new(0));
    let shared = Arc::new(Shared {
        memory,
        filled: position(),
        freed: position(),
        reordering: AtomicBool::new(false),
    });
    let units = shared.units() as u32;
    let writer = Writer {
        shared: Arc::clone(&shared),
        units,
        end: Cursor::START,
        published: 0,
        freed: 0,
    };
    let reader = Reader {
        shared,
        units,
        next: Cursor::START,
        oldest: Cursor::START,
        filled: 0,
        reordering: false,
    };
    (writer, reader)
}

impl<M: Memory> Writer<M> {
    /// Writes a record, which the reader sees after [`Self::publish`]. Returns false if there is no memory
    /// for the record, or if the frame is longer than [`MAX_FRAME`].
    #[inline]
    #[must_use]
    pub fn push(&mut self, release: u64, class: u8, frame: &[u8]) -> bool {
        let Ok(size) = u16::try_from(frame.len()) else {
            return false;
        };
        let needed = units_of(frame.len());
        let to_end = self.units - self.end.unit;
        let pad = if needed > to_end { to_end } else { 0 };
        if !self.has(needed + pad) {
            return false;
        }
        if pad > 0 {
            self.shared.word(self.end.unit, 1).store(PAD, Ordering::Relaxed);
            self.end.advance(pad, self.units);
        }
        let unit = self.end.unit;
        let first = unit as usize * 2;
        let words = &self.shared.memory.words()[first..first + needed as usize * 2];
        words[0].store(release, Ordering::Relaxed);
        words[1].store(
            u64::from(size) | u64::from(class) << 16 | u64::from(NONE) << LINK,
            Ordering::Relaxed,
        );
        let (chunks, rest) = frame.as_chunks::<8>();
        let mut words = words[2..].iter();
        for (chunk, word) in chunks.iter().zip(&mut words) {
            word.store(u64::from_ne_bytes(*chunk), Ordering::Relaxed);
        }
        if let (false, Some(word)) = (rest.is_empty(), words.next()) {
            let mut last = [0; 8];
            last[..rest.len()].copy_from_slice(rest);
            word.store(u64::from_ne_bytes(last), Ordering::Relaxed);
        }
        self.end.advance(needed, self.units);
        true
    }

    /// Returns true if at least `units` units are free.
    #[inline]
    fn has(&mut self, units: u32) -> bool {
        let free = |freed: u64| u64::from(self.units) - (self.end.position - freed);
        if free(self.freed) >= u64::from(units) {
            return true;
        }
        self.freed = self.shared.freed.load(Ordering::Acquire);
        u64::from(self.units) - (self.end.position - self.freed) >= u64::from(units)
    }

    /// Announces that records from now on may be released before earlier ones.
    pub fn reorder(&mut self) {
        self.shared.reordering.store(true, Ordering::Relaxed);
    }

    /// Publishes the written records.
    #[inline]
    pub fn publish(&mut self) {
        if self.end.position != self.published {
            self.published = self.end.position;
            self.shared.filled.store(self.published, Ordering::Release);
        }
    }

    /// Returns the bytes that records have taken since the start, including those of freed records.
    pub fn written(&self) -> u64 {
        self.end.position * UNIT as u64
    }

    /// Returns the bytes that records take. The number is current if it is above `high`; otherwise it may include
    /// records that were freed since the writer last loaded the reader's position. So the position is not loaded
    /// for each burst.
    #[inline]
    pub fn used_above(&mut self, high: u64) -> u64 {
        if self.written() - self.freed * UNIT as u64 > high {
            self.freed = self.shared.freed.load(Ordering::Acquire);
        }
        self.written() - self.freed * UNIT as u64
    }

    /// Returns the size of the ring in bytes.
    pub fn size(&self) -> usize {
        self.units as usize * UNIT
    }
}

impl<M: Memory> Reader<M> {
    /// Returns the unit of the next published record in the order of writing, if there is one.
    #[inline]
    pub fn arrived(&mut self) -> Option<u32> {
        let unit = self.peek()?;
        let size = self.head(unit).size;
        self.next.advance(units_of(usize::from(size)), self.units);
        Some(unit)
    }

    /// Returns the next record without removing it from the order: see [`Self::arrived`].
    #[inline]
    pub fn peek(&mut self) -> Option<u32> {
        loop {
            if self.next.position == self.filled {
                self.filled = self.shared.filled.load(Ordering::Acquire);
                // The writer stores the flag before it publishes the first record that needs it.
                self.reordering = self.shared.reordering.load(Ordering::Relaxed);
                if self.next.position == self.filled {
                    return None;
                }
            }
            let unit = self.next.unit;
            if self.shared.word(unit, 1).load(Ordering::Relaxed) & PAD == 0 {
                return Some(unit);
            }
            self.next.advance(self.units - unit, self.units);
        }
    }

    /// Returns true if one of the records so far may be released before an earlier one.
    #[inline]
    pub fn is_reordering(&self) -> bool {
        self.reordering
    }

    /// Returns the head of a record that is not freed.
    #[inline]
    pub fn head(&self, unit: u32) -> Head {
        let info = self.shared.word(unit, 1).load(Ordering::Relaxed);
        Head {
            release: self.release(unit),
            size: info as u16,
            class: (info >> 16) as u8,
        }
    }

    /// Returns the time of release of a record that is not freed, in nanoseconds.
    #[inline]
    pub fn release(&self, unit: u32) -> u64 {
        self.shared.word(unit, 0).load(Ordering::Relaxed)
    }

    /// Returns the distance of a record from the oldest. A record that was written later has a larger
    /// distance.
    #[inline]
    pub fn sequence(&self, unit: u32) -> u64 {
        let oldest = self.oldest.unit;
        let wrapped = if unit < oldest { u64::from(self.units) } else { 0 };
        u64::from(unit) + wrapped - u64::from(oldest)
    }

    /// Returns the link of a record.
    #[inline]
    pub fn link(&self, unit: u32) -> u32 {
        (self.shared.word(unit, 1).load(Ordering::Relaxed) >> LINK) as u32
    }

    /// Sets the link of a record.
    #[inline]
    pub fn set_link(&mut self, unit: u32, link: u32) {
        let word = self.shared.word(unit, 1);
        let rest = word.load(Ordering::Relaxed) & u64::from(u32::MAX);
        word.store(rest | u64::from(link) << LINK, Ordering::Relaxed);
    }

    /// Copies as much of a record's frame as fits into `frame`.
    #[inline]
    pub fn copy(&self, unit: u32, frame: &mut [u8]) {
        let first = unit as usize * 2 + 2;
        let size = usize::from(self.head(unit).size).min(frame.len());
        let words = &self.shared.memory.words()[first..first + size.div_ceil(8)];
        let (chunks, rest) = frame[..size].as_chunks_mut::<8>();
        let mut words = words.iter();
        for (chunk, word) in chunks.iter_mut().zip(&mut words) {
            *chunk = word.load(Ordering::Relaxed).to_ne_bytes();
        }
        if let Some(word) = words.next() {
            let last = word.load(Ordering::Relaxed).to_ne_bytes();
            rest.copy_from_slice(&last[..rest.len()]);
        }
    }

    /// Prefetches the memory some units after the beginning of a record into the cache.
    ///
    /// The function loads a value and discards it, so that the processor does not wait for the load.
    #[inline]
    pub fn touch(&self, unit: u32, units_ahead: u32) {
        let unit = unit.saturating_add(units_ahead);
        if unit < self.units {
            core::hint::black_box(self.shared.word(unit, 0).load(Ordering::Relaxed));
        }
    }

    /// Marks a record as free. Its memory stays unchanged until [`Self::reclaim`].
    #[inline]
    pub fn free(&mut self, unit: u32) {
        let word = self.shared.word(unit, 1);
        word.store(word.load(Ordering::Relaxed) | FREED, Ordering::Relaxed);
    }

    /// Returns the memory of free records to the writer, up to the oldest record that is not free.
    #[inline]
    pub fn reclaim(&mut self) {
        let before = self.oldest.position;
        while self.oldest.position != self.next.position {
            let unit = self.oldest.unit;
            self.touch(unit, RECLAIM_AHEAD);
            let info = self.shared.word(unit, 1).load(Ordering::Relaxed);
            if info & PAD != 0 {
                self.oldest.advance(self.units - unit, self.units);
            } else if info & FREED != 0 {
                self.oldest
                    .advance(units_of(usize::from(info as u16)), self.units);
            } else {
                break;
            }
        }
        if self.oldest.position != before {
            self.shared.freed.store(self.oldest.position, Ordering::Release);
        }
    }

    /// Returns the bytes of all records so far whose memory was returned to the writer.
    #[inline]
    pub fn freed(&self) -> u64 {
        self.oldest.position * UNIT as u64
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn frame(number: u64, size: usize) -> Vec<u8> {
        (0..size).map(|at| (number as usize * 31 + at) as u8).collect()
    }

    #[test]
    fn records_come_out_as_they_went_in_across_the_end_of_the_ring() {
        let (mut writer, mut reader) = ring(heap_memory(1024));
        for number in 0..1000 {
            let sent = frame(number, 1 + (number as usize * 37) % 300);
            assert!(writer.push(number, 7, &sent));
            assert_eq!(reader.arrived(), None, "not published");
            writer.publish();
            let unit = reader.arrived().unwrap();
            let head = reader.head(unit);
            assert_eq!(
                (head.release, usize::from(head.size), head.class),
                (number, sent.len(), 7)
            );
            let mut received = vec![0; sent.len()];
            reader.copy(unit, &mut received);
            assert_eq!(received, sent);
            reader.free(unit);
            reader.reclaim();
        }
    }

    #[test]
    fn memory_comes_back_in_the_order_of_the_ring() {
        let (mut writer, mut reader) = ring(heap_memory(4 * 32));
        for number in 0..4 {
            assert!(writer.push(number, 0, &[1; 16]));
        }
        assert!(!writer.push(4, 0, &[1; 16]));
        writer.publish();
        let units: Vec<_> = std::iter::from_fn(|| reader.arrived()).collect();
        for at in [1, 2, 3] {
            reader.free(units[at]);
            reader.reclaim();
            assert!(!writer.push(4, 0, &[1; 16]), "the oldest is not free");
        }
        reader.free(units[0]);
        reader.reclaim();
        for number in 4..8 {
            assert!(writer.push(number, 0, &[1; 16]));
        }
    }

    #[test]
    fn a_frame_that_never_fits_is_refused() {
        let (mut writer, _reader) = ring(heap_memory(256));
        assert!(!writer.push(0, 0, &[0; 300]));
        assert!(!writer.push(0, 0, &vec![0; MAX_FRAME + 1]));
        assert!(writer.push(0, 0, &[0; 200]));
    }

    #[test]
    fn two_threads_hand_over_every_record_while_some_are_freed_late() {
        let rounds = if cfg!(miri) { 300 } else { 200_000u64 };
        let (mut writer, mut reader) = ring(heap_memory(8192));
        std::thread::scope(|scope| {
            scope.spawn(move || {
                for number in 0..rounds {
                    let sent = frame(number, 1 + (number as usize * 61) % 200);
                    while !writer.push(number, 0, &sent) {
                        writer.publish();
                        std::thread::yield_now();
                    }
                    if number % 5 == 0 {
                        writer.publish();
                    }
                }
                writer.publish();
            });
            let mut kept = Vec::new();
            let mut next = 0;
            while next < rounds {
                while let Some(unit) = reader.arrived() {
                    kept.push((next, unit));
                    next += 1;
                }
                // The newest record is freed first, and every eighth record one round later.
                kept.retain(|(number, unit)| {
                    let mut received = vec![0; usize::from(reader.head(*unit).size)];
                    reader.copy(*unit, &mut received);
                    assert_eq!(received, frame(*number, received.len()));
                    assert_eq!(reader.release(*unit), *number);
                    let keep = number % 8 == 0 && number + 16 > next && next < rounds;
                    if !keep {
                        reader.free(*unit);
                    }
                    keep
                });
                reader.reclaim();
                std::thread::yield_now();
            }
        });
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;

    #[test]
    fn loom_every_interleaving_hands_over_whole_records_in_order() {
        loom::model(|| {
            // The ring has space for two records of two units, and three are written, so that memory is
            // reused.
            let (mut writer, mut reader) = ring(heap_memory(4 * UNIT));
            let thread = loom::thread::spawn(move || {
                for number in 1..=3u8 {
                    while !writer.push(u64::from(number), number, &[number; 8]) {
                        writer.publish();
                        loom::thread::yield_now();
                    }
                }
                writer.publish();
            });
            let mut next = 1;
            while next <= 3 {
                match reader.arrived() {
                    Some(unit) => {
                        let head = reader.head(unit);
                        assert_eq!((head.release, head.class), (u64::from(next), next));
                        let mut frame = [0; 8];
                        reader.copy(unit, &mut frame);
                        assert_eq!(frame, [next; 8]);
                        next += 1;
                        reader.free(unit);
                        reader.reclaim();
                    }
                    None => loom::thread::yield_now(),
                }
            }
            thread.join().unwrap();
        });
    }

    #[test]
    fn loom_the_first_record_that_may_overtake_comes_with_the_news() {
        loom::model(|| {
            let (mut writer, mut reader) = ring(heap_memory(8 * UNIT));
            let thread = loom::thread::spawn(move || {
                assert!(writer.push(9, 0, &[1]));
                writer.publish();
                writer.reorder();
                assert!(writer.push(5, 0, &[2]));
                writer.publish();
            });
            let mut seen = 0;
            while seen < 2 {
                match reader.arrived() {
                    Some(unit) => {
                        seen += 1;
                        assert!(reader.release(unit) == 9 || reader.is_reordering());
                    }
                    None => loom::thread::yield_now(),
                }
            }
            thread.join().unwrap();
        });
    }
}
