//! Conversions from the values of the store.

use super::config::{Change, ChangeKind, ConfirmPending, Origin, Revision};

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
