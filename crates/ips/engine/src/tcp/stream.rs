//! Reassembly of one direction of a TCP connection.
//!
//! ```text
//!  offset  0 ........ base ......... inspected ......... next ...... [ pieces ] ... [ pieces ]
//!                     |--- look-back ---|---- new -------|   hole
//!                     |------------- buffer -------------|
//! ```
//!
//! Offsets count bytes from the first byte after the SYN in 64 bits; sequence numbers wrap, offsets do not. Bytes before
//! `next` were passed to the parser and will not change. Data that arrive in order in mode `ips` go straight to the buffer.

use crate::flow::Direction;
use crate::mode::Mode;
use crate::pieces::{Insertion, OverlapPolicy, Pieces};

use super::{StreamChunk, StreamWindow, TcpSettings, urgent};

/// Number of inspected bytes that are kept before the new ones.
pub(crate) const LOOK_BACK: usize = 2619;
/// Number of inspected bytes that mode `ids` inspects again with a chunk.
const CHUNK_LOOK_BACK: usize = 2560;

/// One direction of a connection.
#[derive(Debug)]
pub struct Stream {
    direction: Direction,
    /// Sequence number of offset 0.
    first_seq: u32,
    /// Bytes that are reassembled; 0 is no limit.
    depth: u64,
    /// Offset after the bytes that were passed to the parser.
    next: u64,
    /// Highest offset that was sent.
    sent: u64,
    /// Offset up to which the receiver acknowledged data.
    acked: u64,
    /// Offset of the FIN.
    fin: Option<u64>,
    /// The last result of [`Stream::known_end`].
    pub(super) known: u64,
    /// Data that wait for a hole to be filled, or for their acknowledgment.
    pieces: Pieces,
    /// Bytes from `base` to `next`, followed by `staged` bytes.
    buffer: Vec<u8>,
    base: u64,
    /// Bytes that arrived in order and are delivered with the next call of [`Stream::deliver`].
    staged: usize,
    /// Offset after the last byte that was inspected as raw data.
    inspected: u64,
    /// Offset at which the current message begins, as far as the parser has reported; in mode `ids` no window begins before it.
    message: u64,
    /// Offsets of urgent bytes, in order, that the parser does not get: those from `base` on.
    urgent: Vec<u64>,
    /// Bytes that were lost directly before `next`, and not yet reported.
    gap: u64,
    /// True once bytes were lost.
    has_gaps: bool,
    /// True if the parser knows that no byte follows.
    is_ended: bool,
}

/// The result of storing a segment's data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Stored {
    /// Overlaps of the new data with earlier data.
    pub(super) insertion: Insertion,
}

impl Stream {
    /// Returns a stream without data. `depth` is the number of bytes that are reassembled.
    pub(super) fn new(direction: Direction, first_seq: u32, depth: u64) -> Stream {
        Stream {
            direction,
            first_seq,
            depth,
            next: 0,
            sent: 0,
            acked: 0,
            fin: None,
            known: 0,
            pieces: Pieces::default(),
            buffer: Vec::new(),
            base: 0,
            staged: 0,
            inspected: 0,
            message: 0,
            urgent: Vec::new(),
            gap: 0,
            has_gaps: false,
            is_ended: false,
        }
    }

    /// Returns true if the stream has no memory for data.
    pub(super) fn needs_buffer(&self) -> bool {
        self.buffer.capacity() == 0
    }

    /// Gives an empty buffer to the stream.
    pub(super) fn give_buffer(&mut self, buffer: Vec<u8>) {
        if self.buffer.capacity() == 0 {
            self.buffer = buffer;
        }
    }

    /// Returns the buffer of the stream if its data are no longer needed: the flow has ended, or all data
    /// were inspected and acknowledged and none wait.
    pub(super) fn release(&mut self, has_ended: bool) -> Option<Vec<u8>> {
        let is_used = self.inspected < self.next || self.acked < self.next || !self.pieces.is_empty();
        if is_used && !has_ended || self.staged != 0 || self.buffer.capacity() == 0 {
            return None;
        }
        self.base = self.next;
        let mut buffer = core::mem::take(&mut self.buffer);
        buffer.clear();
        Some(buffer)
    }

    /// Returns the offset of a sequence number, nearest to the progress of the stream; `None` before offset
    /// 0.
    ///
    /// Progress is the larger of `next` and the acknowledged offset. Sent bytes count as progress only at the
    /// depth, where `next` stays while the connection continues. Before the depth, data that the receiver
    /// ignores must not shift offsets by the range of sequence numbers.
    #[inline]
    pub(super) fn offset_of(&self, seq: u32) -> Option<u64> {
        let sent = if self.is_at_depth() { self.sent } else { 0 };
        let near = self.next.max(self.acked).max(sent);
        let near_seq = self.first_seq.wrapping_add(near as u32);
        let distance = seq.wrapping_sub(near_seq) as i32;
        near.checked_add_signed(distance.into())
    }

