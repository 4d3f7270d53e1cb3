//! Frames: parts of a stream or a datagram that a protocol gives a meaning, as the record of TLS and its header.
//!
//! ```text
//!  bytes ─▶ head ──units──▶ a unit of known size, and the frames in it
//!             │                     │
//!             └── too few bytes     └─▶ open frames take bytes ──▶ complete ──▶ detection
//! ```
//!
//! A flow has frames only if a rule asks for one of its protocol (`frame:tls.pdu`), or if frames become events; the others have
//! no work and no memory for them. [`Units`] finds the boundaries from headers, lines and sizes alone, beside the parser of the protocol and independent of
//! it, so a message that the parser refuses still has its frame.
//!
//! A frame has the form of a transaction with one buffer, so that rules are evaluated on it in the same way. The frame `stream`
//! has all bytes of a direction of a connection, as far as none is lost.

mod binary;
mod enip;
mod http;
mod kinds;
mod line;
mod records;
mod report;
mod rfb;
mod set;
mod text;
mod units;
mod view;

pub use report::FrameReport;
pub use set::FrameSet;
pub use view::FrameView;

use millrace_ips_rules::buffers::Buffer;
use millrace_ips_rules::frames;

use super::heap::Heap;
use super::transaction::Progress;
use super::{AppProtocol, Transaction};
use crate::flow::Direction;
use crate::tcp::StreamChunk;

use units::{AHEAD, Found, HEAD, Next, Open, Step, Units};

/// Largest number of bytes of a frame that are kept and inspected; what follows is skipped.
const KEPT: usize = 64 << 10;
/// Number of complete frames at which parsing pauses until they are inspected.
const PAUSE_LEN: usize = 256;
/// Size in bytes of complete frames at which parsing pauses.
const PAUSE_SIZE: usize = 256 << 10;
/// Largest number of complete frames that wait for their inspection: those of a slice of bytes may follow the pause.
const WAITING: usize = PAUSE_LEN + 2 * super::transaction::SLICE;

/// The frames of one direction.
#[derive(Debug, Default)]
struct Side {
    /// Offset in the stream of the next byte; `None` before the first one.
    at: Option<u64>,
    /// Bytes that wait for the size of their unit.
    head: Vec<u8>,
    /// Bytes of the unit that are still to come.
    left: u64,
    open: Vec<Open>,
    /// The frame of the stream, and the number of its bytes; `None` before the first byte, and once it has ended.
    stream: Option<(Open, u64)>,
    has_begun: bool,
    /// Number of the last frame.
    id: u64,
    is_stopped: bool,
    /// Bytes that come again: a parser gave them back.
    repeated: usize,
}

/// The frames of a flow.
#[derive(Debug)]
pub(crate) struct Frames {
    wanted: FrameSet,
    /// The kind of the frame of the stream, if one is asked for.
    stream: Option<Buffer>,
    app: AppProtocol,
    units: Box<dyn Units>,
    sides: [Side; 2],
    /// Complete frames that are not inspected, by [`Direction::index`].
    done: [Vec<Transaction>; 2],
    /// Size in bytes of the complete frames.
    size: usize,
    /// Frames that have ended and are not reported; `None` if frames do not become events.
    reports: Option<Vec<FrameReport>>,
    is_datagram: bool,
    /// True once a frame was lost before its inspection.
    pub(super) has_lost: bool,
}

impl Frames {
    /// Returns the frames of a flow of a protocol; `None` if neither rules nor events ask for one of them. `is_reported` says that
    /// frames become events.
    pub(super) fn new(
        app: AppProtocol,
        is_datagram: bool,
        wanted: FrameSet,
        is_reported: bool,
    ) -> Option<Frames> {
        let wanted = if is_reported { FrameSet::ALL } else { wanted };
        if wanted.is_empty() {
            return None;
        }
        let (units, first, last) = kinds::units_of(app, is_datagram)?;
        let wanted = wanted.between(first, last);
        let is_stream = |kind: &Buffer| frames::name(*kind).is_some_and(|(_, name)| name == "stream");
        let stream = Some(last).filter(|last| !is_datagram && is_stream(last) && wanted.has(*last));
        (!wanted.is_empty()).then(|| Frames {
            wanted,
            stream,
            app,
            units,
            sides: Default::default(),
            done: Default::default(),
            size: 0,
            reports: is_reported.then(Vec::new),
            is_datagram,
            has_lost: false,
        })
    }

