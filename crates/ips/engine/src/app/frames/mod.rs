//! Frames: parts of a stream or a datagram that a protocol gives a meaning, as the record of TLS and its header.
//!
//! ```text
//!  bytes ─▶ head ──units──▶ a unit of known size, and the frames in it
//!             │                     │
//!             └── too few bytes     └─▶ open frames take bytes ──▶ complete ──▶ detection
//! ```
//!
//! A flow has frames only if a rule asks for one of its protocol (`frame:tls.pdu`); the others have no work and no memory for
//! them. [`Units`] finds the boundaries from headers, lines and sizes alone, beside the parser of the protocol and independent of
//! it, so a message that the parser refuses still has its frame.
//!
//! A frame has the form of a transaction with one buffer, so that rules are evaluated on it in the same way.

mod binary;
mod http;
mod line;
mod records;
mod text;

use millrace_ips_rules::buffers::Buffer;

use super::heap::Heap;
use super::transaction::Progress;
use super::{AppProtocol, Transaction};
use crate::flow::Direction;
use crate::tcp::StreamChunk;

/// Largest number of bytes of a frame that are kept and inspected; what follows is skipped.
const KEPT: usize = 64 << 10;
/// Largest number of bytes that wait for the size of a unit.
const HEAD: usize = 1024;
/// Number of complete frames at which parsing pauses until they are inspected.
const PAUSE_LEN: usize = 256;
/// Size in bytes of complete frames at which parsing pauses.
const PAUSE_SIZE: usize = 256 << 10;
/// Largest number of complete frames that wait for their inspection: those of a slice of bytes may follow the pause.
const WAITING: usize = PAUSE_LEN + 2 * super::transaction::SLICE;
/// Largest number of frames of a direction that are incomplete at a time. Frames nest at most five times.
const OPEN: usize = 8;

/// The kinds of frames that rules ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FrameSet(u128);

impl FrameSet {
    /// All kinds.
    pub const ALL: FrameSet = FrameSet(u128::MAX);

    /// Returns the bit of a kind; none if the buffer is no frame.
    fn bit(kind: Buffer) -> u128 {
        match kind.is_frame() {
            true => 1u128 << (kind as usize - Buffer::FrameHttp1Request as usize).min(127),
            false => 0,
        }
    }

    /// Adds a kind.
    pub(crate) fn add(&mut self, kind: Buffer) {
        self.0 |= FrameSet::bit(kind);
    }

    /// Returns true if rules ask for a kind.
    fn has(self, kind: Buffer) -> bool {
        self.0 & FrameSet::bit(kind) != 0
    }

    /// Returns the kinds between two.
    fn between(self, first: Buffer, last: Buffer) -> FrameSet {
        let below = |kind| FrameSet::bit(kind) - 1;
        FrameSet(self.0 & (below(last) << 1 | 1) & !below(first))
    }

    fn is_empty(self) -> bool {
        self.0 == 0
    }
}

/// The unit that begins at a position of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// More bytes are needed, at most [`HEAD`].
    More,
    /// The number of bytes up to the next unit, which may be more than have come.
    Unit(u64),
    /// The bytes are not of the protocol, or no more frames follow.
    Stop,
}

/// The boundaries of a protocol.
trait Units: core::fmt::Debug + Send + Heap {
    /// Finds the unit that begins with the bytes, and the frames that begin in it. A unit whose frames have no known size may be
    /// as long as the bytes: the next call then goes on.
    fn unit(&mut self, direction: Direction, bytes: &[u8], found: &mut Found<'_>) -> Step;
}

/// The frames that a unit begins and ends.
#[derive(Debug)]
struct Found<'a> {
    wanted: FrameSet,
    open: &'a mut Vec<Open>,
    /// Offset in the stream of the first byte of the unit.
    at: u64,
    /// Number of the next frame of the flow.
    next: &'a mut u64,
    direction: Direction,
    app: AppProtocol,
    /// True if the bytes are a datagram.
    is_datagram: bool,
}

impl Found<'_> {
    /// Adds a frame from an offset in the unit on; without a size, until [`Found::close`] ends it.
    fn frame(&mut self, kind: Buffer, from: u64, size: impl Into<Option<u64>>) {
        if !self.wanted.has(kind) || self.open.len() >= OPEN {
            return;
        }
        let begin = self.at + from;
        let mut transaction = Transaction::new(*self.next, self.app);
        *self.next += 1;
        let side = self.direction.index();
        transaction.open(kind, None, self.direction, 0);
        transaction.progress[side] = Progress::Started;
        transaction.is_inspected[1 - side] = true;
        transaction.frame = Some(FrameView {
            id: transaction.id,
            kind,
            direction: self.direction,
            begin: (!self.is_datagram).then_some(begin),
            size: size.into(),
            is_complete: false,
        });
        self.open.push(Open { transaction, begin });
    }

    /// Ends the frames of a kind that have no size, a number of bytes behind the beginning of the unit.
    fn close(&mut self, kind: Buffer, behind: u64) {
        let end = self.at + behind;
        for open in self.open.iter_mut() {
            if let Some(frame) = &mut open.transaction.frame
                && frame.kind == kind
            {
                frame.size.get_or_insert(end.saturating_sub(open.begin));
            }
        }
    }
}

