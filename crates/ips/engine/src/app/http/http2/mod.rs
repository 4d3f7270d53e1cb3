//! HTTP/2 in clear (RFC 9113): by prior knowledge, or after the upgrade of a connection of HTTP/1.1. Each stream is a transaction
//! with the buffers of HTTP/1, so rules over `http` hold on both.
//!
//! ```text
//!  preface (client) | frame | frame | …
//!  frame:  length (3) | type | flags | stream (4) | payload
//!
//!  HEADERS, CONTINUATION ─▶ header block ─HPACK─▶ headers ─▶ buffers of the transaction
//!  DATA ───────────────────────────────────────────────────▶ body of the transaction
//! ```
//!
//! Bounds: a header block has at most [`BLOCK_SIZE`] bytes and its fields at most [`HEADERS_SIZE`], the table of a decoder at most
//! [`TABLE_SIZE`], and a connection at most [`limits::STREAMS`] streams without end. Payloads of DATA are not kept, and any other frame
//! of more than [`BLOCK_SIZE`] bytes is skipped or, if it has headers, refused. After lost bytes a direction is not parsed: its table of
//! headers is not known any more.

mod frame;
mod header;
mod hpack;
mod limits;
mod stream;
#[cfg(test)]
mod tests;
mod upgrade;

use millrace_ips_rules::options::number::NumberField;

use super::step::HEADERS_SIZE;
use crate::app::AppSettings;
use crate::app::heap::heap;
use crate::app::parser::{Outcome, Parser};
use crate::app::record::Fields;
use crate::app::transaction::Transactions;
use crate::flow::Direction;
use crate::tcp::StreamChunk;
use header::{Frame, HEADER, flag, kind};
use hpack::HeaderDecoder;
use limits::TABLE_SIZE;
use stream::Streams;
pub(in crate::app) use upgrade::{UpgradeRequest, detect_server};

/// The first bytes of a client (RFC 9113, section 3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Largest size of a header block, and of a payload that is kept.
const BLOCK_SIZE: usize = 64 << 10;

/// The position in the bytes of a direction.
#[derive(Debug, Clone, Copy)]
enum State {
    /// In the preface of the client.
    Preface,
    /// At the beginning of a frame.
    Header,
    /// In a payload that is kept until it is complete.
    Payload(Frame),
    /// In the payload of DATA: bytes of data and of padding that are left.
    Data {
        frame: Frame,
        left: usize,
        padding: usize,
    },
    /// In a payload that is skipped.
    Skipped { left: usize },
    /// The rest cannot be parsed.
    Failed,
}

/// A direction.
#[derive(Debug)]
struct Side {
    state: State,
    /// Bytes that wait for more.
    pending: Vec<u8>,
    decoder: HeaderDecoder,
    /// A header block that CONTINUATION goes on with, and its stream.
    block: Vec<u8>,
    continued: Option<Frame>,
    /// Numbers of the frames of that block, for rules, and values, for records.
    noted: Vec<(NumberField, u64)>,
    values: Fields,
}

heap!(Side {
    pending,
    decoder,
    block,
    values
});

impl Side {
    fn new(direction: Direction) -> Side {
        Side {
            state: match direction {
                Direction::ToServer => State::Preface,
                Direction::ToClient => State::Header,
            },
            pending: Vec::new(),
            decoder: HeaderDecoder::default(),
            block: Vec::new(),
            continued: None,
            noted: Vec::new(),
            values: Fields::default(),
        }
    }
}

/// The parser of a connection.
#[derive(Debug)]
pub(in crate::app) struct Http2 {
    sides: [Side; 2],
    streams: Streams,
    /// True if rules ask for frames that are no headers and no data.
    notes_frames: bool,
    /// True if transactions become records.
    keeps_records: bool,
}

heap!(Http2 { sides, streams });

impl Http2 {
    pub(in crate::app) fn new(settings: AppSettings) -> Http2 {
        Http2 {
            sides: Direction::BOTH.map(Side::new),
            streams: Streams::new(settings),
            notes_frames: settings.asks.http2_frames,
            keeps_records: settings.keeps_records,
        }
    }

