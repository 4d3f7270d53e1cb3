//! Transactions: parsers write them; detection and the EVE records read them.
//!
//! A parser publishes each buffer once its bytes are known: a header line at once and complete, a body piece by piece.
//! Detection reads the instances of a buffer, each with the bytes so far and a flag that says if more can
//! follow.

mod counted;
mod index_ranges;
mod live;
mod view;

use millrace_ips_rules::buffers::Buffer;
use millrace_ips_rules::options::number::NumberField;

use super::AppProtocol;
pub use super::events::AppEvent;
use super::file::File;
use super::frames::FrameView;
use super::record::Record;
use super::text::{Piece, Span};
use crate::app::heap::{Heap, heap};
use crate::app::ranges::RangeParts;
use crate::detect;
use crate::flow::Direction;

use counted::Counted;
use index_ranges::BufferIndexRanges;
pub(super) use live::SLICE;
pub use live::{LIVE_SIZE, LIVE_TRANSACTIONS, Transactions};
pub use view::{BufferView, Progress};

/// A buffer that a parser has published.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Stored {
    buffer: Buffer,
    /// A second name of the same bytes, as `file.data` is for the body of an HTTP response.
    alias: Option<Buffer>,
    direction: Direction,
    /// The bytes. A buffer that grows has separate memory; the bytes of the others are in the text of the
    /// transaction.
    bytes: Piece,
    is_complete: bool,
    /// Bytes that an incomplete buffer must have before it is inspected.
    minimum: usize,
    /// The version of the transaction in which the buffer changed last.
    changed: u32,
    /// True if the header of DCE/RPC says that numbers are big-endian.
    is_big_endian: bool,
    /// True for a removed buffer that stays in the list, so that later buffers keep their indices.
    is_removed: bool,
}

heap!(Stored { bytes });

impl Stored {
    /// Notes that no byte follows.
    fn complete(&mut self, version: u32) {
        if !self.is_complete {
            self.is_complete = true;
            self.changed = version;
        }
    }
}

/// The anomaly of a flow some of whose bytes escape inspection.
pub(crate) const INCOMPLETE: AppEvent = "applayer_inspection_incomplete";

/// Largest number of distinct anomalies that a transaction keeps.
pub const EVENTS_PER_TRANSACTION: usize = 32;

/// Largest number of numbers in a transaction.
pub const NUMBERS_PER_TRANSACTION: usize = 1024;

/// Largest number of instances of all buffers in a transaction.
pub const BUFFERS_PER_TRANSACTION: usize = 4096;

