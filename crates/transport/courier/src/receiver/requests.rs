//! The state of requests: those that this receiver sends to a daemon, and those that it answers as one.

use crate::access::{DirectoryEntry, ReadAccess, Refusal};
use crate::control::LinkId;
use crate::event::Event;
use crate::identity::PublicKey;
use crate::inbox::{Command, Outbox};
use crate::io::PortProbes;
use crate::sender::Target;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::ScopedJoinHandle;
use std::time::Instant;

/// A request for files.
#[derive(Clone, Debug)]
pub(crate) struct Fetch {
    pub(crate) from: Target,
    pub(crate) path: Vec<u8>,
}

/// The state of a request.
pub(super) struct Fetching {
    pub(super) fetch: Fetch,
    /// Links to the daemon's addresses that may still answer.
    pub(super) links: Vec<LinkId>,
    /// The addresses that are dialled.
    pub(super) ports: PortProbes,
    /// True if the daemon's addresses are to be written as IPv4.
    pub(super) only_v4: bool,
    /// The time at which a daemon without room, or one that was lost, is dialled again.
    pub(super) redial_at: Option<Instant>,
    /// The number of times that the daemon had no room, or did not answer after it was lost.
    pub(super) failures: u32,
    /// True if the request was sent on one of the links.
    pub(super) asked: bool,
    /// The time by which the daemon's session must have begun.
    pub(super) until: Option<Instant>,
    pub(super) started: Instant,
}

/// A reply of a thread.
pub(super) enum JobReply {
    Refused(LinkId, Refusal),
    Listed(LinkId, Vec<DirectoryEntry>),
    Source(LinkId, Box<ReadAccess>),
    Event(Event),
}

/// A thread that works on a request.
pub(super) struct Job<'scope> {
    pub(super) key: PublicKey,
    pub(super) thread: ScopedJoinHandle<'scope, ()>,
    /// Ends the session that sends, if there is one.
    pub(super) outbox: Option<Outbox>,
}

/// The threads that work on requests.
pub(super) struct Jobs<'scope> {
    pub(super) running: Vec<Job<'scope>>,
    pub(super) replies: (Sender<JobReply>, Receiver<JobReply>),
}

impl Default for Jobs<'_> {
    fn default() -> Self {
        Jobs {
            running: Vec::new(),
            replies: channel(),
        }
    }
}

impl Jobs<'_> {
    /// Returns true if no thread works.
    pub(super) fn is_idle(&mut self) -> bool {
        self.running.retain(|job| !job.thread.is_finished());
        self.running.is_empty()
    }

    /// Ends the sending sessions.
    pub(super) fn stop(&self) {
        for outbox in self.running.iter().filter_map(|job| job.outbox.as_ref()) {
            outbox.send(Command::Stop);
        }
    }
}
