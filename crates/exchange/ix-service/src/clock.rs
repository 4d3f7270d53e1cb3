//! The clock of the engine.

use std::time::{Instant, SystemTime};

use millrace_ix_store::UnixMillis;
use millrace_types::Time;

use crate::core::Now;

/// The monotonic clock and the wall clock. The wall clock is read once, so that a step of the system clock
/// ends no validity early.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    start: Instant,
    wall: u64,
}

impl Clock {
    pub(crate) fn new() -> Clock {
        let wall = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default();
        Clock {
            start: Instant::now(),
            wall: u64::try_from(wall.as_millis()).unwrap_or(u64::MAX),
        }
    }

    pub(crate) fn now(&self) -> Now {
        let elapsed = self.start.elapsed();
        let nanos = u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX);
        Now {
            time: Time::from_nanos(nanos),
            wall: UnixMillis(self.wall + nanos / 1_000_000),
        }
    }
}
