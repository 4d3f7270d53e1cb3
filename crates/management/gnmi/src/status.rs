//! Failures as status codes of gRPC.

use millrace_yang::datastore::Failure;
use millrace_yang::edit::{EditError, Problem};
use tonic::Status;

/// Returns the status of a failure of the switch. `ABORTED` is worth a repetition, the others are not.
pub fn of_failure(failure: Failure) -> Status {
    match failure {
        Failure::Invalid(text) => Status::invalid_argument(text),
        Failure::Owned(text) | Failure::Locked(text) | Failure::Conflict(text) => {
            Status::failed_precondition(text)
        }
        Failure::Stale(text) => Status::aborted(text),
        Failure::TooLarge(text) => Status::resource_exhausted(text),
        Failure::Unavailable(text) => Status::unavailable(text),
    }
}

/// Returns the status of an edit that cannot be applied.
pub(crate) fn of_edit(error: &EditError) -> Status {
    let text = error.to_string();
    match error.problem {
        Problem::DataMissing => Status::not_found(text),
        Problem::DataExists => Status::already_exists(text),
        _ => Status::invalid_argument(text),
    }
}
