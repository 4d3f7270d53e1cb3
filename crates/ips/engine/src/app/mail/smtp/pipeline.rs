//! The commands of SMTP that wait for replies (RFC 2920), oldest first.

use std::collections::VecDeque;

use crate::app::heap::{flat, heap};

/// Largest number of runs of commands that wait for replies. A run is any number of equal commands. DATA and STARTTLS with
/// an offset are never equal, so each is a run.
const RUNS: usize = 256;

/// A command that waits for its reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Command {
    /// DATA, with the offset in the stream of the bytes after it if they are parsed as a mail before the reply.
    Data(Option<u64>),
    /// STARTTLS, with the offset of the bytes after it if they are parsed as commands before the reply.
    StartTls(Option<u64>),
    /// A chunk of a mail.
    Bdat,
    /// Another command, or the full stop that ends a mail.
    Other,
}

flat!(Command);

/// The commands without a reply: runs of equal commands with their lengths.
#[derive(Debug, Default)]
pub(super) struct Pipeline {
    runs: VecDeque<(Command, u64)>,
    /// True once a command was not recorded: later replies cannot be assigned to commands.
    has_overflowed: bool,
}

heap!(Pipeline { runs });

impl Pipeline {
    pub(super) fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Adds a command that waits for its reply. Returns false if there is no room for it, or was none for an earlier one.
    pub(super) fn push(&mut self, command: Command) -> bool {
        if self.has_overflowed {
            return false;
        }
        if let Some((_, len)) = self.runs.back_mut().filter(|(last, _)| *last == command) {
            *len += 1;
        } else if self.runs.len() < RUNS {
            self.runs.push_back((command, 1));
        } else {
            self.has_overflowed = true;
        }
        !self.has_overflowed
    }

    /// Returns true if replies cannot be assigned to commands any more.
    pub(super) fn has_overflowed(&self) -> bool {
        self.has_overflowed
    }

    /// Returns true if bytes are parsed as a mail although the server has not replied to its DATA.
    pub(super) fn has_undecided_mail(&self) -> bool {
        matches!(self.runs.back(), Some((Command::Data(Some(_)), _)))
    }

    /// Removes and returns the oldest command.
    pub(super) fn pop(&mut self) -> Option<Command> {
        let (command, len) = self.runs.front_mut()?;
        let command = *command;
        *len -= 1;
        if *len == 0 {
            self.runs.pop_front();
        }
        Some(command)
    }

    /// Returns the first offset, from `start` on, of bytes that were parsed before the reply that decides about them.
    pub(super) fn first_undecided(&self, start: u64) -> Option<u64> {
        let offset = |(command, _): &(Command, u64)| match command {
            Command::Data(at) | Command::StartTls(at) => *at,
            Command::Bdat | Command::Other => None,
        };
        self.runs.iter().filter_map(offset).find(|at| *at >= start)
    }

    /// Forgets all commands.
    pub(super) fn clear(&mut self) {
        self.runs.clear();
    }
}
