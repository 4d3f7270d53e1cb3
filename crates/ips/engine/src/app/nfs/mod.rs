//! NFS 2 to 4 over ONC RPC (RFC 1094, RFC 1813, RFC 8881; RFC 5531): a call with its reply is a transaction, and so is each
//! direction of a file that is read or written.
//!
//! ```text
//!  stream ─ fragments ─▶ record ─┬─ call ───▶ transaction, name ──────┐
//!                                │                                    ├─▶ names of handles
//!                                └─ reply ──▶ status, handle ─────────┘        │
//!                                      WRITE calls and READ replies ──▶ bytes ─┴─▶ open files (open_files.rs)
//! ```
//!
//! A WRITE call with bytes has no transaction beside that of its file.

mod bytes;
mod compound;
mod files;
mod handles;
mod operations;
mod procedures;
mod records;
mod rpc;
#[cfg(test)]
mod tests;
mod waiting;
mod walks;
mod xdr;

use std::collections::VecDeque;

use millrace_ips_rules::buffers::Buffer;

use super::framed::{KEPT, fields};
use super::open_files::OpenFiles;
use super::parser::{Outcome, Parser};
use super::record::{Fields, Record, Value};
use super::transaction::{Progress, Transactions};
use super::{AppProtocol, AppSettings, Transport};
use crate::app::heap::{Heap, heap};
use crate::flow::Direction;
use crate::tcp::StreamChunk;
use bytes::Bytes;
use handles::{Handle, Name, Names};
use procedures::Effect;
use records::{numbers, record, rpc_of};
use rpc::Call;
use waiting::{Answer, COMPOUND, Waiting};
use walks::{CallWalk, Read, ReplyWalk};
use xdr::Found;

/// Largest number of calls that wait for replies.
const WAITING: usize = 256;
/// Size of the mark in front of a fragment in bytes, and its bit for the last one of a record (RFC 5531, section 11).
const MARK: usize = 4;
const LAST_FRAGMENT: u32 = 1 << 31;

/// The use of the next bytes of a record.
#[derive(Debug, Default)]
enum State {
    /// They are kept until the record ends, or as many as are kept have come.
    #[default]
    Collect,
    /// They are bytes of a file, which are passed on as they come.
    Bytes(Box<Bytes>),
    Skip,
}

impl Heap for State {
    fn heap(&self) -> usize {
        match self {
            State::Bytes(bytes) => bytes.heap(),
            State::Collect | State::Skip => 0,
        }
    }
}

/// The record in progress of a direction of a stream.
#[derive(Debug, Default)]
struct Side {
    /// The first bytes of a mark.
    mark: Vec<u8>,
    /// True between the mark and the end of a fragment.
    is_in_fragment: bool,
    /// Bytes of the fragment that are still to come.
    left: usize,
    is_last: bool,
    part: Vec<u8>,
    state: State,
    has_failed: bool,
}

heap!(Side { mark, part, state });

/// The messages in progress of which a part was read.
#[derive(Debug, Default)]
struct Walks {
    call: Option<CallWalk>,
    reply: Option<ReplyWalk>,
}

heap!(Walks { call, reply });

impl Walks {
    fn has(&self, direction: Direction) -> bool {
        match direction {
            Direction::ToServer => self.call.is_some(),
            Direction::ToClient => self.reply.is_some(),
        }
    }
}

/// The parser of a flow.
#[derive(Debug)]
pub(super) struct Nfs {
    transport: Transport,
    sides: [Side; 2],
    walks: Walks,
    waiting: VecDeque<Waiting>,
    /// True once a call was removed because too many wait.
    has_overflowed: bool,
    names: Names,
    open: OpenFiles,
}

heap!(Nfs {
    sides,
    walks,
    waiting,
    names,
    open
});

impl Nfs {
    pub(super) fn new(transport: Transport, settings: AppSettings) -> Nfs {
        Nfs {
            transport,
            sides: Default::default(),
            walks: Walks::default(),
            waiting: VecDeque::new(),
            has_overflowed: false,
            names: Names::default(),
            // Clients of NFS write and read in any order, and again after a timeout.
            open: OpenFiles::new(AppProtocol::Nfs, None, settings),
        }
    }