/// A frame, as alerts show it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameView {
    /// Number of the frame in the flow, from 0, among those that rules inspect.
    pub id: u64,
    pub kind: Buffer,
    pub direction: Direction,
    /// Offset in the stream of the first byte; `None` in a datagram.
    pub begin: Option<u64>,
    /// Size in bytes; `None` while it is not known.
    pub size: Option<u64>,
    /// True if all bytes have come.
    pub is_complete: bool,
}

/// A frame that has not all its bytes.
#[derive(Debug)]
struct Open {
    transaction: Transaction,
    /// Offset in the stream of the first byte.
    begin: u64,
}

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
    is_stopped: bool,
    /// Bytes that come again: a parser gave them back.
    repeated: usize,
}

/// The frames of a flow.
#[derive(Debug)]
pub(crate) struct Frames {
    wanted: FrameSet,
    app: AppProtocol,
    units: Box<dyn Units>,
    sides: [Side; 2],
    /// Complete frames that are not inspected, by [`Direction::index`].
    done: [Vec<Transaction>; 2],
    /// Size in bytes of the complete frames.
    size: usize,
    next: u64,
    is_datagram: bool,
    /// True once a frame was lost before its inspection.
    pub(super) has_lost: bool,
}

/// Returns the boundaries of a protocol, and the first and last kind of its frames.
fn units_of(app: AppProtocol, is_datagram: bool) -> Option<(Box<dyn Units>, Buffer, Buffer)> {
    use Buffer::*;
    let binary = |unit: binary::Unit| -> Box<dyn Units> { Box::new(binary::Stateless(unit)) };
    Some(match (app, is_datagram) {
        (AppProtocol::Http, false) => (
            Box::<http::Http1>::default(),
            FrameHttp1Request,
            FrameHttp1Response,
        ),
        (AppProtocol::Http2, false) => (Box::<records::Http2>::default(), FrameHttp2Pdu, FrameHttp2Data),
        (AppProtocol::Smb, false) => (Box::<records::Smb>::default(), FrameSmbNbssPdu, FrameSmbSmb3Data),
        (AppProtocol::Telnet, false) => (Box::<text::Telnet>::default(), FrameTelnetPdu, FrameTelnetData),
        (AppProtocol::Tls, false) => (Box::<records::Tls>::default(), FrameTlsPdu, FrameTlsSsl2Pdu),
        (AppProtocol::Sip, _) => (Box::<text::Sip>::default(), FrameSipPdu, FrameSipResponseBody),
        (AppProtocol::Nfs, _) => (Box::<records::Nfs>::default(), FrameNfsRpcPdu, FrameNfs4Status),
        (AppProtocol::Dns, _) => (binary(binary::dns), FrameDnsPdu, FrameDnsPdu),
        (AppProtocol::Ssh, false) => (
            Box::<records::Ssh>::default(),
            FrameSshRecordPdu,
            FrameSshRecordData,
        ),
        (AppProtocol::Quic, true) => (binary(binary::quic), FrameQuicPdu, FrameQuicData),
        (AppProtocol::Smtp, false) => (
            Box::<text::Smtp>::default(),
            FrameSmtpCommandLine,
            FrameSmtpResponseLine,
        ),
        (AppProtocol::Ftp, false) => (
            Box::<text::Ftp>::default(),
            FrameFtpCommandLine,
            FrameFtpResponseLine,
        ),
        (AppProtocol::Dcerpc, false) => (binary(binary::dcerpc), FrameDcerpcPdu, FrameDcerpcData),
        (AppProtocol::Modbus, false) => (binary(binary::modbus), FrameModbusPdu, FrameModbusPdu),
        (AppProtocol::Mqtt, false) => (binary(binary::mqtt), FrameMqttPdu, FrameMqttData),
        (AppProtocol::Enip, _) => (binary(binary::enip), FrameEnipPdu, FrameEnipData),
        (AppProtocol::Ldap, _) => (binary(binary::ldap), FrameLdapPdu, FrameLdapPdu),
        (AppProtocol::Pgsql, false) => (Box::<records::Pgsql>::default(), FramePgsqlPdu, FramePgsqlPdu),
        (AppProtocol::WebSocket, false) => (
            binary(binary::websocket),
            FrameWebSocketHeader,
            FrameWebSocketData,
        ),
        _ => return None,
    })
}

