//! Transactions: what parsers write, and what detection and the records of events read.
//!
//! A parser publishes each buffer once its bytes are known: a header line at once and complete, a body piece by piece.
//! Detection asks for the instances of a buffer and learns how many bytes are there and whether more can follow.

use millrace_ips_rules::buffers::Buffer;

use super::AppProtocol;
use super::file::File;
use super::record::Record;
use super::text::{Piece, Span};
use crate::app::heap::{Heap, heap};
use crate::detect;
use crate::flow::Direction;

/// The progress of a transaction in one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Progress {
    /// No byte was parsed.
    #[default]
    Idle,
    /// The first line or header is being parsed.
    Started,
    /// The headers are complete.
    Headers,
    /// The body is being parsed.
    Body,
    /// The direction is complete.
    Complete,
}

/// An instance of a buffer of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BufferView<'a> {
    /// The bytes that are there.
    pub bytes: &'a [u8],
    /// Offset of `bytes[0]` in the whole buffer, if earlier bytes are not kept.
    pub offset: u64,
    /// True if no byte follows.
    pub is_complete: bool,
}

/// A buffer that a parser has published.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Stored {
    buffer: Buffer,
    /// A second name of the same bytes, as `file.data` is for the body of an HTTP response.
    alias: Option<Buffer>,
    direction: Direction,
    /// Bytes of a buffer that grows are in memory of its own, those of others in the text of the transaction.
    bytes: Piece,
    is_complete: bool,
    /// Bytes that an incomplete buffer must have before it is inspected.
    minimum: usize,
    /// True for a buffer that was removed while a later one was open: later ones keep their indices.
    is_removed: bool,
}

heap!(Stored { bytes });

/// An anomaly, by the name that `app-layer-event` has for it: protocol, full stop, event.
pub type AppEvent = &'static str;

/// Largest number of distinct anomalies that a transaction keeps.
pub const EVENTS_PER_TRANSACTION: usize = 32;

/// Largest number of instances of all buffers in a transaction.
pub const BUFFERS_PER_TRANSACTION: usize = 4096;

/// One request and its answer, or the unit that a protocol has instead.
#[derive(Debug)]
pub struct Transaction {
    /// Number in the flow, from 0.
    pub id: u64,
    /// The protocol.
    pub app: AppProtocol,
    /// Progress by [`Direction::index`].
    pub progress: [Progress; 2],
    /// State of detection.
    pub detect: detect::TransactionState,
    /// Anomalies, without repetition, in the order in which they were found.
    pub events: Vec<AppEvent>,
    /// Fields for the EVE record.
    pub record: Record,
    /// Files that the transaction carries.
    pub files: Vec<File>,
    /// True by [`Direction::index`] if detection has seen the direction in its last state.
    pub is_inspected: [bool; 2],
    /// True by [`Direction::index`] from the trailer of a message, which adds to its headers, until detection has seen it.
    pub(crate) has_new_trailer: [bool; 2],
    /// A number that changes whenever a parser may have changed the transaction.
    version: u32,
    /// How often bytes of buffers were replaced by others, by [`Direction::index`].
    replaced: [u32; 2],
    /// The version for which the memory was computed, and the memory in bytes.
    charged: (u32, usize),
    stored: Vec<Stored>,
    /// The parts of `stored` with the buffers of each direction.
    places: [Places; 2],
    /// The bytes of short buffers.
    text: Vec<u8>,
}

/// The first and the last index of each set of buffers in a list of stored buffers. A search reads only that part of the list.
#[derive(Debug, Clone, Copy)]
struct Places([[u8; 2]; Places::SETS]);

impl Places {
    /// A power of two. Buffers of one protocol follow each other, so that few share a set.
    const SETS: usize = 32;
    /// The index that stands for itself and all higher ones.
    const REST: u8 = u8::MAX;
    const EMPTY: Places = Places([[Places::REST, 0]; Places::SETS]);

    /// Returns the set of a buffer.
    fn set(buffer: Buffer) -> usize {
        buffer as usize % Places::SETS
    }

    /// Notes that a buffer is stored at an index.
    fn add(&mut self, buffer: Buffer, index: usize) {
        let index = u8::try_from(index).unwrap_or(Places::REST);
        let [first, last] = &mut self.0[Places::set(buffer)];
        *first = index.min(*first);
        *last = index.max(*last);
    }

    /// Returns the part of a list in which a buffer is.
    fn of<'a>(&self, buffer: Buffer, stored: &'a [Stored]) -> &'a [Stored] {
        let [first, last] = self.0[Places::set(buffer)];
        let end = match last {
            Places::REST => stored.len(),
            last => stored.len().min(usize::from(last) + 1),
        };
        stored.get(usize::from(first)..end).unwrap_or_default()
    }
}