    /// Returns the parser of a connection of HTTP/1.1 that was upgraded by a request, and begins the stream of the request.
    pub(in crate::app) fn upgraded(
        settings: AppSettings,
        request: UpgradeRequest,
        out: &mut Transactions,
    ) -> Http2 {
        let mut parser = Http2::new(settings);
        let side = core::mem::replace(&mut out.side, Direction::ToServer.index());
        parser.streams.upgrade(request, out);
        out.side = side;
        parser
    }

    /// Parses as many bytes of a direction as are complete; returns their number, and `None` if they are not of the protocol.
    fn consume(&mut self, direction: Direction, bytes: &[u8], out: &mut Transactions) -> Option<usize> {
        let mut at = 0;
        while at < bytes.len() {
            match self.step(direction, &bytes[at..], out)? {
                0 => break,
                used => at += used,
            }
        }
        Some(at)
    }

    /// Parses the next part of the bytes of a direction; returns how many were used, 0 if more are needed, and `None` if they are not of the protocol.
    fn step(&mut self, direction: Direction, bytes: &[u8], out: &mut Transactions) -> Option<usize> {
        let side = &mut self.sides[direction.index()];
        match side.state {
            State::Failed => Some(bytes.len()),
            State::Preface => {
                let known = bytes.len().min(PREFACE.len());
                if bytes[..known] != PREFACE[..known] {
                    out.raise("http2.invalid_client_magic");
                    return None;
                }
                if known < PREFACE.len() {
                    return Some(0);
                }
                side.state = State::Header;
                Some(known)
            }
            State::Header => match bytes.first_chunk() {
                None => Some(0),
                Some(header) => {
                    self.begin(direction, Frame::read(header), out)?;
                    Some(HEADER)
                }
            },
            State::Payload(frame) => {
                let Some(payload) = bytes.get(..frame.size) else {
                    return Some(0);
                };
                side.state = State::Header;
                self.frame(direction, frame, payload, out)?;
                Some(frame.size)
            }
            State::Data { frame, left, padding } => {
                let mut used = 0;
                let (mut left, mut padding) = (left, padding);
                if frame.has(flag::PADDED) && padding == usize::MAX {
                    // The first byte is the size of the padding (section 6.1).
                    padding = usize::from(*bytes.first()?);
                    left = left.checked_sub(1 + padding).or_else(|| {
                        out.raise("http2.invalid_frame_data");
                        None
                    })?;
                    used = 1;
                }
                let data = &bytes[used..];
                let data = &data[..data.len().min(left)];
                if !data.is_empty() {
                    self.streams.data(direction, frame.stream, data, out);
                    left -= data.len();
                    used += data.len();
                }
                let skipped = padding.min(bytes.len() - used);
                if left == 0 {
                    padding -= skipped;
                    used += skipped;
                }
                let is_over = left == 0 && padding == 0;
                if is_over && frame.has(flag::END_STREAM) {
                    self.streams.end(direction, frame.stream, true, out);
                }
                self.sides[direction.index()].state = match is_over {
                    true => State::Header,
                    false => State::Data { frame, left, padding },
                };
                Some(used)
            }
            State::Skipped { left } => {
                let used = left.min(bytes.len());
                side.state = match left - used {
                    0 => State::Header,
                    left => State::Skipped { left },
                };
                Some(used)
            }
        }
    }

