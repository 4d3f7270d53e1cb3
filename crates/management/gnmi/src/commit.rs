//! The Commit extension (gnmi_ext.Commit): a change that takes itself back unless it is confirmed.
//!
//! | action | request of the switch |
//! | --- | --- |
//! | `commit` with `rollback_duration` | the change, with `confirm_within` |
//! | `confirm` | confirm the pending revision |
//! | `cancel` | roll the pending revision back |
//! | `set_rollback_duration` | the same configuration again, with another `confirm_within` |
//!
//! The id is in the comment of the revision, as a digest: it outlives every process.

use millrace_yang::datastore::{Datastore, Pending, confirmation_comment, is_confirmed_by};
use tonic::Status;

use crate::COMMIT;
use crate::proto::gnmi::SetRequest;
use crate::proto::gnmi_ext::{commit, extension};
use crate::status::of_failure;

/// The time for a confirmation unless the client gives one, in seconds.
const ROLLBACK_S: u64 = 600;
/// The longest time that the switch waits, in seconds.
const ROLLBACK_MAX_S: u64 = 86_400;

enum Kind {
    Commit(u64),
    Confirm,
    Cancel,
    Extend(u64),
}

/// The action of a request.
pub(crate) struct Action {
    id: String,
    kind: Kind,
}

/// Returns the Commit extension of a request.
///
/// # Errors
/// `INVALID_ARGUMENT` for one without id or action, or for changes beside `confirm`, `cancel` and `set_rollback_duration`;
/// `UNIMPLEMENTED` for other extensions, whose meaning would be lost.
pub(crate) fn requested(request: &SetRequest, has_changes: bool) -> Result<Option<Action>, Status> {
    let mut action = None;
    for extension in &request.extension {
        match &extension.ext {
            Some(extension::Ext::Commit(commit)) => action = Some(of(commit, has_changes)?),
            Some(extension::Ext::MasterArbitration(_)) => {
                return Err(Status::unimplemented(
                    "the extension MasterArbitration is not supported",
                ));
            }
            _ => {
                return Err(Status::unimplemented(
                    "the extension is not supported: expected Commit",
                ));
            }
        }
    }
    Ok(action)
}

fn of(commit: &crate::proto::gnmi_ext::Commit, has_changes: bool) -> Result<Action, Status> {
    if commit.id.is_empty() {
        return Err(Status::invalid_argument("commit: expected an id"));
    }
    let seconds = |duration: Option<&prost_types::Duration>| {
        let Some(duration) = duration else {
            return Ok(ROLLBACK_S);
        };
        let seconds = u64::try_from(duration.seconds).unwrap_or(0);
        match (1..=ROLLBACK_MAX_S).contains(&seconds) {
            true => Ok(seconds),
            false => Err(Status::invalid_argument(format!(
                "rollback_duration: expected 1 to {ROLLBACK_MAX_S} seconds"
            ))),
        }
    };
    let kind = match &commit.action {
        Some(commit::Action::Commit(request)) => Kind::Commit(seconds(request.rollback_duration.as_ref())?),
        Some(commit::Action::Confirm(_)) => Kind::Confirm,
        Some(commit::Action::Cancel(_)) => Kind::Cancel,
        Some(commit::Action::SetRollbackDuration(request)) => {
            Kind::Extend(seconds(request.rollback_duration.as_ref())?)
        }
        None => {
            let text = "commit: expected commit, confirm, cancel or set_rollback_duration";
            return Err(Status::invalid_argument(text));
        }
    };
    match (&kind, has_changes) {
        (Kind::Commit(_), _) | (_, false) => Ok(Action {
            id: commit.id.clone(),
            kind,
        }),
        _ => Err(Status::invalid_argument(
            "confirm, cancel and set_rollback_duration: expected no delete, replace or update beside them",
        )),
    }
}

impl Action {
    /// Returns the comment of the revision.
    pub(crate) fn comment(&self) -> String {
        confirmation_comment(COMMIT, &self.id)
    }

    /// Returns the seconds until the rollback, for an action that is a change.
    pub(crate) fn confirm_within(&self) -> Option<u64> {
        match self.kind {
            Kind::Commit(seconds) | Kind::Extend(seconds) => Some(seconds),
            Kind::Confirm | Kind::Cancel => None,
        }
    }

    /// Does what needs no change. Returns true if nothing is left to do.
    ///
    /// # Errors
    /// `FAILED_PRECONDITION` if another commit waits, or none where one must.
    pub(crate) fn settle(&self, store: &mut dyn Datastore) -> Result<bool, Status> {
        let pending = store.pending().map_err(of_failure)?;
        let own = |pending: &Pending| is_confirmed_by(&pending.comment, COMMIT, &self.id);
        match (&self.kind, pending) {
            (Kind::Commit(_), None) => Ok(false),
            (Kind::Commit(_), Some(pending)) => Err(Status::failed_precondition(format!(
                "revision {} waits for its confirmation: confirm or cancel it first",
                pending.revision
            ))),
            (_, None) => Err(Status::failed_precondition(
                "no commit waits for its confirmation",
            )),
            (_, Some(pending)) if !own(&pending) => Err(Status::failed_precondition(format!(
                "the id is not that of revision {}, which waits for its confirmation",
                pending.revision
            ))),
            (Kind::Confirm, Some(pending)) => {
                store.confirm(pending.revision).map(|()| true).map_err(of_failure)
            }
            (Kind::Cancel, Some(pending)) => store
                .cancel(pending.revision, "gNMI commit cancelled")
                .map(|()| true)
                .map_err(of_failure),
            (Kind::Extend(_), Some(_)) => Ok(false),
        }
    }
}