impl Frames {
    /// Returns the frames of a flow of a protocol; `None` if rules ask for none of them.
    pub(super) fn new(app: AppProtocol, is_datagram: bool, wanted: FrameSet) -> Option<Frames> {
        if wanted.is_empty() {
            return None;
        }
        let (units, first, last) = units_of(app, is_datagram)?;
        let wanted = wanted.between(first, last);
        (!wanted.is_empty()).then(|| Frames {
            wanted,
            app,
            units,
            sides: Default::default(),
            done: Default::default(),
            size: 0,
            next: 0,
            is_datagram,
            has_lost: false,
        })
    }

    /// Continues with the frames of the protocol to which the flow has changed; those that are complete stay.
    pub(super) fn after(mut self, before: Frames) -> Frames {
        (self.done, self.size, self.next) = (before.done, before.size, before.next);
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
            self.sides[side] = Side::default();
        }
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
        let mut waiting = core::mem::take(&mut self.sides[side].head);
        let known = waiting.len();
        if known > 0 {
            waiting.extend_from_slice(bytes);
            bytes = &waiting;
        }
        let used = self.consume(chunk.direction, bytes);
        if !self.sides[side].is_stopped {
            self.sides[side].head = bytes.get(used..).unwrap_or_default().to_vec();
        }
        if self.is_datagram {
            self.end(chunk.direction);
        }
    }

    /// Passes over bytes that did not come. Frames that have some of them are dropped; the next unit is found if its
    /// beginning came.
    fn skip(&mut self, side: usize, gap: u64) {
        let state = &mut self.sides[side];
        let at = state.at.unwrap_or_default();
        state.open.retain(|open| open.begin >= at + gap);
        match gap <= state.left {
            true => (state.left, state.at) = (state.left - gap, Some(at + gap)),
            false => {
                state.is_stopped = true;
                state.open.clear();
            }
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
                    next: &mut self.next,
                    direction,
                    app: self.app,
                    is_datagram: self.is_datagram,
                };
                match self.units.unit(direction, rest, &mut found) {
                    Step::More if rest.len() < HEAD => return used,
                    Step::Unit(size) => state.left = size.max(1),
                    Step::More | Step::Stop => {
                        // An incomplete frame has no end that is known.
                        state.is_stopped = true;
                        state.open.clear();
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
        let state = &mut self.sides[side];
        let at = state.at.unwrap_or_default();
        let mut index = 0;
        while let Some(open) = state.open.get(index) {
            let size = open.transaction.frame.and_then(|frame| frame.size);
            if size.is_none_or(|size| open.begin + size > at) {
                index += 1;
                continue;
            }
            let open = state.open.remove(index);
            if self.done[side].len() >= WAITING {
                self.has_lost = true;
                continue;
            }
            let transaction = closed(open.transaction, side);
            self.size += transaction.size();
            self.done[side].push(transaction);
        }
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
        self.sides[side].open.clear();
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

    /// Returns the frames of a direction that are not inspected to their end.
    pub(crate) fn pending(&mut self, direction: Direction) -> impl Iterator<Item = &mut Transaction> {
        let side = direction.index();
        let open = self.sides[side].open.iter_mut().map(|open| &mut open.transaction);
        self.done[side].iter_mut().chain(open)
    }

    /// Removes the complete frames of a direction, which are inspected.
    pub(crate) fn remove_inspected(&mut self, direction: Direction) {
        let inspected = core::mem::take(&mut self.done[direction.index()]);
        self.size -= inspected.iter().map(Transaction::size).sum::<usize>();
    }

    /// Returns the bytes that the frames have allocated.
    pub(super) fn heap(&mut self) -> usize {
        let inner = |list: &mut Vec<Transaction>| {
            list.capacity() * size_of::<Transaction>() + list.iter_mut().map(Transaction::heap).sum::<usize>()
        };
        let done: usize = self.done.iter_mut().map(inner).sum();
        let open = |side: &mut Side| {
            let inner: usize = side.open.iter_mut().map(|open| open.transaction.heap()).sum();
            side.head.heap() + side.open.capacity() * size_of::<Open>() + inner
        };
        let open: usize = self.sides.iter_mut().map(open).sum();
        size_of::<Frames>() + done + open + size_of_val(&*self.units) + self.units.heap()
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