    /// Adds bytes of a stream, which are marks and fragments.
    fn stream(&mut self, side: &mut Side, direction: Direction, mut bytes: &[u8], out: &mut Transactions) {
        while !bytes.is_empty() {
            if side.is_in_fragment {
                let (front, rest) = bytes.split_at(side.left.min(bytes.len()));
                self.fragment(side, direction, front, out);
                (side.left, bytes) = (side.left - front.len(), rest);
            } else {
                let (front, rest) = bytes.split_at((MARK - side.mark.len()).min(bytes.len()));
                side.mark.extend_from_slice(front);
                bytes = rest;
                let Some(mark) = side.mark.first_chunk::<MARK>() else {
                    return;
                };
                let mark = u32::from_be_bytes(*mark);
                side.mark.clear();
                side.is_in_fragment = true;
                side.is_last = mark & LAST_FRAGMENT != 0;
                side.left = (mark & !LAST_FRAGMENT) as usize;
            }
            self.end_fragment(side, direction, out);
        }
    }

    /// Ends the fragment if all of its bytes have come, and the record behind its last fragment.
    fn end_fragment(&mut self, side: &mut Side, direction: Direction, out: &mut Transactions) {
        if side.is_in_fragment && side.left == 0 {
            side.is_in_fragment = false;
            if side.is_last {
                if matches!(side.state, State::Collect) {
                    let part = core::mem::take(&mut side.part);
                    self.part(direction, &part, true, out);
                    side.part = part;
                }
                self.end_record(side, direction, out);
            }
        }
    }

    /// Adds bytes of a record.
    fn fragment(&mut self, side: &mut Side, direction: Direction, mut bytes: &[u8], out: &mut Transactions) {
        while !bytes.is_empty() {
            match &mut side.state {
                State::Skip => return,
                State::Collect => {
                    let (front, rest) = bytes.split_at((KEPT - side.part.len()).min(bytes.len()));
                    side.part.extend_from_slice(front);
                    bytes = rest;
                    if side.part.len() == KEPT {
                        let mut part = core::mem::take(&mut side.part);
                        side.state = self.part(direction, &part, false, out);
                        part.clear();
                        side.part = part;
                    }
                }
                State::Bytes(left) => {
                    let (front, rest) = bytes.split_at(left.left.min(bytes.len()));
                    let padding = left.padding.min(rest.len());
                    left.padding -= padding;
                    bytes = &rest[padding..];
                    if self.pass(left, front, direction, out) {
                        side.state = self.behind_bytes(direction);
                    }
                }
            }
        }
    }

    /// Returns what follows behind the bytes of a file.
    fn behind_bytes(&self, direction: Direction) -> State {
        match self.walks.has(direction) {
            true => State::Collect,
            false => State::Skip,
        }
    }

    /// Ends a record: a message of which a part was read has no other operations.
    fn end_record(&mut self, side: &mut Side, direction: Direction, out: &mut Transactions) {
        side.part.clear();
        side.state = State::Collect;
        self.end_walk(direction, out);
    }

    fn end_walk(&mut self, direction: Direction, out: &mut Transactions) {
        match direction {
            Direction::ToServer => {
                if let Some(walk) = self.walks.call.take() {
                    self.end_call(walk, out);
                }
            }
            Direction::ToClient => {
                if let Some(walk) = self.walks.reply.take() {
                    self.end_reply(&walk, out);
                }
            }
        }
    }

    /// Notes that bytes of a stream are lost. Those of a file leave a hole; those of a message end it.
    fn lose(&mut self, side: &mut Side, direction: Direction, lost: u64, out: &mut Transactions) {
        if !side.is_in_fragment || lost > side.left as u64 {
            // The next record cannot be found.
            self.end_record(side, direction, out);
            side.has_failed = true;
            return;
        }
        let lost = lost as usize;
        side.left -= lost;
        side.state = match core::mem::take(&mut side.state) {
            State::Bytes(mut bytes) if lost <= bytes.left => {
                bytes.skip(lost);
                match self.pass(&mut bytes, b"", direction, out) {
                    true => self.behind_bytes(direction),
                    false => State::Bytes(bytes),
                }
            }
            _ => State::Skip,
        };
        self.end_fragment(side, direction, out);
    }