    /// Continues with the frames of the protocol to which the flow has changed; those that are complete stay.
    pub(super) fn after(mut self, before: Frames) -> Frames {
        (self.done, self.size, self.reports) = (before.done, before.size, before.reports);
        for (side, before) in self.sides.iter_mut().zip(before.sides) {
            side.id = before.id;
        }
        self
    }

    /// Finds frames in the next bytes of a direction.
    pub(super) fn data(&mut self, chunk: &StreamChunk<'_>) {
        let side = chunk.direction.index();
        let mut bytes = chunk.bytes;
        let again = self.sides[side].repeated.min(bytes.len());
        self.sides[side].repeated -= again;
        bytes = &bytes[again..];
        if self.is_datagram {
            let id = self.sides[side].id;
            self.sides[side] = Side {
                id,
                ..Side::default()
            };
        }
        self.stream(chunk, bytes, again);
        if self.sides[side].is_stopped || bytes.is_empty() && chunk.gap_before == 0 {
            return;
        }
        self.sides[side].at.get_or_insert(chunk.offset);
        if chunk.gap_before > 0 {
            self.skip(side, chunk.gap_before);
            if self.sides[side].is_stopped {
                return;
            }
        }
        self.find(chunk.direction, bytes);
        let mut turn = chunk.direction;
        while self.units.takes_turns() && !self.sides[turn.reverse().index()].head.is_empty() {
            // A message of one direction may be what bytes of the other wait for, and so on.
            turn = turn.reverse();
            let waiting = self.sides[turn.index()].head.len();
            self.find(turn, &[]);
            if self.sides[turn.index()].head.len() == waiting {
                break;
            }
        }
        if self.is_datagram {
            self.end(chunk.direction);
        }
    }

    /// Gives bytes to the frame of the stream. It ends where bytes are lost.
    fn stream(&mut self, chunk: &StreamChunk<'_>, bytes: &[u8], again: usize) {
        let Some(kind) = self.stream else {
            return;
        };
        let side = chunk.direction.index();
        if chunk.gap_before > 0
            && let Some((open, _)) = self.sides[side].stream.take()
        {
            report::add(&mut self.reports, &open.transaction, self.app);
        }
        if bytes.is_empty() {
            return;
        }
        let state = &mut self.sides[side];
        if !core::mem::replace(&mut state.has_begun, true) && chunk.gap_before == 0 {
            let mut next = Next {
                id: &mut state.id,
                direction: chunk.direction,
                app: self.app,
            };
            state.stream = Some((next.frame(kind, chunk.offset + again as u64, None), 0));
        }
        if let Some((open, size)) = &mut state.stream {
            open.transaction.touch();
            open.transaction.append(0, bytes, KEPT);
            *size += bytes.len() as u64;
        }
    }

    /// Finds frames in the bytes that wait and those behind them.
    fn find(&mut self, direction: Direction, bytes: &[u8]) {
        let side = direction.index();
        if self.sides[side].is_stopped {
            return;
        }
        let mut waiting = core::mem::take(&mut self.sides[side].head);
        let bytes = match waiting.is_empty() {
            true => bytes,
            false => {
                waiting.extend_from_slice(bytes);
                &waiting
            }
        };
        let used = self.consume(direction, bytes);
        if !self.sides[side].is_stopped {
            self.sides[side].head = bytes.get(used..).unwrap_or_default().to_vec();
        }
    }

