//! Points in time, which callers pass to the store.

use serde::{Deserialize, Serialize};

/// Milliseconds since 1970-01-01 UTC, without leap seconds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct UnixMillis(pub u64);
