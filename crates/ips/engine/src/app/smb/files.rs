//! Files on disk shares that a connection reads and writes: the commands that wait for answers, and the trees of pipes.
//! `open_files.rs` has the files.
//!
//! ```text
//!  CREATE request ─▶ name ─┐
//!  CREATE response ────────┴▶ open file ─┬─ READ responses ─▶ bytes to the client
//!                                        └─ WRITE requests ─▶ bytes to the server
//! ```
//!
//! Pipes are not files: `pipes.rs` has their calls.

use std::collections::VecDeque;

use super::transfer::File as Handle;
use crate::app::file::NAME_SIZE;
use crate::app::heap::heap;
use crate::app::open_files::OpenFiles;
use crate::app::transaction::Transactions;
use crate::app::{AppProtocol, AppSettings};
use crate::flow::Direction;

/// Largest number of commands whose answers are expected.
const COMMANDS: usize = 1024;
/// Largest number of trees of pipes (IPC$) that are known; a client connects to one for each server.
const PIPE_TREES: usize = 16;

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

heap!(Command { expected });

/// The files of a connection.
#[derive(Debug)]
pub(super) struct Files {
    open: OpenFiles,
    commands: VecDeque<Command>,
    /// Identifiers of trees of pipes.
    pipe_trees: VecDeque<u32>,
    /// True once a command was removed because too many wait.
    has_overflowed: bool,
    /// True if an answer to a command that was removed came since the last call of [`Files::take_lost`].
    has_lost: bool,
}

heap!(Files { open, commands });

impl Files {
    pub(super) fn new(settings: AppSettings) -> Files {
        Files {
            open: OpenFiles::new(AppProtocol::Smb, Some("smb.file_overlap"), settings),
            commands: VecDeque::new(),
            pipe_trees: VecDeque::new(),
            has_overflowed: false,
            has_lost: false,
        }
    }

    /// Returns true if the engine follows connections of which it sees one direction only.
    pub(super) fn is_asymmetric(&self) -> bool {
        self.open.is_asymmetric()
    }

    /// Returns true if bytes of files may have escaped inspection since the last call: they belong to a file that was ended for
    /// another, or answer a command that was removed.
    pub(super) fn take_lost(&mut self) -> bool {
        core::mem::take(&mut self.has_lost) | self.open.take_lost()
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
            self.open
                .open(handle.key(), Handle::created_by(message).key(), name, out);
        }
    }

    /// Applies the answer to a command that closes a file.
    pub(super) fn closed(&mut self, message: u64, is_done: bool, out: &mut Transactions) {
        if let Some(Expected::Close(handle)) = self.take(message)
            && is_done
        {
            self.open.close(handle.key(), out);
        }
    }

    /// Returns the file and the offset of the bytes in the answer to a command that reads.
    pub(super) fn read(&mut self, message: u64) -> Option<(Handle, u64)> {
        match self.take(message)? {
            Expected::Read(handle, offset) => Some((handle, offset)),
            Expected::Create(_) | Expected::PipeTree | Expected::Close(_) => None,
        }
    }

    /// Ends all files, because the connection ended.
    pub(super) fn end_all(&mut self, out: &mut Transactions) {
        self.open.end_all(out);
    }

    /// Returns true if the command that opened the file was seen.
    pub(super) fn is_open(&self, handle: Handle) -> bool {
        self.open.is_open(handle.key())
    }

    /// Returns the transaction of one direction of a file, and the name of the file.
    pub(super) fn transaction(&self, handle: Handle, direction: Direction) -> Option<(u64, &[u8])> {
        self.open.transaction(handle.key(), direction)
    }

    /// Adds bytes of a file that are written (to the server) or read (to the client).
    pub(super) fn transfer(
        &mut self,
        (handle, offset): (Handle, u64),
        bytes: &[u8],
        direction: Direction,
        out: &mut Transactions,
    ) {
        let commands = &self.commands;
        self.open.transfer(
            (handle.key(), offset),
            bytes,
            direction,
            || created_name(commands, handle),
            out,
        );
    }
}

/// Returns the name of the file that a command without answer creates, by its temporary identifier.
fn created_name(commands: &VecDeque<Command>, handle: Handle) -> Option<Vec<u8>> {
    commands.iter().find_map(|command| match &command.expected {
        Expected::Create(name) if Handle::created_by(command.message) == handle => Some(name.clone()),
        _ => None,
    })
}
