//! Wall-clock time. The store never reads a clock: callers pass the time.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

/// Wall-clock time in whole seconds since 1970-01-01 UTC. The store never reads a clock: callers pass the time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct UnixTime(pub u64);

impl UnixTime {
    /// Returns this time plus `seconds`, saturating.
    pub const fn plus(self, seconds: u64) -> UnixTime {
        UnixTime(self.0.saturating_add(seconds))
    }

    /// Returns the duration from `earlier` to `self`; zero if `earlier` is later.
    pub const fn since(self, earlier: UnixTime) -> Duration {
        Duration::from_secs(self.0.saturating_sub(earlier.0))
    }
}

impl From<SystemTime> for UnixTime {
    /// Converts a system time; a time before 1970 becomes zero.
    fn from(time: SystemTime) -> UnixTime {
        UnixTime(time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()))
    }
}