/// One request and its answer, or the corresponding unit of a protocol without requests.
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
    /// True by [`Direction::index`] if a rule stores the files of the direction.
    pub(crate) stores: [bool; 2],
    /// True by [`Direction::index`] if detection has inspected the last state of the direction.
    pub is_inspected: [bool; 2],
    /// True once the transaction has parts that are not inspected, because there are too many.
    pub(crate) exceeds_limits: bool,
    /// True if recipients read the message in different ways. The rules are evaluated on it, and then in mode `ips` the
    /// policy for ambiguous messages applies.
    pub(crate) is_ambiguous: bool,
    /// True if the transaction is one of a further reading of bytes that another transaction has, too.
    pub(crate) is_reading: bool,
    /// Offset in the stream of the first byte of the message of each direction, by [`Direction::index`]; `None` if no parser
    /// tells it. Transactions with the same offset are readings of the same message.
    pub(crate) begin: [Option<u64>; 2],
    /// Direction of the request of an exchange whose messages rules test together: the transaction has the buffers and numbers of
    /// all messages in this direction. `None` if rules test each direction by itself.
    pub(crate) exchange: Option<Direction>,
    /// The frame that the transaction stands for; `None` for a transaction of a parser.
    pub(crate) frame: Option<FrameView>,
    /// True by [`Direction::index`] if bytes of the direction were parsed since its last inspection.
    pub(crate) is_new: [bool; 2],
    /// True if a rule disabled the records of the transaction.
    pub(crate) is_unlogged: bool,
    /// The ranges of a file that the response carries, if they are joined to others.
    pub(crate) range: Option<Box<RangeParts>>,
    /// True by [`Direction::index`] after the trailer of a message has added headers, until detection has
    /// inspected them.
    pub(crate) has_new_trailer: [bool; 2],
    /// A number that changes whenever a parser may have changed the transaction.
    version: u32,
    /// How often bytes of buffers were replaced by others, by [`Direction::index`].
    replaced: [u32; 2],
    /// The version for which the memory was computed, and the memory in bytes.
    charged: (u32, usize),
    counted: Counted,
    stored: Vec<Stored>,
    /// The parts of `stored` with the buffers of each direction.
    index_ranges: [BufferIndexRanges; 2],
    /// The bytes of short buffers.
    text: Vec<u8>,
    /// Numbers for conditions of rules, in the order of the message.
    numbers: Vec<(NumberField, Direction, u64)>,
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
            stores: [false; 2],
            is_inspected: [false; 2],
            exceeds_limits: false,
            is_ambiguous: false,
            is_reading: false,
            begin: [None; 2],
            exchange: None,
            frame: None,
            is_new: [false; 2],
            is_unlogged: false,
            range: None,
            has_new_trailer: [false; 2],
            version: 1,
            replaced: [0; 2],
            charged: (0, 0),
            counted: Counted::default(),
            stored: Vec::new(),
            index_ranges: [BufferIndexRanges::EMPTY; 2],
            text: Vec::new(),
            numbers: Vec::new(),
        }
    }

    /// Returns a number, never 0, that changes whenever a parser may have changed the transaction.
    pub(crate) fn version(&self) -> u32 {
        self.version
    }

    /// Returns a number that changes whenever bytes of a direction were replaced by others, which are not
    /// searched yet.
    pub(crate) fn replaced(&self, direction: Direction) -> u32 {
        self.replaced[direction.index()]
    }

    /// Returns the direction whose buffers and numbers rules test on a packet of a direction.
    pub(crate) fn tested(&self, packet: Direction) -> Direction {
        self.exchange.unwrap_or(packet)
    }

    /// Makes the transaction of a complete request one that waits for an answer, which rules test together with the request.
    pub(super) fn begin_exchange(&mut self, request: Direction) {
        let answer = request.reverse();
        self.exchange = Some(request);
        self.progress[request.index()] = Progress::Headers;
        self.progress[answer.index()] = Progress::Idle;
        self.is_inspected[answer.index()] = false;
    }

    /// Marks the transaction as changed.
    pub(super) fn touch(&mut self) {
        self.version = self.version.wrapping_add(1).max(1);
    }

    /// Adds a number for conditions of rules.
    pub(super) fn number(&mut self, field: NumberField, direction: Direction, value: impl Into<u64>) {
        match self.numbers.len() < NUMBERS_PER_TRANSACTION {
            true => self.numbers.push((field, direction, value.into())),
            false => self.exceeds_limits = true,
        }
    }

    /// Adds a number for conditions of rules, unless the transaction has it.
    pub(super) fn number_once(&mut self, field: NumberField, direction: Direction, value: impl Into<u64>) {
        let entry = (field, direction, value.into());
        if !self.numbers.contains(&entry) {
            self.number(field, direction, entry.2);
        }
    }

    /// Returns the numbers of a field in a direction.
    pub(crate) fn numbers(&self, field: NumberField, direction: Direction) -> Vec<u64> {
        let is_it = |(known, side, _): &&(NumberField, Direction, u64)| *known == field && *side == direction;
        self.numbers
            .iter()
            .filter(is_it)
            .map(|(_, _, value)| *value)
            .collect()
    }

    /// Returns the instances of a buffer in a direction that exist so far.
    pub fn buffers(&self, buffer: Buffer, direction: Direction) -> impl Iterator<Item = BufferView<'_>> {
        self.changed_buffers(buffer, direction, 0)
    }

    /// Returns the instances of a buffer in a direction that changed since a version; all of them for version 0.
    pub(crate) fn changed_buffers(
        &self,
        buffer: Buffer,
        direction: Direction,
        since: u32,
    ) -> impl Iterator<Item = BufferView<'_>> {
        // Versions wrap.
        let is_new = move |stored: &Stored| since == 0 || stored.changed.wrapping_sub(since) as i32 > 0;
        let is_it = move |stored: &&Stored| {
            stored.direction == direction
                && !stored.is_removed
                && (stored.buffer == buffer || stored.alias == Some(buffer))
                && is_new(stored)
        };
        let stored = self.index_ranges[direction.index()].of(buffer, &self.stored);
        stored.iter().filter(is_it).filter_map(|stored| {
            let bytes = stored.bytes.of(&self.text);
            let placed = self.range.as_ref().and_then(|range| {
                let is_it = |index: usize| {
                    self.stored
                        .get(index)
                        .is_some_and(|placed| core::ptr::eq(placed, stored))
                };
                range.placed_at(is_it)
            });
            (stored.is_complete || bytes.len() >= stored.minimum).then_some(BufferView {
                bytes,
                offset: placed.unwrap_or(0),
                is_complete: stored.is_complete,
                is_part: placed.is_some(),
                is_big_endian: stored.is_big_endian,
            })
        })
    }

    /// Notes the byte order of the numbers in a buffer, by its index.
    pub(crate) fn set_big_endian(&mut self, buffer: usize, is_big_endian: bool) {
        if let Some(stored) = self.stored.get_mut(buffer) {
            stored.is_big_endian = is_big_endian;
        }
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
    pub(super) fn heap(&mut self) -> usize {
        if self.charged.0 != self.version {
            let buffers = self.stored.heap() + self.text.heap();
            let numbers = self.numbers.capacity() * size_of::<(NumberField, Direction, u64)>();
            let heap = buffers + numbers + self.events.heap() + self.files.heap() + self.record.heap();
            let heap = heap + self.range.heap();
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
        } else {
            self.exceeds_limits = true;
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
        if room > 0 {
            stored.changed = self.version;
        }
        room
    }

    /// Returns the bytes of a buffer by its index; none if there is no such buffer.
    pub(super) fn bytes(&self, index: usize) -> &[u8] {
        self.stored
            .get(index)
            .map_or(&[], |stored| stored.bytes.of(&self.text))
    }

    /// Marks an open buffer as complete.
    pub(super) fn close(&mut self, index: usize) {
        if let Some(stored) = self.stored.get_mut(index) {
            stored.complete(self.version);
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

    /// Replaces or publishes the only instance of a buffer. Its bytes are the bytes of the buffer `first` and
    /// then the bytes that `write` appends.
    pub(super) fn compose(
        &mut self,
        buffer: Buffer,
        direction: Direction,
        first: Option<Buffer>,
        write: impl FnOnce(&mut Vec<u8>),
    ) {
        let known = self.only(buffer, direction);
        if known.is_none() && !self.has_room() {
            self.exceeds_limits = true;
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
        let mut range = self.index_ranges[direction.index()].range(buffer, self.stored.len());
        range.find(|index| {
            let stored = &self.stored[*index];
            stored.buffer == buffer && stored.direction == direction && !stored.is_removed
        })
    }

    fn replace_at(&mut self, index: usize, bytes: Vec<u8>) {
        let stored = &mut self.stored[index];
        let is_longer = bytes.starts_with(stored.bytes.of(&self.text));
        self.replaced[stored.direction.index()] += u32::from(!is_longer);
        // The text still contains the bytes with which the buffer was published.
        stored.bytes = Piece::Own(bytes);
        stored.changed = self.version;
    }

    /// Removes all buffers of a direction except those in `kept`, after an interim response.
    /// The indices of the remaining buffers, to which bytes may still be appended, stay valid.
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
        // The text is truncated, so many interim responses take only the memory of one.
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
            stored.complete(self.version);
        }
        for file in self.files.iter_mut().filter(|file| file.direction == direction) {
            file.close(false);
        }
    }

    /// Adds an anomaly, unless the transaction has it already or its list is full.
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
            self.exceeds_limits = true;
            return usize::MAX;
        }
        let ranges = &mut self.index_ranges[direction.index()];
        for buffer in [Some(buffer), alias].into_iter().flatten() {
            ranges.add(buffer, self.stored.len());
        }
        self.stored.push(Stored {
            buffer,
            alias,
            direction,
            bytes,
            is_complete,
            minimum,
            changed: self.version,
            is_big_endian: false,
            is_removed: false,
        });
        self.stored.len() - 1
    }

    /// Returns true if another buffer can be stored.
    fn has_room(&self) -> bool {
        self.stored.len() < BUFFERS_PER_TRANSACTION
    }
}
