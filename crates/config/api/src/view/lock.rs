//! The lock on the configuration.

use serde::{Deserialize, Serialize};

/// A lock that a session holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
pub struct Lock {
    /// The name of the holder, as the author of a revision.
    pub holder: String,
    /// The time at which the lock was taken or renewed, in seconds since 1970-01-01 UTC.
    pub since: u64,
    /// The end of the lease, in seconds since 1970-01-01 UTC.
    pub expires: u64,
}

/// The lock, if a session holds it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
pub struct LockState {
    /// The lock; `null` if it is free.
    #[serde(default)]
    pub lock: Option<Lock>,
}

/// The lock that this session has taken.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
pub struct LockTaken {
    /// The secret of the session, for the header `Lock-Token` of its requests.
    pub token: String,
    /// The lock.
    pub lock: Lock,
}