    /// Returns the number of bytes between a sequence number before offset 0 and offset 0.
    pub(super) fn distance_before(&self, seq: u32) -> usize {
        self.first_seq.wrapping_sub(seq) as usize
    }

    /// Returns the sequence number of the first byte of the stream.
    pub fn first_seq(&self) -> u32 {
        self.first_seq
    }

    /// Returns true if data at a sequence number are not stored, or need not wait for earlier data.
    pub(super) fn needs_no_wait(&self, seq: u32) -> bool {
        self.is_at_depth() || self.offset_of(seq).is_none_or(|offset| offset <= self.next)
    }

    /// Returns the offset after the bytes that were passed to the parser.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// Returns the number of bytes that were sent, as far as they were seen (`stream_size`).
    pub fn sent(&self) -> u64 {
        self.sent
    }

    /// Returns the offset up to which the receiver acknowledged data.
    pub fn acked(&self) -> u64 {
        self.acked
    }

    /// Returns the offset of the FIN, if one was sent.
    pub fn fin(&self) -> Option<u64> {
        self.fin
    }

    /// Returns true if the FIN was sent, and all data before it were seen.
    pub(super) fn is_complete(&mut self) -> bool {
        self.fin.is_some_and(|fin| self.known_end() >= fin)
    }

    /// Returns true if no FIN was recorded, and one at `offset` would precede data that were acknowledged or seen in
    /// order.
    pub(super) fn is_old_fin(&mut self, offset: u64) -> bool {
        self.fin.is_none() && (offset + 1 < self.acked || offset < self.known_end())
    }

    /// Returns the offset of the first byte that was not seen. Each piece is visited by one call only.
    fn known_end(&mut self) -> u64 {
        let from = self.known.max(self.next + self.staged as u64);
        self.known = self.pieces.contiguous_end(from);
        self.known
    }

    /// Returns the memory that the stream has allocated, in bytes.
    pub(super) fn memory(&self) -> usize {
        self.pieces.memory() + self.buffer.capacity() + self.urgent.capacity() * size_of::<u64>()
    }

    /// Records the offset of an urgent byte.
    pub(super) fn add_urgent(&mut self, offset: u64) {
        if offset >= self.next
            && let Err(at) = self.urgent.binary_search(&offset)
        {
            self.urgent.insert(at, offset);
        }
    }

    /// Records an acknowledgment.
    pub(super) fn acknowledge(&mut self, offset: u64) {
        self.acked = self.acked.max(offset);
        self.sent = self.sent.max(self.fin.map_or(offset, |fin| offset.min(fin)));
    }

    /// Records a FIN. A second one at another offset is ignored.
    pub(super) fn finish(&mut self, offset: u64) {
        if self.fin.is_none() {
            self.fin = Some(offset);
            self.pieces.truncate(offset);
        }
    }

    /// Stores data at `offset`. Bytes that were passed to the parser are not stored again.
    pub(super) fn store(
        &mut self,
        offset: u64,
        bytes: &[u8],
        policy: OverlapPolicy,
        settings: &TcpSettings,
    ) -> Stored {
        let mut stored = Stored::default();
        self.sent = self.sent.max(offset + bytes.len() as u64);
        let limit = match (self.fin, self.depth) {
            (fin, 0) => fin.unwrap_or(u64::MAX),
            (fin, depth) => fin.unwrap_or(u64::MAX).min(depth),
        };
        let mut new = bytes;
        let mut at = offset;
        if at < self.next {
            let known = ((self.next - at) as usize).min(new.len());
            stored.insertion.overlaps = true;
            stored.insertion.conflicts |= self.differs(at, &new[..known]);
            new = &new[known..];
            at = self.next;
        }
        let room = limit.saturating_sub(at).min(new.len() as u64) as usize;
        if settings.mode == Mode::Ips && at == self.next && self.staged == 0 && self.pieces.is_empty() {
            self.buffer.extend_from_slice(&new[..room]);
            self.staged = room;
            return stored;
        }
        let insertion = self.pieces.insert(at, &new[..room], policy);
        stored.insertion.overlaps |= insertion.overlaps;
        stored.insertion.conflicts |= insertion.conflicts;
        stored
    }