    /// Passes over bytes that did not come. Frames that have some of them are dropped; the next unit is found if its
    /// beginning came.
    fn skip(&mut self, side: usize, gap: u64) {
        let state = &mut self.sides[side];
        let at = state.at.unwrap_or_default();
        let is_lost = |open: &mut Open| open.begin < at + gap || gap > state.left;
        for open in state.open.extract_if(.., is_lost) {
            report::add(&mut self.reports, &open.transaction, self.app);
        }
        match gap <= state.left {
            true => (state.left, state.at) = (state.left - gap, Some(at + gap)),
            false => state.is_stopped = true,
        }
    }

    /// Takes units from the bytes, and returns the number of bytes that were used.
    fn consume(&mut self, direction: Direction, bytes: &[u8]) -> usize {
        let side = direction.index();
        let mut used = 0;
        while used < bytes.len() {
            let state = &mut self.sides[side];
            let rest = &bytes[used..];
            let at = state.at.unwrap_or_default();
            if state.left == 0 {
                let mut found = Found {
                    wanted: self.wanted,
                    open: &mut state.open,
                    at,
                    next: Next {
                        id: &mut state.id,
                        direction,
                        app: self.app,
                    },
                    is_datagram: self.is_datagram,
                };
                match self.units.unit(direction, rest, &mut found) {
                    Step::More if rest.len() < HEAD => return used,
                    Step::Turn if rest.len() < AHEAD => return used,
                    Step::Unit(size) => state.left = size.max(1),
                    Step::More | Step::Turn | Step::Stop => {
                        // An incomplete frame has no end that is known.
                        state.is_stopped = true;
                        for open in state.open.drain(..) {
                            report::add(&mut self.reports, &open.transaction, self.app);
                        }
                        return bytes.len();
                    }
                }
            }
            let size = usize::try_from(state.left).unwrap_or(usize::MAX).min(rest.len());
            feed(&mut state.open, at, &rest[..size]);
            state.left -= size as u64;
            state.at = Some(at + size as u64);
            used += size;
            self.complete(side);
        }
        used
    }

    /// Moves the frames that have all their bytes to those that are complete.
    fn complete(&mut self, side: usize) {
        let mut state = &mut self.sides[side];
        let at = state.at.unwrap_or_default();
        let mut index = 0;
        while let Some(open) = state.open.get(index) {
            let size = open.transaction.frame.and_then(|frame| frame.size);
            if size.is_none_or(|size| open.begin + size > at) {
                index += 1;
                continue;
            }
            let open = state.open.remove(index);
            self.keep(side, open.transaction);
            state = &mut self.sides[side];
        }
    }

    /// Adds a frame that has all its bytes to those that wait for their inspection.
    fn keep(&mut self, side: usize, transaction: Transaction) {
        let transaction = closed(transaction, side);
        if self.done[side].len() >= WAITING {
            self.has_lost = true;
            report::add(&mut self.reports, &transaction, self.app);
            return;
        }
        self.size += transaction.size();
        self.done[side].push(transaction);
    }

    /// Ends a direction: frames without a size end here.
    pub(super) fn end(&mut self, direction: Direction) {
        let side = direction.index();
        let state = &mut self.sides[side];
        let at = state.at.unwrap_or_default();
        state.is_stopped = true;
        state.head = Vec::new();
        for open in &mut state.open {
            if let Some(frame) = &mut open.transaction.frame {
                frame.size.get_or_insert(at.saturating_sub(open.begin));
            }
        }
        self.complete(side);
        for open in self.sides[side].open.drain(..) {
            report::add(&mut self.reports, &open.transaction, self.app);
        }
        if let Some((mut open, size)) = self.sides[side].stream.take() {
            if let Some(frame) = &mut open.transaction.frame {
                frame.size = Some(size);
            }
            self.keep(side, open.transaction);
        }
    }

    /// Ends both directions, before the flow changes its protocol.
    pub(super) fn stop(&mut self) {
        Direction::BOTH
            .into_iter()
            .for_each(|direction| self.end(direction));
    }

