//! The history of the configuration: revisions, their differences, and pending confirmations.

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

/// The operation that made a revision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Operation {
    /// The empty configuration of a new store.
    Initial,
    /// A commit.
    Commit,
    /// Objects were given to another owner; the configuration is that of the revision before.
    Own,
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
    /// The number of the revision, counted from 0.
    pub number: u64,
    /// The time of the commit, in seconds since 1970-01-01 UTC.
    pub time: u64,
    /// The author of the commit.
    pub author: String,
    /// The reason for the commit.
    pub comment: String,
    /// The operation that made the revision.
    pub operation: Operation,
    /// The front end that made the change: `local` for REST and the command line, or a machine such as `ovsdb`.
    pub origin: String,
    /// The number that the desired state has at its origin: `next_cfg` of an Open vSwitch database, `mod_revision` in
    /// etcd.
    #[serde(default)]
    pub external: Option<u64>,
    /// The first of the revisions that this one replaced: consecutive revisions of one machine replace each other.
    #[serde(default)]
    pub replaces: Option<u64>,
}

impl Revision {
    /// Returns the first number that the revision stands for: its own, unless it replaced others.
    pub fn first(&self) -> u64 {
        self.replaces.unwrap_or(self.number)
    }
}

/// An object of the configuration and its owner.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
pub struct Owned {
    /// The object: `bridge/br0`, `system`.
    pub object: String,
    /// The origin that it belongs to: `local`, `ovsdb`.
    pub owner: String,
}

/// The owners of all objects of the configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
pub struct Ownership {
    /// The objects in order of their names.
    pub objects: Vec<Owned>,
}

/// A change of owners.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct OwnRequest {
    /// The objects: `bridge/br0`, or `br0` if no other object has this name.
    pub objects: Vec<String>,
    /// The new owner: `local`, `ovsdb`.
    pub owner: String,
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
    #[cfg_attr(feature = "server", schema(value_type = Json))]
    pub old: Option<Json>,
    /// The value after the change; `null` if it was removed.
    #[serde(default)]
    #[cfg_attr(feature = "server", schema(value_type = Json))]
    pub new: Option<Json>,
    /// True if the change takes effect only after a restart of the daemon.
    pub restart: bool,
    /// The origin that owns the object, if it is a machine; `null` for `local`.
    #[serde(default)]
    pub owner: Option<String>,
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
    /// The objects that belong to other origins and stay as they are, although the change did not contain them so.
    #[serde(default)]
    pub left_alone: Vec<Owned>,
}