impl Transaction {
    /// Returns an empty transaction.
    pub fn new(id: u64, app: AppProtocol) -> Transaction {
        Transaction {
            id,
            app,
            progress: [Progress::Idle; 2],
            detect: detect::TransactionState::default(),
            events: Vec::new(),
            record: Record::None,
            files: Vec::new(),
            is_inspected: [false; 2],
            has_new_trailer: [false; 2],
            version: 1,
            replaced: [0; 2],
            charged: (0, 0),
            stored: Vec::new(),
            places: [Places::EMPTY; 2],
            text: Vec::new(),
        }
    }

    /// Returns a number, never 0, that changes whenever a parser may have changed the transaction.
    pub(crate) fn version(&self) -> u32 {
        self.version
    }

    /// Returns a number that changes whenever bytes of a direction were replaced by others, which were not searched.
    pub(crate) fn replaced(&self, direction: Direction) -> u32 {
        self.replaced[direction.index()]
    }

    /// Notes that a parser may change the transaction.
    fn touch(&mut self) {
        self.version = self.version.wrapping_add(1).max(1);
    }

    /// Returns the instances of a buffer in a direction that exist so far.
    pub fn buffers(&self, buffer: Buffer, direction: Direction) -> impl Iterator<Item = BufferView<'_>> {
        let is_it = move |stored: &&Stored| {
            stored.direction == direction
                && !stored.is_removed
                && (stored.buffer == buffer || stored.alias == Some(buffer))
        };
        let stored = self.places[direction.index()].of(buffer, &self.stored);
        stored.iter().filter(is_it).filter_map(|stored| {
            let bytes = stored.bytes.of(&self.text);
            (stored.is_complete || bytes.len() >= stored.minimum).then_some(BufferView {
                bytes,
                offset: 0,
                is_complete: stored.is_complete,
            })
        })
    }

    /// Returns the first instance of a buffer in a direction.
    pub fn buffer(&self, buffer: Buffer, direction: Direction) -> Option<&[u8]> {
        self.buffers(buffer, direction).next().map(|view| view.bytes)
    }

    /// Returns true if both directions are complete.
    pub fn is_complete(&self) -> bool {
        self.progress == [Progress::Complete; 2]
    }

    /// Returns the bytes that the transaction has allocated.
    fn heap(&mut self) -> usize {
        if self.charged.0 != self.version {
            let buffers = self.stored.heap() + self.text.heap();
            let heap = buffers + self.events.heap() + self.files.heap() + self.record.heap();
            self.charged = (self.version, heap);
        }
        self.charged.1 + self.detect.heap()
    }

    /// Returns the size in bytes of all buffers.
    pub fn size(&self) -> usize {
        let sizes = self.stored.iter().map(|stored| stored.bytes.of(&self.text).len());
        sizes.sum()
    }

    /// Publishes a complete buffer.
    pub(super) fn publish(
        &mut self,
        buffer: Buffer,
        direction: Direction,
        bytes: impl Into<Vec<u8>> + AsRef<[u8]>,
    ) {
        if self.has_room() {
            let bytes = Piece::new(&mut self.text, bytes);
            self.store(buffer, None, direction, bytes, true, 0);
        }
    }

    /// Opens a buffer to which bytes are appended later, and returns its index. Detection sees it once it has `minimum`
    /// bytes or is complete.
    pub(super) fn open(
        &mut self,
        buffer: Buffer,
        alias: Option<Buffer>,
        direction: Direction,
        minimum: usize,
    ) -> usize {
        self.store(buffer, alias, direction, Piece::Own(Vec::new()), false, minimum)
    }

    /// Appends bytes to an open buffer, up to a size, and returns how many were taken.
    pub(super) fn append(&mut self, index: usize, bytes: &[u8], limit: usize) -> usize {
        let Some(stored) = self.stored.get_mut(index).filter(|stored| !stored.is_complete) else {
            return 0;
        };
        let known = stored.bytes.to_mut(&self.text);
        let room = limit.saturating_sub(known.len()).min(bytes.len());
        known.extend_from_slice(&bytes[..room]);
        room
    }

    /// Marks an open buffer as complete.
    pub(super) fn close(&mut self, index: usize) {
        if let Some(stored) = self.stored.get_mut(index) {
            stored.is_complete = true;
        }
    }

    /// Replaces the bytes of the only instance of a buffer, or publishes it.
    pub(super) fn replace(
        &mut self,
        buffer: Buffer,
        direction: Direction,
        bytes: impl Into<Vec<u8>> + AsRef<[u8]>,
    ) {
        match self.only(buffer, direction) {
            Some(index) => self.replace_at(index, bytes.into()),
            None => self.publish(buffer, direction, bytes),
        }
    }

    /// Replaces or publishes the only instance of a buffer. Its bytes are those of the buffer `first`, then what `write` appends.
    pub(super) fn compose(
        &mut self,
        buffer: Buffer,
        direction: Direction,
        first: Option<Buffer>,
        write: impl FnOnce(&mut Vec<u8>),
    ) {
        let known = self.only(buffer, direction);
        if known.is_none() && !self.has_room() {
            return;
        }
        let start = self.text.len();
        let first = first.and_then(|first| self.only(first, direction));
        match first.map(|index| &self.stored[index].bytes) {
            Some(Piece::In(span)) => self.text.extend_from_within(span.range()),
            Some(Piece::Own(bytes)) => self.text.extend_from_slice(bytes),
            None => {}
        }
        write(&mut self.text);
        match known {
            Some(index) => {
                let bytes = self.text.split_off(start);
                self.replace_at(index, bytes);
            }
            None => {
                let bytes = Piece::In(Span::behind(&self.text, start));
                self.store(buffer, None, direction, bytes, true, 0);
            }
        }
    }

    /// Returns the index of the only instance of a buffer.
    fn only(&self, buffer: Buffer, direction: Direction) -> Option<usize> {
        self.stored
            .iter()
            .position(|stored| stored.buffer == buffer && stored.direction == direction && !stored.is_removed)
    }

    fn replace_at(&mut self, index: usize, bytes: Vec<u8>) {
        let stored = &mut self.stored[index];
        let is_longer = bytes.starts_with(stored.bytes.of(&self.text));
        self.replaced[stored.direction.index()] += u32::from(!is_longer);
        // The text keeps the bytes with which the buffer was published.
        stored.bytes = Piece::Own(bytes);
    }

    /// Removes the buffers of a direction but some (an interim response precedes the final one). The indices of the other
    /// buffers, to which bytes may still be appended, stay valid.
    pub(super) fn remove_direction(&mut self, direction: Direction, kept: &[Buffer]) {
        for stored in self
            .stored
            .iter_mut()
            .filter(|stored| stored.direction == direction && !kept.contains(&stored.buffer))
        {
            stored.is_removed = true;
            stored.is_complete = true;
            stored.bytes = Piece::In(Span::default());
        }
        while self.stored.last().is_some_and(|stored| stored.is_removed) {
            self.stored.pop();
        }
        // Any number of interim responses takes the memory of one.
        let end = self.stored.iter().map(|stored| stored.bytes.end()).max();
        self.text.truncate(end.unwrap_or(0));
        self.replaced[direction.index()] += 1;
    }

    /// Marks every buffer of a direction as complete.
    pub(super) fn close_direction(&mut self, direction: Direction) {
        for stored in self
            .stored
            .iter_mut()
            .filter(|stored| stored.direction == direction)
        {
            stored.is_complete = true;
        }
        for file in self.files.iter_mut().filter(|file| file.direction == direction) {
            file.close(false);
        }
    }

    /// Notes an anomaly once.
    pub(super) fn raise(&mut self, event: AppEvent) {
        if self.events.len() < EVENTS_PER_TRANSACTION && !self.events.contains(&event) {
            self.events.push(event);
        }
    }

    /// Moves the progress of a direction forward; it never goes back.
    pub(super) fn advance(&mut self, direction: Direction, progress: Progress) {
        let current = &mut self.progress[direction.index()];
        *current = (*current).max(progress);
    }

    fn store(
        &mut self,
        buffer: Buffer,
        alias: Option<Buffer>,
        direction: Direction,
        bytes: Piece,
        is_complete: bool,
        minimum: usize,
    ) -> usize {
        if !self.has_room() {
            return usize::MAX;
        }
        let places = &mut self.places[direction.index()];
        for buffer in [Some(buffer), alias].into_iter().flatten() {
            places.add(buffer, self.stored.len());
        }
        self.stored.push(Stored {
            buffer,
            alias,
            direction,
            bytes,
            is_complete,
            minimum,
            is_removed: false,
        });
        self.stored.len() - 1
    }

    /// Returns true if another buffer can be stored.
    fn has_room(&self) -> bool {
        self.stored.len() < BUFFERS_PER_TRANSACTION
    }
}

