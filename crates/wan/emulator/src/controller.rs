//! The control side of a direction: changes of parameters under traffic, and statistics.

use std::sync::Arc;

use crossbeam_queue::ArrayQueue;
use millrace_types::Time;

use crate::config::DirectionConfig;
use crate::memory::{PlanError, memory_needed};
use crate::model::DirectionModel;
use crate::sources::Sources;
use crate::stats::{Counters, Stats};

/// New parameters for a sender. The old parameters return in the same structure, so that the control side
/// frees all memory that it allocated.
pub(crate) struct Change {
    pub(crate) model: DirectionModel,
    /// The time of the first arrival to which the change applies. [`Time::ZERO`] means from the next burst
    /// on.
    pub(crate) at: Time,
}

pub(crate) struct Mailbox {
    next: ArrayQueue<Box<Change>>,
    retired: ArrayQueue<Box<Change>>,
}

impl Mailbox {
    pub(crate) fn new() -> Mailbox {
        Mailbox {
            next: ArrayQueue::new(1),
            // Each call of `post` adds at most two changes and empties the queue.
            retired: ArrayQueue::new(8),
        }
    }

    #[inline]
    pub(crate) fn next(&self) -> Option<Box<Change>> {
        // An empty queue costs two loads; `pop` would cost a fence.
        if self.next.is_empty() {
            None
        } else {
            self.next.pop()
        }
    }

    /// Returns a change to the control side.
    pub(crate) fn retire(&self, change: Box<Change>) {
        // The queue is never full; if it were, the change would be freed here.
        drop(self.retired.push(change));
    }

    fn post(&self, change: Change) {
        while self.retired.pop().is_some() {}
        drop(self.next.force_push(Box::new(change)));
    }
}

/// The control side of a direction. Clones belong to the same direction.
#[derive(Clone)]
pub struct Controller {
    pub(crate) counters: Arc<Counters>,
    pub(crate) mailbox: Arc<Mailbox>,
    pub(crate) paths: usize,
    pub(crate) memory_size: usize,
}

impl Controller {
    /// Changes the parameters for the frames that are offered after the sender's next `publish`. If there are
    /// several changes before it, only the last one takes effect.
    ///
    /// # Errors
    /// [`PlanError`] if the configuration is not valid, has another number of classes, or needs more memory
    /// than the direction has.
    pub fn set(&self, config: &DirectionConfig, sources: &dyn Sources) -> Result<(), PlanError> {
        self.set_at(Time::ZERO, config, sources)
    }

    /// Changes the parameters for frames that arrive at `at` or later, if the sender has received the change
    /// by then. A later call replaces a change that has not taken effect.
    ///
    /// # Errors
    /// The errors of [`Self::set`].
    pub fn set_at(&self, at: Time, config: &DirectionConfig, sources: &dyn Sources) -> Result<(), PlanError> {
        let model = DirectionModel::compile(config, sources)?;
        if model.paths.len() != self.paths {
            return Err(PlanError::ClassesChanged {
                expected: self.paths - 1,
                given: model.paths.len() - 1,
            });
        }
        // Without a rate there is no bound for comparison. The memory keeps its size.
        let needed = memory_needed(&model).unwrap_or(0);
        if needed > self.memory_size {
            return Err(PlanError::MemoryShort {
                needed,
                given: self.memory_size,
            });
        }
        self.mailbox.post(Change { model, at });
        Ok(())
    }

    /// Returns the counters.
    pub fn stats(&self) -> Stats {
        self.counters.snapshot()
    }
}