    /// Notes that bytes of a direction will come again.
    pub(super) fn repeat(&mut self, direction: Direction, size: usize) {
        self.sides[direction.index()].repeated += size;
    }

    /// Returns true if parsing must pause for an inspection.
    pub(super) fn is_full(&self) -> bool {
        self.done[0].len() + self.done[1].len() >= PAUSE_LEN || self.size > PAUSE_SIZE
    }

    /// Returns true if complete frames of a direction wait for their inspection.
    pub(crate) fn has_complete(&self, direction: Direction) -> bool {
        !self.done[direction.index()].is_empty()
    }

    /// Returns the frames of a direction that are not inspected to their end.
    pub(crate) fn pending(&mut self, direction: Direction) -> impl Iterator<Item = &mut Transaction> {
        let side = direction.index();
        let state = &mut self.sides[side];
        let open = state.open.iter_mut().map(|open| &mut open.transaction);
        let stream = state.stream.as_mut().map(|(open, _)| &mut open.transaction);
        self.done[side].iter_mut().chain(open).chain(stream)
    }

    /// Returns the frames of a direction that are not inspected to their end, as they are.
    pub(crate) fn views(&self, direction: Direction) -> impl Iterator<Item = &Transaction> {
        let side = direction.index();
        let state = &self.sides[side];
        let open = state.open.iter().map(|open| &open.transaction);
        let stream = state.stream.as_ref().map(|(open, _)| &open.transaction);
        self.done[side].iter().chain(open).chain(stream)
    }

    /// Removes the complete frames of a direction, which are inspected.
    pub(crate) fn remove_inspected(&mut self, direction: Direction) {
        let inspected = core::mem::take(&mut self.done[direction.index()]);
        self.size -= inspected.iter().map(Transaction::size).sum::<usize>();
        for frame in &inspected {
            report::add(&mut self.reports, frame, self.app);
        }
    }

    /// Returns the frames that have ended since the last call, if frames become events.
    pub(crate) fn take_reports(&mut self) -> Vec<FrameReport> {
        self.reports.as_mut().map(core::mem::take).unwrap_or_default()
    }

    /// Returns the bytes that the frames have allocated.
    pub(super) fn heap(&mut self) -> usize {
        let inner = |list: &mut Vec<Transaction>| {
            list.capacity() * size_of::<Transaction>() + list.iter_mut().map(Transaction::heap).sum::<usize>()
        };
        let done: usize = self.done.iter_mut().map(inner).sum();
        let open = |side: &mut Side| {
            let inner: usize = side.open.iter_mut().map(|open| open.transaction.heap()).sum();
            let stream = side.stream.as_mut();
            let stream = stream.map_or(0, |(open, _)| open.transaction.heap());
            side.head.heap() + side.open.capacity() * size_of::<Open>() + inner + stream
        };
        let open: usize = self.sides.iter_mut().map(open).sum();
        let reports = self.reports.as_mut().map_or(0, |reports| reports.heap());
        size_of::<Frames>() + done + open + reports + size_of_val(&*self.units) + self.units.heap()
    }
}

/// Gives bytes to the open frames.
fn feed(open: &mut [Open], at: u64, bytes: &[u8]) {
    for frame in open {
        let end = frame
            .transaction
            .frame
            .and_then(|view| view.size)
            .map(|size| frame.begin + size);
        let from = frame.begin.saturating_sub(at).min(bytes.len() as u64) as usize;
        let to = end.map_or(bytes.len(), |end| {
            end.saturating_sub(at).min(bytes.len() as u64) as usize
        });
        if from < to {
            frame.transaction.touch();
            frame.transaction.append(0, &bytes[from..to], KEPT);
        }
    }
}

/// Returns a frame that has all its bytes.
fn closed(mut transaction: Transaction, side: usize) -> Transaction {
    transaction.touch();
    transaction.close(0);
    transaction.progress[side] = Progress::Complete;
    if let Some(frame) = &mut transaction.frame {
        frame.is_complete = true;
    }
    transaction
}

#[cfg(test)]
mod tests;