/// Buffers of an HTTP transaction for which memory is taken at once: those of a usual request and its response.
const HTTP_BUFFERS: usize = 28;
/// The same for their bytes.
const HTTP_TEXT: usize = 2048;

/// Largest number of transactions of a flow that are kept at a time.
pub const LIVE_TRANSACTIONS: usize = 512;
/// Largest size in bytes of the buffers of a flow's transactions when another one begins: 16 MiB. Requests without answers
/// would otherwise keep up to 1 MiB each.
pub const LIVE_SIZE: usize = 16 << 20;
/// Number of transactions of a flow from which their size is computed.
const SIZED: usize = 8;

/// The transactions of a flow that are not finished, or not inspected to their end.
#[derive(Debug, Default)]
pub struct Transactions {
    /// The transactions in the order of their numbers.
    pub list: Vec<Transaction>,
    /// Anomalies of the flow that belong to no transaction.
    pub events: Vec<AppEvent>,
    /// Number of the next transaction.
    next: u64,
    /// Number of transactions that were removed before they were complete, for want of room.
    pub evicted: u64,
}

impl Transactions {
    /// Forgets all transactions, and keeps the memory of their list.
    pub(super) fn renew(&mut self) {
        self.list.clear();
        self.events.clear();
        (self.next, self.evicted) = (0, 0);
    }

