//! Events on their way to the consumer: in batches, through a bounded channel that blocks the reader and drops nothing.
//!
//! While the reader is blocked, notifications wait in the receive buffer of the socket, and zebra waits in its TCP connection.

use std::sync::mpsc::SyncSender;

use millrace_rib::event::{Change, Source};
use millrace_rib::{Event, Netns};

/// The maximum number of events in a batch. One passage through the channel costs as much as decoding about 20 routes.
pub const BATCH_LEN: usize = 512;

/// The consumer has dropped its end of the channel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ConsumerGone;

pub(crate) struct Outbox {
    netns: Netns,
    source: Source,
    batch: Vec<Event>,
    events: SyncSender<Vec<Event>>,
}

impl Outbox {
    pub(crate) fn new(netns: Netns, source: Source, events: SyncSender<Vec<Event>>) -> Outbox {
        Outbox {
            netns,
            source,
            batch: Vec::with_capacity(BATCH_LEN),
            events,
        }
    }

    /// Adds a change, and sends the batch if it is full.
    pub(crate) fn push(&mut self, change: Change) -> Result<(), ConsumerGone> {
        self.batch.push(Event {
            netns: self.netns,
            source: self.source,
            change,
        });
        if self.batch.len() < BATCH_LEN {
            return Ok(());
        }
        self.flush()
    }

    /// Sends what the batch has.
    pub(crate) fn flush(&mut self) -> Result<(), ConsumerGone> {
        if self.batch.is_empty() {
            return Ok(());
        }
        let batch = core::mem::replace(&mut self.batch, Vec::with_capacity(BATCH_LEN));
        self.events.send(batch).map_err(|_| ConsumerGone)
    }
}
