//! Commands to a running session, from other threads.

use crate::pool::Waker;
use crate::sender::Target;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

/// A request to a running session.
pub(crate) enum Command {
    /// Another receiver joins.
    Add(Target),
    /// No further transfer begins; the session ends with the last one, or after this time.
    Drain(Duration),
    /// The session ends; received data are kept.
    Stop,
}

/// The commands of a session, and the waker of its thread.
pub(crate) struct Inbox {
    commands: Receiver<Command>,
    pub(crate) waker: Arc<Waker>,
}

/// The sending end of the commands.
#[derive(Clone, Debug)]
pub(crate) struct Outbox {
    commands: Sender<Command>,
    waker: Arc<Waker>,
}

impl Inbox {
    /// Returns both ends.
    pub(crate) fn new() -> io::Result<(Outbox, Inbox)> {
        let waker = Arc::new(Waker::new()?);
        let (sender, commands) = channel();
        let outbox = Outbox {
            commands: sender,
            waker: Arc::clone(&waker),
        };
        Ok((outbox, Inbox { commands, waker }))
    }

    /// Returns the next command.
    pub(crate) fn try_recv(&self) -> Option<Command> {
        self.commands.try_recv().ok()
    }
}

impl Outbox {
    /// Sends a command; a session that has ended ignores it.
    pub(crate) fn send(&self, command: Command) {
        let _ = self.commands.send(command);
        self.waker.wake_next();
    }
}

impl std::fmt::Debug for Command {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Command::Add(_) => "Add",
            Command::Drain(_) => "Drain",
            Command::Stop => "Stop",
        })
    }
}
