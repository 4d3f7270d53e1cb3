//! The clock for time stamps of gNMI's messages.

use std::time::{SystemTime, UNIX_EPOCH};

/// Returns the time in nanoseconds since 1970.
pub(super) fn nanos() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}