    /// Returns true if `bytes` differ from stored bytes that were already passed to the parser.
    fn differs(&self, offset: u64, bytes: &[u8]) -> bool {
        let from = offset.max(self.base);
        let to = (offset + bytes.len() as u64).min(self.next);
        from < to
            && self.buffer[(from - self.base) as usize..(to - self.base) as usize]
                != bytes[(from - offset) as usize..(to - offset) as usize]
    }

    /// Copies the known bytes at `offset` over `bytes`; returns true if `bytes` changed.
    pub(super) fn overwrite(&self, offset: u64, bytes: &mut [u8]) -> bool {
        let mut is_changed = self.pieces.overwrite(offset, bytes);
        let from = offset.max(self.base);
        let to = (offset + bytes.len() as u64).min(self.next);
        if from < to {
            let known = &self.buffer[(from - self.base) as usize..(to - self.base) as usize];
            let there = &mut bytes[(from - offset) as usize..(to - offset) as usize];
            if known != there {
                there.copy_from_slice(known);
                is_changed = true;
            }
        }
        is_changed
    }

    /// Returns true if [`Stream::deliver`] may have something to pass on.
    #[inline]
    pub(super) fn has_news(&self) -> bool {
        self.staged > 0 || !self.pieces.is_empty() || !self.is_ended && self.is_at_end()
    }

