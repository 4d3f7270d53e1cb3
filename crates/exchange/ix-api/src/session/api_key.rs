//! API keys: `mx_` and 256 random bits. The store holds only the SHA-256 of a key. A key acts as its user,
//! within its scope.

use millrace_ix_model::{Timestamp, UserId};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The prefix of every key. It lets scanners find keys in repositories.
pub(crate) const PREFIX: &str = "mx_";

/// The requests that a key may send.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum KeyScope {
    /// Requests that read.
    Read,
    /// All requests that its user may send.
    Write,
}

/// A key as it is stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApiKeyRecord {
    /// The user that the key acts as.
    pub user: UserId,
    /// The name by which the owner recognizes where the key is used.
    pub name: String,
    /// The requests that the key may send.
    pub scope: KeyScope,
    /// The time of its creation.
    pub created: Timestamp,
    /// The time of the last request, to the minute.
    #[serde(default)]
    pub last_used: Option<Timestamp>,
}
