//! Files on disk shares that a connection reads and writes, as files for detection.
//!
//! ```text
//!  CREATE request ─▶ name ─┐
//!  CREATE response ────────┴▶ open file ─┬─ READ responses ─▶ transaction to the client ─┐
//!                                        └─ WRITE requests ─▶ transaction to the server ─┴▶ file.data, file.name
//! ```
//!
//! Commands may come in any order of offsets. Bytes behind a hole wait for those before them, up to [`HELD_SIZE`] in a
//! connection; then they are inspected with a gap before them. Bytes before the end of what was inspected were sent
//! again, or overwrite the file: they are inspected behind the others, because the later bytes are those that stay.
//! Pipes are not files: `pipes.rs` has their calls.

use std::collections::VecDeque;

use millrace_ips_rules::buffers::Buffer;

use super::transfer::File as Handle;
use crate::app::file::NAME_SIZE;
use crate::app::heap::{flat, heap};
use crate::app::transaction::{Progress, Transactions};
use crate::app::{AppProtocol, AppSettings};
use crate::flow::Direction;

/// Largest number of open files of a connection; the one that was opened first is ended for another.
const FILES: usize = 256;
/// Largest number of commands whose answers are expected.
const COMMANDS: usize = 1024;
/// Largest number of trees of pipes (IPC$) that are known; a client connects to one for each server.
const PIPE_TREES: usize = 16;
/// Bytes that wait behind holes of all files of a connection.
const HELD_SIZE: usize = 1 << 20;

/// A command whose answer is expected.
#[derive(Debug)]
enum Expected {
    /// The answer opens a file with this name.
    Create(Vec<u8>),
    /// The answer has bytes of the file from this offset on.
    Read(Handle, u64),
    /// The answer names the tree of a pipe.
    PipeTree,
    Close(Handle),
}

impl crate::app::heap::Heap for Expected {
    fn heap(&self) -> usize {
        match self {
            Expected::Create(name) => name.heap(),
            Expected::Read(..) | Expected::PipeTree | Expected::Close(_) => 0,
        }
    }
}

#[derive(Debug)]
struct Command {
    message: u64,
    expected: Expected,
}

/// Bytes that wait for those before them.
#[derive(Debug)]
struct Piece {
    offset: u64,
    bytes: Vec<u8>,
}

/// One direction of an open file: its transaction, buffer, and what was inspected.
#[derive(Debug)]
struct Content {
    transaction: u64,
    buffer: usize,
    /// Offset of the next byte.
    next: u64,
    /// Pieces behind a hole, by offset.
    held: Vec<Piece>,
}

#[derive(Debug)]
struct Open {
    handle: Handle,
    /// The identifier by which commands of the message that opened the file name it.
    temporary: Option<Handle>,
    name: Vec<u8>,
    contents: [Option<Content>; 2],
}

flat!(Handle);
heap!(Command { expected });
heap!(Piece { bytes });
heap!(Content { held });
heap!(Open { name, contents });

/// The files of a connection.
#[derive(Debug)]
pub(super) struct Files {
    settings: AppSettings,
    list: VecDeque<Open>,
    commands: VecDeque<Command>,
    /// Identifiers of trees of pipes.
    pipe_trees: VecDeque<u32>,
    held_size: usize,
    /// True once a command was removed because too many wait.
    has_overflowed: bool,
    /// True once an open file was ended for another.
    has_evicted: bool,
    /// True if bytes of files may escape inspection since the last call of [`Files::take_lost`].
    has_lost: bool,
}

heap!(Files { list, commands });

impl Files {
    pub(super) fn new(settings: AppSettings) -> Files {
        Files {
            settings,
            list: VecDeque::new(),
            commands: VecDeque::new(),
            pipe_trees: VecDeque::new(),
            held_size: 0,
            has_overflowed: false,
            has_evicted: false,
            has_lost: false,
        }
    }

    /// Returns true if the engine follows connections of which it sees one direction only.
    pub(super) fn is_asymmetric(&self) -> bool {
        self.settings.is_asymmetric
    }

    /// Returns true if bytes of files may have escaped inspection since the last call: they belong to a file that was ended for
    /// another, or answer a command that was removed.
    pub(super) fn take_lost(&mut self) -> bool {
        core::mem::take(&mut self.has_lost)
    }

    fn expect(&mut self, message: u64, expected: Expected) {
        if self.commands.len() >= COMMANDS {
            self.commands.pop_front();
            self.has_overflowed = true;
        }
        self.commands.push_back(Command { message, expected });
    }

    fn take(&mut self, message: u64) -> Option<Expected> {
        let is_it = |command: &Command| command.message == message;
        let Some(at) = self.commands.iter().position(is_it) else {
            self.has_lost |= self.has_overflowed;
            return None;
        };
        self.commands.remove(at).map(|command| command.expected)
    }