    /// Decides how the payload of a frame is read.
    fn begin(&mut self, direction: Direction, frame: Frame, out: &mut Transactions) -> Option<()> {
        let side = &mut self.sides[direction.index()];
        let belongs = side
            .continued
            .is_none_or(|first| frame.kind == kind::CONTINUATION && frame.stream == first.stream);
        if !belongs || side.continued.is_none() && frame.kind == kind::CONTINUATION {
            // No other frame is between the parts of a header block (section 6.10).
            out.raise("http2.invalid_frame_header");
            return None;
        }
        let has_headers = matches!(
            frame.kind,
            kind::HEADERS | kind::PUSH_PROMISE | kind::CONTINUATION
        );
        side.state = match frame.kind {
            kind::DATA if frame.stream == 0 => {
                out.raise("http2.data_stream_zero");
                return None;
            }
            kind::DATA if frame.size == 0 => State::Header,
            kind::DATA => State::Data {
                frame,
                left: frame.size,
                padding: match frame.has(flag::PADDED) {
                    true => usize::MAX,
                    false => 0,
                },
            },
            _ if has_headers && side.block.len() + frame.size > BLOCK_SIZE => {
                out.raise("http2.reassembly_limit_reached");
                return None;
            }
            _ if has_headers => State::Payload(frame),
            kind::RST_STREAM | kind::SETTINGS if frame.size <= BLOCK_SIZE => State::Payload(frame),
            kind::GOAWAY | kind::PRIORITY if self.keeps_records && frame.size <= BLOCK_SIZE => {
                State::Payload(frame)
            }
            _ if self.notes_frames && frame.size <= BLOCK_SIZE => State::Payload(frame),
            _ if frame.size == 0 => State::Header,
            _ => State::Skipped { left: frame.size },
        };
        if frame.kind == kind::DATA {
            self.note(direction, frame, &[], out);
        }
        if frame.kind == kind::DATA && frame.size == 0 && frame.has(flag::END_STREAM) {
            self.streams.end(direction, frame.stream, true, out);
        }
        let side = &mut self.sides[direction.index()];
        match side.state {
            State::Payload(frame) if frame.size == 0 => {
                side.state = State::Header;
                self.frame(direction, frame, &[], out)
            }
            _ => Some(()),
        }
    }

    /// Handles a frame with its payload.
    fn frame(
        &mut self,
        direction: Direction,
        frame: Frame,
        payload: &[u8],
        out: &mut Transactions,
    ) -> Option<()> {
        let has_headers = matches!(
            frame.kind,
            kind::HEADERS | kind::PUSH_PROMISE | kind::CONTINUATION
        );
        if !has_headers {
            self.note(direction, frame, payload, out);
        }
        match frame.kind {
            kind::SETTINGS if !frame.has(flag::ACK) => self.settings(direction, payload),
            kind::RST_STREAM => {
                for side in Direction::BOTH {
                    self.streams.end(side, frame.stream, false, out);
                }
            }
            kind::HEADERS | kind::PUSH_PROMISE | kind::CONTINUATION => {
                let fragment = match fragment(frame, payload) {
                    Some(fragment) => fragment,
                    None => {
                        out.raise("http2.invalid_frame_data");
                        return None;
                    }
                };
                let side = &mut self.sides[direction.index()];
                side.block.extend_from_slice(fragment);
                let first = *side.continued.get_or_insert(frame);
                if self.notes_frames && side.noted.len() < frame::NOTED {
                    side.noted.extend(frame::numbers(frame, payload));
                }
                if self.keeps_records && frame.kind == kind::HEADERS {
                    side.values = frame::values(frame, payload);
                }
                if frame.has(flag::END_HEADERS) {
                    side.continued = None;
                    self.headers(direction, first, out)?;
                }
            }
            _ => {}
        }
        Some(())
    }

    /// Handles settings: the largest table that the other end may use (SETTINGS_HEADER_TABLE_SIZE, section 6.5.2).
    fn settings(&mut self, direction: Direction, payload: &[u8]) {
        const TABLE: u16 = 1;
        let other = &mut self.sides[direction.reverse().index()];
        for setting in payload.chunks_exact(6) {
            let value = setting[2..]
                .iter()
                .fold(0, |value, byte| value << 8 | usize::from(*byte));
            if u16::from_be_bytes([setting[0], setting[1]]) == TABLE {
                other.decoder.allow(value.min(TABLE_SIZE));
            }
        }
    }

