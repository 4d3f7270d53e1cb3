//! The two times of an event: of the monotonic clock and of the wall clock.

use millrace_ix_model::Timestamp;
use millrace_ix_store::UnixMillis;
use millrace_types::Time;

/// The times of an event: monotonic time for the engine, and wall-clock time for stored values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Now {
    /// Monotonic time.
    pub time: Time,
    /// Time of the wall clock.
    pub wall: UnixMillis,
}

impl Now {
    pub(crate) fn timestamp(self) -> Timestamp {
        Timestamp::from_millis(self.wall.0)
    }
}
