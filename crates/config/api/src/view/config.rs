//! The configuration's history: revisions, what changed between them, and what waits to be confirmed.

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

/// How a revision came about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Origin {
    /// The empty configuration of a new store.
    Initial,
    /// Somebody committed it.
    Commit,
    /// Somebody went back to an earlier revision.
    Rollback {
        /// Whose content it has.
        to: u64,
    },
    /// The revision before was not confirmed in time.
    Expired {
        /// Whose content it has.
        to: u64,
    },
    /// Somebody took the revision before back instead of confirming it.
    Cancelled {
        /// Whose content it has.
        to: u64,
    },
}

/// A revision without its content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
pub struct Revision {
    /// Its number: counted from 0 without gaps.
    pub number: u64,
    /// When it was committed: seconds since 1970-01-01 UTC.
    pub time: u64,
    /// Who made it.
    pub author: String,
    /// Why.
    pub comment: String,
    /// How it came about.
    pub origin: Origin,
}

/// A revision that is taken back unless somebody confirms it in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
pub struct ConfirmPending {
    /// The revision that waits.
    pub revision: u64,
    /// The revision whose content comes back.
    pub fallback: u64,
    /// When it comes back: seconds since 1970-01-01 UTC.
    pub deadline: u64,
}

/// Whether a revision waits to be confirmed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
pub struct Confirmation {
    /// `null` if none does.
    #[serde(default)]
    pub pending: Option<ConfirmPending>,
}

/// The newest revisions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
pub struct Revisions {
    /// The newest first.
    pub revisions: Vec<Revision>,
    /// Whether the newest waits to be confirmed.
    #[serde(default)]
    pub pending: Option<ConfirmPending>,
}

/// A revision with its content.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
pub struct RevisionConfig {
    /// The revision.
    pub revision: Revision,
    /// Its content.
    #[cfg_attr(feature = "server", schema(value_type = millrace_model::Config))]
    pub config: Json,
}

/// What happened to a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum ChangeKind {
    /// A bridge, port, controller or listener is new.
    Added,
    /// It is gone.
    Removed,
    /// A key has another value.
    Changed,
}

/// One difference between two configurations.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
pub struct Change {
    /// What changed, by names: `/bridge/br0/port/p1/mtu`.
    pub path: String,
    /// How.
    pub kind: ChangeKind,
    /// The value before.
    #[serde(default)]
    pub old: Option<Json>,
    /// The value after.
    #[serde(default)]
    pub new: Option<Json>,
    /// True if it takes effect only when the daemon is started again.
    pub restart: bool,
    /// The change on one line: `~ bridge br0 port p1 mtu: 1500 -> 9000`.
    pub text: String,
}

/// What changed from one revision to another.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
pub struct Diff {
    /// The older one, as asked.
    pub from: u64,
    /// The newer one, as asked.
    pub to: u64,
    /// Empty if both mean the same.
    pub changes: Vec<Change>,
}

/// What became of a change of the configuration.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
pub struct Committed {
    /// True if nothing was committed because a dry run was asked for.
    pub dry_run: bool,
    /// The newest revision now; the one before the change in a dry run.
    pub revision: Revision,
    /// What the change changed, or would change.
    pub changes: Vec<Change>,
    /// Set if the change must be confirmed.
    #[serde(default)]
    pub pending: Option<ConfirmPending>,
}

#[cfg(feature = "server")]
mod from_store {
    //! From the values of the store to what is shown.

    use super::{Change, ChangeKind, ConfirmPending, Origin, Revision};

    impl From<millrace_store::Origin> for Origin {
        fn from(origin: millrace_store::Origin) -> Origin {
            use millrace_store::Origin as Given;
            match origin {
                Given::Initial => Origin::Initial,
                Given::Commit => Origin::Commit,
                Given::Rollback { to } => Origin::Rollback { to: to.0 },
                Given::Expired { to } => Origin::Expired { to: to.0 },
                Given::Cancelled { to } => Origin::Cancelled { to: to.0 },
            }
        }
    }

    impl From<&millrace_store::Revision> for Revision {
        fn from(given: &millrace_store::Revision) -> Revision {
            Revision {
                number: given.number.0,
                time: given.time.0,
                author: given.author.clone(),
                comment: given.comment.clone(),
                origin: given.origin.into(),
            }
        }
    }

    impl From<millrace_store::Pending> for ConfirmPending {
        fn from(given: millrace_store::Pending) -> ConfirmPending {
            ConfirmPending {
                revision: given.revision.0,
                fallback: given.fallback.0,
                deadline: given.deadline.0,
            }
        }
    }

    impl From<millrace_model::Change> for Change {
        fn from(given: millrace_model::Change) -> Change {
            use millrace_model::ChangeKind as Given;
            Change {
                text: given.to_string(),
                path: given.path,
                kind: match given.kind {
                    Given::Added => ChangeKind::Added,
                    Given::Removed => ChangeKind::Removed,
                    Given::Changed => ChangeKind::Changed,
                },
                old: given.old,
                new: given.new,
                restart: given.restart,
            }
        }
    }
}