    /// Reads a part of a message. `is_end` is false if other bytes of the message follow.
    fn part(&mut self, direction: Direction, bytes: &[u8], is_end: bool, out: &mut Transactions) -> State {
        let read = match direction {
            Direction::ToServer => match self.walks.call.take() {
                Some(walk) => Some(self.call_operations(walk, bytes, is_end, out)),
                None => self.call(bytes, is_end, out),
            },
            Direction::ToClient => match self.walks.reply.take() {
                Some(walk) => Some(self.reply_operations(walk, bytes, is_end, out)),
                None => self.reply(bytes, is_end, out),
            },
        };
        match read {
            Some(Read::Bytes(bytes)) => State::Bytes(Box::new(bytes)),
            Some(Read::Whole) | None => State::Skip,
        }
    }

    /// Waits for the reply to a call.
    fn wait(&mut self, waiting: Waiting) {
        if self.waiting.len() >= WAITING {
            self.waiting.pop_front();
            self.has_overflowed = true;
        }
        self.waiting.push_back(waiting);
    }

    /// Reads a call; `None` if the bytes are none.
    fn call(&mut self, bytes: &[u8], is_end: bool, out: &mut Transactions) -> Option<Read> {
        let direction = Direction::ToServer;
        let call = rpc::call(bytes)?;
        if call.version >= 4 && call.procedure == COMPOUND {
            return Some(self.compound(&call, is_end, out));
        }
        let effect = procedures::effect(call.version, call.procedure);
        let mut found = Found::default();
        // Arguments that do not have their form leave the call without what follows in them.
        let _ = found.walk(
            &mut { call.arguments },
            procedures::arguments(call.version, call.procedure),
        );
        let handle = found.handle.map(Handle::of);
        let known = handle.map(|handle| self.names.of(handle.key)).unwrap_or_default();
        let mut waiting = Waiting {
            identifier: call.identifier,
            transaction: None,
            protection: call.protection,
            procedure: (call.version, call.procedure),
            answer: Answer::Other,
        };
        if effect == Effect::Writes
            && let (Some(handle), Some(data)) = (handle, found.data.first())
            && data.bytes.len() + data.missing > 0
        {
            let file = (handle, data.offset.unwrap_or_default());
            let rpc = call.record();
            let rest = self.bytes(file, &known, data, (waiting.procedure, &rpc), direction, out);
            waiting.transaction = self.open.transaction(handle.key, direction).map(|(id, _)| id);
            self.wait(waiting);
            return rest.map(Read::Bytes);
        }
        waiting.answer = match (effect, handle, found.names.first()) {
            (Effect::Names, _, Some(name)) => Answer::Handle(Name::new(name)),
            (Effect::Reads, Some(handle), _) => {
                Answer::Bytes(handle, found.offset.unwrap_or_default(), known.clone())
            }
            (Effect::Commits, Some(handle), _) => Answer::Commit(handle),
            _ => Answer::Other,
        };
        waiting.transaction = Some(self.start(&call, effect, handle, &known, &found, out));
        self.wait(waiting);
        None
    }

    /// Adds the transaction of a call.
    fn start(
        &self,
        call: &Call<'_>,
        effect: Effect,
        handle: Option<Handle>,
        known: &Name,
        found: &Found<'_>,
        out: &mut Transactions,
    ) -> u64 {
        let direction = Direction::ToServer;
        let transaction = out.start(AppProtocol::Nfs);
        numbers(transaction, (call.version, call.procedure), direction);
        for name in &found.names {
            transaction.publish(Buffer::FileName, direction, *name);
        }
        let is_of_bytes = matches!(effect, Effect::Reads | Effect::Writes | Effect::Commits);
        let names = match (found.names.as_slice(), is_of_bytes) {
            ([], true) => &[known.bytes()][..],
            (names, _) => names,
        };
        let procedure = procedures::name(call.version, call.procedure);
        let number = call.procedure.to_string();
        let fields = record(
            (call.version, procedure.unwrap_or(&number)),
            names,
            handle.and_then(Handle::text).as_deref(),
            false,
            &call.record(),
        );
        transaction.record = Record::Fields(Box::new(fields));
        transaction.advance(direction, Progress::Complete);
        transaction.id
    }

