//! The pipes of a connection: files to which calls of DCE/RPC are written. A pipe carries a stream of PDUs,
//! which may be split over any number of writes. The first bytes of a file that is not a pipe may look like a
//! PDU.

use std::collections::VecDeque;

use super::dcerpc::{Calls, Carrier};
use super::transfer::{File, Transfer};
use crate::app::AppProtocol;
use crate::app::heap::{flat, heap};
use crate::app::transaction::Transactions;
use crate::flow::Direction;

/// Largest number of files of a connection that are kept.
const PIPES: usize = 256;
/// Largest number of commands whose answers are expected.
const COMMANDS: usize = 512;

/// A command that waits for its answer, which names no file.
#[derive(Debug, Clone, Copy)]
struct Command {
    message: u64,
    file: File,
    closes: bool,
}

#[derive(Debug)]
struct Pipe {
    file: File,
    calls: Calls,
}

flat!(Command);
heap!(Pipe { calls });

/// The pipes of a connection.
#[derive(Debug, Default)]
pub(super) struct Pipes {
    /// The pipes in the order in which they were used first.
    list: VecDeque<Pipe>,
    /// Commands without answer, oldest first.
    commands: VecDeque<Command>,
    /// True once a command was removed because too many wait.
    has_overflowed: bool,
    /// True if calls may escape inspection since the last call of [`Pipes::take_lost`].
    has_lost: bool,
}

heap!(Pipes { list, commands });

impl Pipes {
    fn find(&self, file: File) -> Option<usize> {
        self.list.iter().position(|pipe| pipe.file == file)
    }

    fn expect(&mut self, command: Command) {
        if self.commands.len() >= COMMANDS {
            self.commands.pop_front();
            self.has_overflowed = true;
        }
        self.commands.push_back(command);
    }

    /// Returns true if calls may have escaped inspection since the last call: a pipe was removed, or a command whose answer has
    /// come.
    pub(super) fn take_lost(&mut self) -> bool {
        core::mem::take(&mut self.has_lost)
    }

    /// Gives the file that a command created its identifier; commands of the same message used a temporary one.
    pub(super) fn created(&mut self, message: u64, file: Option<File>) {
        let temporary = File::created_by(message);
        let Some(file) = file.filter(|_| self.find(temporary).is_some()) else {
            return;
        };
        self.list.retain(|pipe| pipe.file != file);
        if let Some(pipe) = self.list.iter_mut().find(|pipe| pipe.file == temporary) {
            pipe.file = file;
        }
    }

    /// Records a command that reads from a file: the answer carries bytes of the file.
    pub(super) fn reads(&mut self, message: u64, file: File) {
        // A client writes to a pipe before it reads.
        if self.find(file).is_some() {
            self.expect(Command {
                message,
                file,
                closes: false,
            });
        }
    }

    /// Returns the file from which an answer carries bytes.
    pub(super) fn read(&mut self, message: u64) -> File {
        let command = self.take(message);
        command.map_or(File::UNKNOWN, |command| command.file)
    }

    /// Records a command that closes a file.
    pub(super) fn closes(&mut self, message: u64, file: File) {
        if self.find(file).is_some() {
            self.expect(Command {
                message,
                file,
                closes: true,
            });
        }
    }

    /// Removes the file that a command closed, if the server closed it.
    pub(super) fn answered(&mut self, message: u64, is_done: bool) {
        let command = self.take(message).filter(|command| command.closes && is_done);
        if let Some(at) = command.and_then(|command| self.find(command.file)) {
            self.list.remove(at);
        }
    }

    fn take(&mut self, message: u64) -> Option<Command> {
        let is_it = |command: &Command| command.message == message;
        let Some(at) = self.commands.iter().position(is_it) else {
            self.has_lost |= self.has_overflowed;
            return None;
        };
        self.commands.remove(at)
    }

    /// Parses the bytes that are written to a file or read from it. Bytes after an incomplete PDU continue
    /// it. If the new bytes begin like a PDU, the earlier bytes may not belong to calls, so the new bytes are
    /// also parsed as separate PDUs. Returns true if calls were seen in the file, now or before.
    pub(super) fn transfer(
        &mut self,
        transfer: &Transfer<'_>,
        direction: Direction,
        is_recorded: bool,
        out: &mut Transactions,
    ) -> bool {
        let Transfer {
            file, data, command, ..
        } = *transfer;
        let begins = matches!(data, [5] | [5, 0 | 1, ..]);
        let at = match self.find(file) {
            Some(at) => at,
            None if begins => {
                if self.list.len() >= PIPES {
                    self.list.pop_front();
                    self.has_lost = true;
                }
                self.list.push_back(Pipe {
                    file,
                    calls: Calls::default(),
                });
                self.list.len() - 1
            }
            None => return false,
        };
        let carrier = Carrier {
            app: AppProtocol::Smb,
            command,
            is_recorded,
        };
        let calls = &mut self.list[at].calls;
        let waits = calls.waits(direction);
        if waits && begins {
            calls.parse_separately(data, direction, carrier, out);
        }
        if waits || begins {
            calls.pipe(data, direction, carrier, out);
        }
        true
    }
}