    /// Handles a complete header block.
    fn headers(&mut self, direction: Direction, frame: Frame, out: &mut Transactions) -> Option<()> {
        let side = &mut self.sides[direction.index()];
        let block = core::mem::take(&mut side.block);
        let Some(fields) = side.decoder.decode(&block, HEADERS_SIZE) else {
            out.raise("http2.invalid_header");
            return None;
        };
        if fields.is_cut {
            out.raise("http2.reassembly_limit_reached");
        }
        if frame.kind != kind::HEADERS {
            self.streams.promise(direction, frame.stream, &fields.list, out);
            self.note_headers(direction, frame, &block, out);
        }
        // A promised request comes from the server, which also answers it: it shows nothing of the client.
        if frame.kind == kind::HEADERS {
            self.streams.headers(direction, frame.stream, &fields.list, out);
            if self.keeps_records {
                let sizes = frame::size_updates(&block);
                self.streams
                    .record_headers(direction, frame.stream, &sizes, &fields.list, out);
            }
            self.note_headers(direction, frame, &block, out);
            if frame.has(flag::END_STREAM) {
                self.streams.end(direction, frame.stream, true, out);
            }
        }
        Some(())
    }
}

impl Http2 {
    /// Notes the numbers of a frame for rules, and its values for records.
    fn note(&mut self, direction: Direction, frame: Frame, payload: &[u8], out: &mut Transactions) {
        let numbers = match self.notes_frames {
            true => frame::numbers(frame, payload),
            false => Vec::new(),
        };
        let values = match self.keeps_records {
            true => frame::values(frame, payload),
            false => Fields::default(),
        };
        self.streams.note(direction, frame.stream, &numbers, values, out);
    }

    /// Notes the numbers and the values of the frames of a header block, once its stream is known.
    fn note_headers(&mut self, direction: Direction, frame: Frame, block: &[u8], out: &mut Transactions) {
        let side = &mut self.sides[direction.index()];
        let values = core::mem::take(&mut side.values);
        let mut numbers = core::mem::take(&mut side.noted);
        if self.notes_frames {
            numbers.extend(frame::size_updates(block));
        }
        self.streams.note(direction, frame.stream, &numbers, values, out);
    }
}

/// Returns the part of the header block in the payload of a frame: without padding, priority and promised stream.
fn fragment(frame: Frame, payload: &[u8]) -> Option<&[u8]> {
    let mut rest = payload;
    if frame.kind == kind::CONTINUATION {
        return Some(rest);
    }
    let mut padding = 0;
    if frame.has(flag::PADDED) {
        let (first, tail) = rest.split_first()?;
        (padding, rest) = (usize::from(*first), tail);
    }
    let before = match frame.kind {
        kind::PUSH_PROMISE => 4,
        _ if frame.has(flag::PRIORITY) => 5,
        _ => 0,
    };
    rest = rest.get(before..)?;
    rest.get(..rest.len().checked_sub(padding)?)
}

impl Parser for Http2 {
    fn data(&mut self, chunk: StreamChunk<'_>, out: &mut Transactions) -> Outcome {
        let index = chunk.direction.index();
        let side = &mut self.sides[index];
        if chunk.gap_before > 0 {
            side.state = State::Failed;
            side.pending = Vec::new();
            self.streams.gap(chunk.direction, chunk.gap_before, out);
        }
        let mut pending = core::mem::take(&mut self.sides[index].pending);
        let used = match pending.is_empty() {
            true => {
                let used = self.consume(chunk.direction, chunk.bytes, out);
                pending.extend_from_slice(&chunk.bytes[used.unwrap_or_default()..]);
                used
            }
            false => {
                pending.extend_from_slice(chunk.bytes);
                let used = self.consume(chunk.direction, &pending, out);
                pending.drain(..used.unwrap_or_default());
                used
            }
        };
        let side = &mut self.sides[index];
        match used {
            Some(_) => {
                side.pending = pending;
                Outcome::Continue
            }
            None => {
                side.state = State::Failed;
                Outcome::Failed
            }
        }
    }

    fn end(&mut self, direction: Direction, out: &mut Transactions) {
        self.streams.end_all(direction, out);
    }

    fn is_strict(&self) -> bool {
        true
    }
}
