//! The writer: a thread for each session of a receiver, which opens the files, hashes, writes, syncs and commits.

use super::Waker;
use super::assembly::Group;
use crate::clock::Clock;
use crate::files::{FilesError, OpenError, Requests, Sink, SinkEvent, Store, Value};
use crate::identity::PublicKey;
use millrace_transport::extent::Layout;
use millrace_transport::ranges::RangeSet;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::Instant;

/// The maximum number of tasks that are handled before replies are sent and timers are checked.
const BATCH: usize = 32;

/// A task of the writer.
pub(crate) enum Write {
    Keep(RangeSet),
    /// Whole groups: those of one burst, so that the writer is not woken for each.
    Groups(Vec<Group>),
    Value(u64, Value),
    GroupValues(u64, Vec<Value>),
    Withdrawn(u64),
    /// The sender has the receipt: the state from which a transfer would resume is removed.
    Close,
}

impl Write {
    /// Returns true for a message of the sender about values.
    fn is_about_values(&self) -> bool {
        matches!(
            self,
            Write::Value(..) | Write::GroupValues(..) | Write::Withdrawn(_)
        )
    }
}

/// An answer of the writer.
pub(crate) enum WriteReply {
    /// The manifest is valid and the directories exist.
    Opened(Layout),
    /// The files of the manifest cannot be received.
    Refused(OpenError),
    Have(u64, Value),
    HaveEnd,
    /// Bytes may arrive: the extents that the sender confirmed are kept, or there were none to confirm. Holds the
    /// verified extents.
    Started(RangeSet),
    /// The number of bytes that left memory, and their buffers.
    Written(u64, Vec<Vec<u8>>),
    /// The number of messages about values that were handled.
    Handled(u64),
    Event(SinkEvent),
    /// Everything is in place. The value is that of all extents together.
    Complete(Value),
    /// The files cannot be written any more.
    Failed(FilesError),
}

/// The writer's ends of its channels.
pub(crate) struct Ends {
    pub(crate) tasks: Receiver<Write>,
    pub(crate) replies: Sender<WriteReply>,
    pub(crate) waker: Arc<Waker>,
    pub(crate) clock: Clock,
}

/// Serves a session until the channel of tasks closes. Verified extents are then durable.
pub(crate) fn run(store: &dyn Store, sender: PublicKey, manifest: &[u8], requests: Requests, ends: &Ends) {
    let mut sink = match store.open(sender, manifest, requests) {
        Ok(sink) => sink,
        Err(error) => {
            let _ = ends.replies.send(WriteReply::Refused(error));
            ends.waker.wake();
            return;
        }
    };
    drop(ends.replies.send(WriteReply::Opened(sink.layout())));
    match serve(&mut *sink, ends) {
        Ok(true) => {
            if let Err(error) = sink.close() {
                tracing::warn!(%error, "the journal was not removed");
            }
        }
        Ok(false) => {
            if let Err(error) = sink.flush() {
                tracing::warn!(%error, "the journal was not written");
            }
        }
        Err(error) => {
            let _ = ends.replies.send(WriteReply::Failed(error));
            ends.waker.wake();
        }
    }
}

/// Handles tasks. Returns true after [`Write::Close`], and false if the channel of tasks closes earlier.
/// Files that could not be put into place are an error at the end: there is no receipt for them, and the
/// journal stays.
fn serve(sink: &mut dyn Sink, ends: &Ends) -> Result<bool, FilesError> {
    let mut has_some = false;
    while let Some((extent, value)) = sink.poll_have()? {
        has_some = true;
        if ends.replies.send(WriteReply::Have(extent, value)).is_err() {
            return Ok(false);
        }
        ends.waker.wake();
    }
    drop(ends.replies.send(WriteReply::HaveEnd));
    if !has_some {
        // The sender has nothing to confirm: bytes may arrive without another round trip.
        sink.start()?;
        drop(ends.replies.send(WriteReply::Started(sink.verified())));
    }
    ends.waker.wake();
    // A set without data is complete when it starts: its events do not wait for a task.
    let mut started = !has_some;
    loop {
        let next = sink.next_timeout().map(|at| ends.clock.instant(at));
        let task = match next {
            _ if std::mem::take(&mut started) => Err(RecvTimeoutError::Timeout),
            Some(at) => ends
                .tasks
                .recv_timeout(at.saturating_duration_since(Instant::now())),
            None => ends.tasks.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        let first = match task {
            Ok(task) => Some(task),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => return Ok(false),
        };
        let more = std::iter::from_fn(|| ends.tasks.try_recv().ok());
        let (mut written, mut buffers, mut handled) = (0, Vec::new(), 0);
        for task in first.into_iter().chain(more).take(BATCH) {
            handled += u64::from(task.is_about_values());
            match task {
                Write::Close => return Ok(true),
                Write::Groups(groups) => {
                    for group in groups {
                        written += sink.write(group.address, &group.bytes)?;
                        buffers.push(group.bytes);
                    }
                }
                // The KEEP of a session without HAVE changes nothing: the session has started.
                Write::Keep(_) if !has_some => {}
                Write::Keep(extents) => {
                    for extent in extents.ranges().iter().flat_map(Clone::clone) {
                        sink.keep(extent)?;
                    }
                    sink.start()?;
                    drop(ends.replies.send(WriteReply::Started(sink.verified())));
                }
                Write::Value(extent, value) => sink.on_value(extent, &value)?,
                Write::GroupValues(extent, values) => sink.on_group_values(extent, &values)?,
                Write::Withdrawn(file) => sink.on_withdrawn(file)?,
            }
        }
        if written > 0 {
            drop(ends.replies.send(WriteReply::Written(written, buffers)));
        }
        if handled > 0 {
            drop(ends.replies.send(WriteReply::Handled(handled)));
        }
        sink.poll(ends.clock.now())?;
        while let Some(event) = sink.poll_event() {
            let reply = match event {
                SinkEvent::Complete if sink.failed() > 0 => {
                    let failed = sink.failed();
                    return Err(FilesError(format!(
                        "{failed} files, links or directories could not be put into place; the receiver's messages name them"
                    )));
                }
                SinkEvent::Complete => WriteReply::Complete(sink.root().unwrap_or_default()),
                event => WriteReply::Event(event),
            };
            if ends.replies.send(reply).is_err() {
                return Ok(false);
            }
        }
        ends.waker.wake();
    }
}