    fn find(&self, handle: Handle) -> Option<usize> {
        let is_it = |open: &Open| open.handle == handle || open.temporary == Some(handle);
        self.list.iter().position(is_it)
    }

    /// Returns the name of the file that a command without answer creates, by its temporary identifier.
    fn name_of(&self, handle: Handle) -> Option<Vec<u8>> {
        self.commands.iter().find_map(|command| match &command.expected {
            Expected::Create(name) if Handle::created_by(command.message) == handle => Some(name.clone()),
            _ => None,
        })
    }

    /// Records a tree connect.
    pub(super) fn connects(&mut self, message: u64, is_pipe: bool) {
        if is_pipe {
            self.expect(message, Expected::PipeTree);
        }
    }

    /// Records a command that opens or creates a file.
    pub(super) fn creates(&mut self, message: u64, tree: u32, name: &[u8]) {
        if !self.is_pipe_tree(tree) {
            let name = name[..name.len().min(NAME_SIZE)].to_vec();
            self.expect(message, Expected::Create(name));
        }
    }

    /// Records a command that reads from a file.
    pub(super) fn reads(&mut self, message: u64, tree: u32, handle: Handle, offset: u64) {
        if !self.is_pipe_tree(tree) {
            self.expect(message, Expected::Read(handle, offset));
        }
    }

    /// Records a command that closes a file.
    pub(super) fn closes(&mut self, message: u64, handle: Handle) {
        self.expect(message, Expected::Close(handle));
    }

    /// Returns true if a tree is known to be one of pipes.
    pub(super) fn is_pipe_tree(&self, tree: u32) -> bool {
        self.pipe_trees.contains(&tree)
    }

    /// Applies the answer to a tree connect.
    pub(super) fn connected(&mut self, message: u64, tree: u32, is_done: bool) {
        if matches!(self.take(message), Some(Expected::PipeTree)) && is_done {
            if self.pipe_trees.len() >= PIPE_TREES {
                self.pipe_trees.pop_front();
            }
            self.pipe_trees.push_back(tree);
        }
    }

    /// Applies the answer to a command that opens a file; `handle` is `None` if it failed.
    pub(super) fn created(&mut self, message: u64, handle: Option<Handle>, out: &mut Transactions) {
        if let Some(Expected::Create(name)) = self.take(message)
            && let Some(handle) = handle
        {
            self.close(handle, out);
            // Commands of the same message may have begun the file.
            let temporary = Handle::created_by(message);
            let at = match self.find(temporary) {
                Some(at) => at,
                None => self.open(handle, name, out),
            };
            if let Some(open) = self.list.get_mut(at) {
                (open.handle, open.temporary) = (handle, Some(temporary));
            }
        }
    }

    /// Applies the answer to a command that closes a file.
    pub(super) fn closed(&mut self, message: u64, is_done: bool, out: &mut Transactions) {
        if let Some(Expected::Close(handle)) = self.take(message)
            && is_done
        {
            self.close(handle, out);
        }
    }

    /// Returns the file and the offset of the bytes in the answer to a command that reads.
    pub(super) fn read(&mut self, message: u64) -> Option<(Handle, u64)> {
        match self.take(message)? {
            Expected::Read(handle, offset) => Some((handle, offset)),
            Expected::Create(_) | Expected::PipeTree | Expected::Close(_) => None,
        }
    }

    fn open(&mut self, handle: Handle, name: Vec<u8>, out: &mut Transactions) -> usize {
        if self.list.len() >= FILES
            && let Some(mut first) = self.list.pop_front()
        {
            self.has_evicted = true;
            self.end(&mut first, out);
        }
        self.list.push_back(Open {
            handle,
            temporary: None,
            name,
            contents: [None, None],
        });
        self.list.len() - 1
    }

    fn close(&mut self, handle: Handle, out: &mut Transactions) {
        let at = self.find(handle);
        if let Some(mut open) = at.and_then(|at| self.list.remove(at)) {
            self.end(&mut open, out);
        }
    }

    /// Ends all files, because the connection ended.
    pub(super) fn end_all(&mut self, out: &mut Transactions) {
        while let Some(mut open) = self.list.pop_front() {
            self.end(&mut open, out);
        }
    }

    /// Ends a file: what waits behind holes is inspected, and its transactions are complete.
    fn end(&mut self, open: &mut Open, out: &mut Transactions) {
        for direction in Direction::BOTH {
            let Some(mut content) = open.contents[direction.index()].take() else {
                continue;
            };
            while self.skip_hole(&mut content, out) {}
            if let Some(transaction) = out.by_id(content.transaction) {
                transaction.close(content.buffer);
                if let Some(file) = transaction.files.first_mut() {
                    file.close(true);
                }
                transaction.advance(direction, Progress::Complete);
            }
        }
    }

