//! Conversions from the values of the store.

use super::config::{Change, ChangeKind, ConfirmPending, Operation, Owned, Revision};
use super::lock::Lock;

impl From<millrace_store::Operation> for Operation {
    fn from(operation: millrace_store::Operation) -> Operation {
        use millrace_store::Operation as Given;
        match operation {
            Given::Initial => Operation::Initial,
            Given::Commit => Operation::Commit,
            Given::Own => Operation::Own,
            Given::Rollback { to } => Operation::Rollback { to: to.0 },
            Given::Expired { to } => Operation::Expired { to: to.0 },
            Given::Cancelled { to } => Operation::Cancelled { to: to.0 },
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
            operation: given.operation.into(),
            origin: given.origin.to_string(),
            external: given.external,
            replaces: given.replaces.map(|first| first.0),
        }
    }
}

impl From<&millrace_store::Owned> for Owned {
    fn from(given: &millrace_store::Owned) -> Owned {
        Owned {
            object: given.object.path(),
            owner: given.owner.to_string(),
        }
    }
}

impl From<&millrace_store::Lock> for Lock {
    fn from(given: &millrace_store::Lock) -> Lock {
        Lock {
            holder: given.holder.clone(),
            since: given.since.0,
            expires: given.expires.0,
        }
    }
}

impl Change {
    /// Returns a change with the owner of its object.
    pub(crate) fn owned(given: millrace_model::Change, owners: &millrace_store::Owners) -> Change {
        let owner = owners.owner(&given.object());
        let owner = (!owner.is_local()).then(|| owner.to_string());
        let mut change = Change::from(given);
        if let Some(owner) = &owner {
            change.text += &format!(" (of {owner})");
        }
        Change { owner, ..change }
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
            owner: None,
        }
    }
}