    /// Passes the data that became inspectable to `parse`. With `is_last`, passes unacknowledged data, too.
    pub(super) fn deliver(
        &mut self,
        settings: &TcpSettings,
        is_last: bool,
        gaps: &mut u64,
        mut parse: impl FnMut(StreamChunk<'_>),
    ) {
        let limit = match settings.mode {
            Mode::Ids if !is_last => self.acked,
            _ => u64::MAX,
        };
        loop {
            let staged = core::mem::take(&mut self.staged);
            let from = self.buffer.len() - staged;
            let offset = self.next;
            self.next += staged as u64;
            if !self.pieces.is_empty() {
                let buffer = &mut self.buffer;
                let take = |bytes: &[u8]| buffer.extend_from_slice(bytes);
                self.next = self.pieces.take_contiguous(self.next, limit, take);
            }
            let is_end = !self.is_ended && self.is_at_end();
            if self.next > offset || is_end {
                self.is_ended |= is_end;
                let chunk = StreamChunk {
                    direction: self.direction,
                    offset,
                    bytes: &self.buffer[from..],
                    gap_before: self.gap,
                    is_end,
                };
                self.gap = match self.urgent.is_empty() {
                    true => {
                        parse(chunk);
                        0
                    }
                    false => urgent::pass(chunk, &self.urgent, &mut parse),
                };
            }
            // A hole is skipped once the receiver has acknowledged its bytes: the receiver got them, but the
            // engine did not. At the end, the receiver may have got them, too.
            let Some(first) = self.pieces.first_offset() else {
                break;
            };
            if first <= self.next || first > self.acked && !is_last || self.has_uninspected() {
                break;
            }
            *gaps += 1;
            self.has_gaps = true;
            self.gap += first - self.next;
            self.buffer.clear();
            self.base = first;
            self.inspected = first;
            self.next = first;
        }
    }

    /// Returns true if bytes of the stream were lost.
    pub(crate) fn has_gaps(&self) -> bool {
        self.has_gaps
    }

    /// Returns true if raw data that were passed to the parser were not inspected yet.
    pub(super) fn has_uninspected(&self) -> bool {
        self.inspected < self.next
    }

    /// Returns true if data wait after a hole that will not be filled.
    pub(super) fn waits_behind_hole(&self) -> bool {
        self.pieces
            .first_offset()
            .is_some_and(|first| first > self.next && first <= self.acked)
    }

    /// Returns true if data wait after a hole.
    pub(super) fn has_data_behind_hole(&self) -> bool {
        self.pieces.first_offset().is_some_and(|first| first > self.next)
    }

    /// Returns true if no byte can follow: FIN or depth is reached.
    fn is_at_end(&self) -> bool {
        self.fin == Some(self.next) || self.is_at_depth()
    }

    /// Returns true if all bytes that are reassembled were passed to the parser.
    fn is_at_depth(&self) -> bool {
        self.depth != 0 && self.next >= self.depth
    }

    /// Passes the end of the stream to `parse`, unless it was passed before.
    pub(super) fn end(&mut self, mut parse: impl FnMut(StreamChunk<'_>)) {
        if !self.is_ended {
            self.is_ended = true;
            parse(StreamChunk {
                direction: self.direction,
                offset: self.next,
                bytes: &[],
                gap_before: core::mem::take(&mut self.gap),
                is_end: true,
            });
        }
    }

    /// Returns true if enough raw data wait for inspection. `flushes` asks for all waiting data, and
    /// `repeats` for data that were inspected before.
    #[inline]
    pub(super) fn is_due(&self, settings: &TcpSettings, flushes: bool, repeats: bool) -> bool {
        let waiting = self.next - self.inspected;
        let chunk = settings.chunk[self.direction.index()] as u64;
        // A FIN by itself does not end the wait: the connection may continue in the other direction.
        let is_at_depth = self.is_ended && self.fin.is_none();
        let at_once = settings.mode == Mode::Ips || flushes || is_at_depth || self.waits_behind_hole();
        waiting > 0 && (at_once || waiting >= chunk) || repeats && self.next > self.base
    }

    /// Takes the buffer out for inspection, so that the flow can change meanwhile. [`Stream::put_back`]
    /// returns it.
    pub(super) fn take_for_inspection(&mut self, mode: Mode, flushes: bool) -> InspectionBuffer {
        let message = self.message.saturating_sub(self.base) as usize;
        if mode == Mode::Ids && flushes {
            self.message = self.next;
        }
        InspectionBuffer {
            urgent: self.urgent.clone(),
            offset: self.base,
            bytes: core::mem::take(&mut self.buffer),
            message,
            new_from: (self.inspected - self.base) as usize,
            is_end: self.is_ended,
            is_chunk: mode == Mode::Ids,
        }
    }

    /// Returns the data that the stream holds, as a window on those that were passed to the parser.
    pub(crate) fn held(&self) -> StreamWindow<'_> {
        let size = self.next.saturating_sub(self.base) as usize;
        StreamWindow {
            offset: self.base,
            bytes: &self.buffer[..size.min(self.buffer.len())],
            new_from: self.inspected.saturating_sub(self.base) as usize,
            is_end: self.is_ended,
            is_chunk: false,
        }
    }

    /// Puts the buffer back after inspection, and frees the bytes that are no longer needed.
    #[inline]
    pub(super) fn put_back(&mut self, buffer: InspectionBuffer, mode: Mode) {
        self.buffer = buffer.bytes;
        self.inspected = self.next;
        let mut keep_from = self.inspected.saturating_sub(LOOK_BACK as u64);
        if mode == Mode::Ips {
            // Unacknowledged bytes are kept, so that a retransmission is compared with the first copy.
            keep_from = keep_from.min(self.acked);
        }
        let unused = keep_from.saturating_sub(self.base) as usize;
        // A move of the remaining bytes costs time, so it is done only when it halves the buffer.
        if unused > self.buffer.len() / 2 {
            self.buffer.drain(..unused);
            self.base += unused as u64;
            if !self.urgent.is_empty() {
                self.urgent.retain(|offset| *offset >= self.base);
            }
            if self.buffer.capacity() > 4 * (self.buffer.len() + LOOK_BACK) {
                self.buffer.shrink_to(self.buffer.len() + LOOK_BACK);
            }
        }
    }
}

/// The buffer of a stream during inspection.
#[derive(Debug)]
pub(crate) struct InspectionBuffer {
    /// Offsets in the stream of urgent bytes.
    urgent: Vec<u64>,
    offset: u64,
    bytes: Vec<u8>,
    message: usize,
    new_from: usize,
    is_end: bool,
    is_chunk: bool,
}

impl InspectionBuffer {
    /// Returns a window without the urgent bytes in it; `None` if there are none.
    #[inline]
    pub(crate) fn without_urgent(&self, window: &StreamWindow<'_>) -> Option<urgent::Reduced> {
        match self.urgent.is_empty() {
            true => None,
            false => urgent::reduced(window, &self.urgent),
        }
    }

    /// Returns all data of the buffer as a window.
    pub(crate) fn all(&self) -> StreamWindow<'_> {
        StreamWindow {
            offset: self.offset,
            bytes: &self.bytes,
            new_from: self.new_from,
            is_end: self.is_end,
            is_chunk: self.is_chunk,
        }
    }

    /// Returns the window that raw inspection sees.
    ///
    /// Older bytes than the look-back may be stored for retransmissions. Inspecting them with each segment
    /// would cost time.
    pub(crate) fn window(&self) -> StreamWindow<'_> {
        let look_back = match self.is_chunk {
            true => CHUNK_LOOK_BACK,
            false => LOOK_BACK,
        };
        let from = self
            .new_from
            .saturating_sub(look_back)
            .max(self.message.min(self.new_from));
        StreamWindow {
            offset: self.offset + from as u64,
            bytes: &self.bytes[from..],
            new_from: self.new_from - from,
            is_end: self.is_end,
            is_chunk: self.is_chunk,
        }
    }
}