    /// Returns true if the command that opened the file was seen.
    pub(super) fn is_open(&self, handle: Handle) -> bool {
        self.find(handle).is_some()
    }

    /// Returns the transaction of one direction of a file, and the name of the file.
    pub(super) fn transaction(&self, handle: Handle, direction: Direction) -> Option<(u64, &[u8])> {
        let open = self.list.get(self.find(handle)?)?;
        let content = open.contents[direction.index()].as_ref()?;
        Some((content.transaction, &open.name))
    }

    /// Adds bytes of a file that are written (to the server) or read (to the client).
    pub(super) fn transfer(
        &mut self,
        (handle, offset): (Handle, u64),
        bytes: &[u8],
        direction: Direction,
        out: &mut Transactions,
    ) {
        if bytes.is_empty() {
            return;
        }
        let at = match self.find(handle) {
            Some(at) => at,
            // A command of the message that opens the file, or the answer that opened it was not seen, or the file was ended for
            // another.
            None => {
                let name = self.name_of(handle);
                self.has_lost |= name.is_none() && self.has_evicted;
                self.open(handle, name.unwrap_or_default(), out)
            }
        };
        let Some(open) = self.list.get_mut(at) else { return };
        let slot = &mut open.contents[direction.index()];
        let mut content = match slot.take() {
            Some(content) => content,
            None => begin(&open.name, direction, &self.settings, out),
        };
        if offset > content.next {
            self.hold(&mut content, offset, bytes, out);
        } else {
            append(&mut content, offset, bytes, &self.settings, out);
            self.release(&mut content, out);
        }
        if let Some(open) = self.list.get_mut(at) {
            open.contents[direction.index()] = Some(content);
        }
    }

    /// Keeps bytes behind a hole. If too many wait, the hole is skipped.
    fn hold(&mut self, content: &mut Content, offset: u64, bytes: &[u8], out: &mut Transactions) {
        let at = content.held.partition_point(|piece| piece.offset <= offset);
        let bytes = bytes.to_vec();
        self.held_size += bytes.len();
        content.held.insert(at, Piece { offset, bytes });
        while self.held_size > HELD_SIZE && self.skip_hole(content, out) {}
    }

    /// Appends the pieces that no hole separates any more.
    fn release(&mut self, content: &mut Content, out: &mut Transactions) {
        while content
            .held
            .first()
            .is_some_and(|piece| piece.offset <= content.next)
        {
            let piece = content.held.remove(0);
            self.held_size -= piece.bytes.len();
            append(content, piece.offset, &piece.bytes, &self.settings, out);
        }
    }

    /// Skips the first hole; returns false if nothing waits behind one.
    fn skip_hole(&mut self, content: &mut Content, out: &mut Transactions) -> bool {
        let Some(first) = content.held.first() else {
            return false;
        };
        let lost = first.offset.saturating_sub(content.next);
        content.next = first.offset;
        if lost > 0
            && let Some(file) = out
                .by_id(content.transaction)
                .and_then(|found| found.files.first_mut())
        {
            file.gap(lost);
        }
        self.release(content, out);
        true
    }
}

/// Begins the transaction of one direction of a file.
fn begin(name: &[u8], direction: Direction, settings: &AppSettings, out: &mut Transactions) -> Content {
    let transaction = out.start(AppProtocol::Smb);
    transaction.advance(direction.reverse(), Progress::Complete);
    // In mode `ips` the bytes are inspected before they are forwarded, and not only at the end of the file.
    transaction.advance(direction, Progress::Body);
    if !name.is_empty() {
        transaction.publish(Buffer::FileName, direction, name);
    }
    let buffer = transaction.open(Buffer::FileData, None, direction, 0);
    transaction.files.push(settings.file(direction, name));
    Content {
        transaction: transaction.id,
        buffer,
        next: 0,
        held: Vec::new(),
    }
}

/// Adds bytes at or before the end of what was inspected.
fn append(content: &mut Content, offset: u64, bytes: &[u8], settings: &AppSettings, out: &mut Transactions) {
    let is_again = offset < content.next;
    content.next = content.next.max(offset.saturating_add(bytes.len() as u64));
    let Some(transaction) = out.by_id(content.transaction) else {
        return;
    };
    if is_again {
        transaction.raise("smb.file_overlap");
    }
    transaction.append(content.buffer, bytes, settings.attachment_limit);
    if let Some(file) = transaction.files.first_mut() {
        // Hashes would be those of other bytes.
        if is_again {
            file.gap(0);
        }
        file.update(bytes);
    }
}
