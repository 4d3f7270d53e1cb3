//! The history of the configuration: revisions, their differences, and pending confirmations.

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

/// The origin of a revision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Origin {
    /// The empty configuration of a new store.
    Initial,
    /// A commit.
    Commit,
    /// A rollback to an earlier revision.
    Rollback {
        /// The revision with the same configuration.
        to: u64,
    },
    /// A rollback, because the previous revision was not confirmed in time.
    Expired {
        /// The revision with the same configuration.
        to: u64,
    },
    /// A rollback of the previous revision on request, instead of a confirmation.
    Cancelled {
        /// The revision with the same configuration.
        to: u64,
    },
}

/// A revision without its configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
pub struct Revision {
    /// The number of the revision, counted from 0 without gaps.
    pub number: u64,
    /// The time of the commit, in seconds since 1970-01-01 UTC.
    pub time: u64,
    /// The author of the commit.
    pub author: String,
    /// The reason for the commit.
    pub comment: String,
    /// The origin of the revision.
    pub origin: Origin,
}

/// A revision that is rolled back unless it is confirmed in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
pub struct ConfirmPending {
    /// The revision that waits for a confirmation.
    pub revision: u64,
    /// The revision with the configuration that a rollback restores.
    pub fallback: u64,
    /// The time of the rollback, in seconds since 1970-01-01 UTC.
    pub deadline: u64,
}

/// The revision that waits for a confirmation, if any.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
pub struct Confirmation {
    /// The revision and its deadline; `null` if none waits.
    #[serde(default)]
    pub pending: Option<ConfirmPending>,
}

/// The newest revisions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
pub struct Revisions {
    /// The revisions, newest first.
    pub revisions: Vec<Revision>,
    /// The confirmation that the newest revision waits for; `null` for none.
    #[serde(default)]
    pub pending: Option<ConfirmPending>,
}

/// A revision with its configuration.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
pub struct RevisionConfig {
    /// The revision.
    pub revision: Revision,
    /// The configuration.
    #[cfg_attr(feature = "server", schema(value_type = millrace_model::Config))]
    pub config: Json,
}

/// The kind of a difference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum ChangeKind {
    /// A bridge, port, controller or listener is new.
    Added,
    /// A bridge, port, controller or listener was removed.
    Removed,
    /// A key has another value.
    Changed,
}

/// One difference between two configurations.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
pub struct Change {
    /// The path of the changed value, by names: `/bridge/br0/port/p1/mtu`.
    pub path: String,
    /// The kind of the difference.
    pub kind: ChangeKind,
    /// The value before the change; `null` if it was added.
    #[serde(default)]
    pub old: Option<Json>,
    /// The value after the change; `null` if it was removed.
    #[serde(default)]
    pub new: Option<Json>,
    /// True if the change takes effect only after a restart of the daemon.
    pub restart: bool,
    /// The change on one line: `~ bridge br0 port p1 mtu: 1500 -> 9000`.
    pub text: String,
}

/// The differences between two revisions.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
pub struct Diff {
    /// The revision to compare from.
    pub from: u64,
    /// The revision to compare to.
    pub to: u64,
    /// The differences; empty if both configurations are equivalent.
    pub changes: Vec<Change>,
}

/// The result of a change of the configuration.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
pub struct Committed {
    /// True if nothing was committed because the request asked for a dry run.
    pub dry_run: bool,
    /// The newest revision; in a dry run, the revision before the change.
    pub revision: Revision,
    /// The differences that the change makes, or would make.
    pub changes: Vec<Change>,
    /// The confirmation that the change waits for; `null` for none.
    #[serde(default)]
    pub pending: Option<ConfirmPending>,
}