    /// Reads a reply; `None` if the bytes are none, or nothing follows in them.
    fn reply(&mut self, bytes: &[u8], is_end: bool, out: &mut Transactions) -> Option<Read> {
        let direction = Direction::ToClient;
        let reply = rpc::reply(bytes)?;
        let is_it = |waiting: &Waiting| waiting.identifier == reply.identifier;
        let Some(waiting) = self
            .waiting
            .iter()
            .position(is_it)
            .and_then(|at| self.waiting.remove(at))
        else {
            out.has_lost |= self.has_overflowed;
            return None;
        };
        let results = reply.results(waiting.protection);
        if let Some(transaction) = waiting.transaction.and_then(|id| out.by_id(id)) {
            fields(transaction, |out| {
                // Each WRITE call of a file has a reply.
                if out.value("type").is_some() {
                    return;
                }
                out.text("type", b"response");
                if let Some((status, _)) = results {
                    out.text("status", procedures::status(status).as_bytes());
                }
                if let Some(Value::Object(rpc)) = out.value("rpc") {
                    let status: &[u8] = match reply.is_accepted {
                        true => b"ACCEPTED",
                        false => b"DENIED",
                    };
                    rpc.text("status", status);
                }
            });
        }
        let mut read = None;
        match (waiting.answer, results) {
            (Answer::Compound(expected), Some((_, bytes))) => {
                return Some(self.compound_reply((waiting.transaction, expected), bytes, is_end, out));
            }
            (answer, Some((0, bytes))) => {
                let (version, procedure) = waiting.procedure;
                let mut found = Found::default();
                let _ = found.walk(&mut { bytes }, procedures::results(version, procedure));
                match answer {
                    Answer::Handle(name) => {
                        if let Some(handle) = found.handle.map(Handle::of) {
                            self.names.set(handle.key, name);
                        }
                    }
                    Answer::Bytes(handle, offset, name) => {
                        let rpc = rpc_of(waiting.transaction, out);
                        let procedure = (waiting.procedure, &rpc);
                        read = self.read((handle, offset), &name, &found, procedure, out);
                    }
                    Answer::Commit(handle) => {
                        self.open.end_direction(handle.key, Direction::ToServer, out);
                    }
                    Answer::Compound(_) | Answer::Other => {}
                }
            }
            _ => {}
        }
        if let Some(transaction) = waiting.transaction.and_then(|id| out.by_id(id)) {
            transaction.advance(direction, Progress::Complete);
        }
        read.map(Read::Bytes)
    }

    /// Passes the bytes on that a file was read from an offset on. Returns those that follow.
    fn read(
        &mut self,
        (handle, offset): (Handle, u64),
        name: &Name,
        found: &Found<'_>,
        procedure: ((u64, u64), &Fields),
        out: &mut Transactions,
    ) -> Option<Bytes> {
        let direction = Direction::ToClient;
        let mut rest = None;
        let mut end = offset;
        for data in &found.data {
            let offset = data.offset.unwrap_or(offset);
            rest = self.bytes((handle, offset), name, data, procedure, direction, out);
            end = offset.saturating_add((data.bytes.len() + data.missing) as u64);
        }
        let size = found.size.or(found.is_eof.then_some(end));
        match (&mut rest, size) {
            (Some(rest), size) => rest.size = size,
            (None, Some(size)) => self.open.ends_at(handle.key, size, direction, out),
            (None, None) => {}
        }
        rest
    }
}

impl Parser for Nfs {
    fn data(&mut self, chunk: StreamChunk<'_>, out: &mut Transactions) -> Outcome {
        let direction = chunk.direction;
        let mut side = core::mem::take(&mut self.sides[direction.index()]);
        if self.transport == Transport::Udp {
            self.part(direction, chunk.bytes, true, out);
            self.end_record(&mut side, direction, out);
        } else {
            if chunk.gap_before > 0 && !side.has_failed {
                self.lose(&mut side, direction, chunk.gap_before, out);
            }
            if !side.has_failed {
                self.stream(&mut side, direction, chunk.bytes, out);
            }
        }
        self.sides[direction.index()] = side;
        // Of a connection whose answers are not seen, the end of no file is known.
        out.has_lost |= self.open.take_lost() && !self.open.is_asymmetric();
        Outcome::Continue
    }

    fn end(&mut self, direction: Direction, out: &mut Transactions) {
        self.end_walk(direction, out);
        self.sides[direction.index()] = Side::default();
        self.open.end_all_of(direction, out);
        if direction == Direction::ToClient {
            for waiting in self.waiting.drain(..) {
                if let Some(transaction) = waiting.transaction.and_then(|id| out.by_id(id)) {
                    transaction.advance(direction, Progress::Complete);
                }
            }
        }
    }
}
