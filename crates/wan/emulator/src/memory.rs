//! The memory that a direction needs, and the error for a direction that cannot be emulated.

use thiserror::Error;

use crate::config::ConfigError;
use crate::model::DirectionModel;
use crate::ring::records::MAX_FRAME;

/// The error for a direction that cannot be emulated.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum PlanError {
    /// A setting is not valid.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The number of bytes in flight has no bound.
    #[error(
        "memory: a path with delay and without rate may hold any number of bytes; to fix it: set `memory`, such as `256MiB` \
         (bytes per second × longest delay × 1.4), or `rate`"
    )]
    NeedsMemory,
    /// There is less memory than frames may need.
    #[error(
        "memory: {given} bytes are given, and rate × (longest delay + queue) needs {needed}; to fix it: give {} MiB, or lower the \
         rate, the delay, its jitter, the queue or the share of duplicates",
        needed.div_ceil(1 << 20)
    )]
    MemoryShort {
        /// The bytes that frames may need.
        needed: usize,
        /// The bytes that the caller gave.
        given: usize,
    },
    /// The memory has more units than the link field of a record can address.
    #[error(
        "memory: {needed} bytes are needed, and 64 GiB are the most for a direction; expected a lower rate, delay or queue"
    )]
    TooMuch {
        /// The bytes that frames may need.
        needed: u64,
    },
    /// The number of classes cannot change under traffic.
    #[error("class: there are {expected}, and the change has {given}; to fix it: create the emulator again")]
    ClassesChanged {
        /// The number of classes since the start.
        expected: usize,
        /// The number of classes of the change.
        given: usize,
    },
}

/// The memory of a path without delay, in bytes. Its frames wait only for the receiver.
pub(crate) const WITHOUT_DELAY: u64 = 4 << 20;

/// Returns the bytes that a model needs, or `None` if they have no bound. A number that does not fit into the
/// type saturates.
pub(crate) fn memory_needed(model: &DirectionModel) -> Option<usize> {
    let records = model.record_bytes()?;
    // The ring's end may be padded, and a frame is stored before the receiver takes one.
    let slack = 4 * MAX_FRAME as u64 + WITHOUT_DELAY / 4;
    Some(usize::try_from(records.saturating_add(slack)).unwrap_or(usize::MAX))
}