    /// Returns the bytes that all transactions have allocated.
    pub(super) fn heap(&mut self) -> usize {
        let inner: usize = self.list.iter_mut().map(Transaction::heap).sum();
        self.list.capacity() * size_of::<Transaction>() + self.events.heap() + inner
    }

    /// Adds a transaction and returns it. The oldest are removed if there are too many, or if they are too large.
    pub(super) fn start(&mut self, app: AppProtocol) -> &mut Transaction {
        if self.list.len() >= LIVE_TRANSACTIONS {
            self.list.remove(0);
            self.evicted += 1;
        }
        while self.list.len() >= SIZED && self.size() > LIVE_SIZE {
            self.list.remove(0);
            self.evicted += 1;
        }
        if self.list.capacity() == 0 {
            // Most flows have one transaction at a time.
            self.list.reserve_exact(1);
        }
        let mut transaction = Transaction::new(self.next, app);
        if app == AppProtocol::Http {
            transaction.stored.reserve_exact(HTTP_BUFFERS);
            transaction.text.reserve_exact(HTTP_TEXT);
        }
        self.list.push(transaction);
        self.next += 1;
        let last = self.list.len() - 1;
        &mut self.list[last]
    }

    /// Returns the transaction with a number, if it is still kept.
    pub(super) fn by_id(&mut self, id: u64) -> Option<&mut Transaction> {
        let index = self
            .list
            .binary_search_by_key(&id, |transaction| transaction.id)
            .ok()?;
        let transaction = &mut self.list[index];
        transaction.touch();
        Some(transaction)
    }

    /// Notes an anomaly of the flow once.
    pub(super) fn raise(&mut self, event: AppEvent) {
        if self.events.len() < EVENTS_PER_TRANSACTION && !self.events.contains(&event) {
            self.events.push(event);
        }
    }

    /// Ends both directions of every transaction.
    pub(super) fn end(&mut self) {
        for transaction in &mut self.list {
            transaction.touch();
            for direction in [Direction::ToServer, Direction::ToClient] {
                transaction.close_direction(direction);
                transaction.advance(direction, Progress::Complete);
            }
        }
    }

    /// Removes the transactions that are complete and inspected, and the memory of the list if none is left: most flows are
    /// idle, and wait for their timeout.
    pub(super) fn retire(&mut self) {
        let len = self.list.len();
        self.list
            .retain(|transaction| !(transaction.is_complete() && transaction.is_inspected == [true; 2]));
        if self.list.is_empty() && len != 0 {
            self.list = Vec::new();
        }
    }

    /// Returns the size in bytes of all buffers.
    pub fn size(&self) -> usize {
        self.list.iter().map(Transaction::size).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transactions_that_are_never_answered_use_bounded_memory() {
        let mut out = Transactions::default();
        for _ in 0..100 {
            let transaction = out.start(AppProtocol::Dcerpc);
            transaction.publish(Buffer::DceStubData, Direction::ToServer, vec![0; 1 << 20]);
        }
        assert!(out.size() <= LIVE_SIZE + (1 << 20), "{}", out.size());
        assert_eq!(out.evicted, 100 - out.list.len() as u64);
        assert_eq!(out.list.last().unwrap().id, 99);
    }

    #[test]
    fn a_list_without_transactions_takes_no_memory_and_one_with_one_takes_that_of_one() {
        let mut out = Transactions::default();
        let transaction = out.start(AppProtocol::Dns);
        transaction.progress = [Progress::Complete; 2];
        transaction.is_inspected = [true; 2];
        assert_eq!(out.heap(), size_of::<Transaction>());
        out.retire();
        assert_eq!((out.list.len(), out.heap()), (0, 0));
        assert_eq!(out.start(AppProtocol::Dns).id, 1);
    }
}
