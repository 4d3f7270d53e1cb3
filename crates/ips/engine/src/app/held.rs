//! Bytes that wait until the transactions before them are inspected.
//!
//! ```text
//!  chunk ─▶ slice ─▶ parser ─▶ transactions        up to 256 that are not inspected, then the rest of the chunk is held
//!    ▲                             │
//!    └── held ◀── resume ◀── inspection
//! ```
//!
//! One chunk may have thousands of small messages: a segment that fills a hole delivers all data after it. The list of
//! transactions is bounded, so without a pause the first ones would make room for the last ones before rules see them.

use super::transaction::SLICE;
use super::transport::TCP;
use super::waiting::Held;
use super::{AppState, Mode};
use crate::flow::{Direction, FlowKey};
use crate::tcp::StreamChunk;

impl AppState {
    /// Returns true if bytes are held.
    pub fn is_paused(&self) -> bool {
        !self.held.is_empty()
    }

    /// Returns true if parsing must pause for an inspection of the transactions or of the frames.
    fn is_full(&self) -> bool {
        self.transactions.is_full() || self.frames.as_ref().is_some_and(|frames| frames.is_full())
    }

    /// Holds a chunk until [`AppState::resume`] parses it.
    pub(super) fn hold(&mut self, chunk: StreamChunk<'_>) {
        self.held.push(Held {
            direction: chunk.direction,
            offset: chunk.offset,
            bytes: chunk.bytes.to_vec(),
            parsed: 0,
            gap_before: chunk.gap_before,
            is_end: chunk.is_end,
        });
    }

    /// Holds bytes that a parser gave back, to be parsed before all that follow.
    pub(super) fn hold_rest(&mut self, rest: [(Direction, Vec<u8>); 2]) {
        for (direction, bytes) in &rest {
            if let Some(frames) = &mut self.frames {
                frames.repeat(*direction, bytes.len());
            }
        }
        let rest = rest.into_iter().filter(|(_, bytes)| !bytes.is_empty());
        self.held.extend(rest.map(|(direction, bytes)| Held {
            direction,
            offset: 0,
            bytes,
            parsed: 0,
            gap_before: 0,
            is_end: false,
        }));
    }

    /// Parses a chunk slice by slice, and holds the rest once too many transactions are not inspected.
    #[cold]
    pub(super) fn parse_in_slices(&mut self, key: &FlowKey, mut chunk: StreamChunk<'_>) {
        // The caller ends the direction, after all bytes of the chunk.
        chunk.is_end = false;
        loop {
            if self.is_paused() || self.is_full() {
                self.hold(chunk);
                return;
            }
            let (slice, rest) = chunk.bytes.split_at(chunk.bytes.len().min(SLICE));
            let slice = StreamChunk {
                bytes: slice,
                ..chunk
            };
            // The previous slice may have changed the protocol.
            match &self.mode {
                Mode::Parsing(_) | Mode::Done => self.parse_slice(key, slice),
                Mode::Probing { .. } => self.receive(key, slice),
            }
            if rest.is_empty() {
                return;
            }
            chunk = StreamChunk {
                offset: chunk.offset + SLICE as u64,
                bytes: rest,
                gap_before: 0,
                ..chunk
            };
        }
    }

    /// Parses held bytes, if those of `direction` are first, until too many transactions are not inspected. Returns false
    /// if there are no such bytes, or if the transactions of the other direction must be inspected first.
    pub(crate) fn resume(&mut self, key: &FlowKey, direction: Direction) -> bool {
        let is_next = self.held.first().is_some_and(|held| held.direction == direction);
        if !is_next || self.is_full() {
            return false;
        }
        let mut held = self.held.remove(0);
        // Bytes that are held during this call precede the later ones.
        let mut later = core::mem::take(&mut self.held);
        loop {
            let rest = &held.bytes[held.parsed..];
            let size = rest.len().min(SLICE);
            let is_last = size == rest.len();
            let slice = StreamChunk {
                direction,
                offset: held.offset + held.parsed as u64,
                bytes: &rest[..size],
                gap_before: core::mem::take(&mut held.gap_before),
                is_end: held.is_end && is_last,
            };
            self.stream(key, slice);
            if is_last {
                break;
            }
            held.parsed += size;
            if self.is_paused() || self.is_full() {
                self.held.push(held);
                break;
            }
        }
        self.held.append(&mut later);
        true
    }

    /// Marks all transactions as inspected, and parses all held bytes. The caller does not inspect them: it has no
    /// rules, or a rule passed the flow.
    pub fn skip_inspection(&mut self, key: &FlowKey) {
        loop {
            for direction in Direction::BOTH {
                self.transactions.set_inspected(direction);
                if let Some(frames) = &mut self.frames {
                    frames.remove_inspected(direction);
                }
            }
            self.transactions.trim();
            let Some(direction) = self.held.first().map(|held| held.direction) else {
                return;
            };
            self.resume(key, direction);
        }
    }

    /// Returns true if a chunk can be parsed at once: it is not of TCP, or it is at most a slice, no bytes are held,
    /// and the list of transactions has room.
    pub(super) fn fits(&self, key: &FlowKey, chunk: &StreamChunk<'_>) -> bool {
        chunk.bytes.len() <= SLICE && self.held.is_empty() && !self.is_full() || key.protocol != TCP
    }
}
