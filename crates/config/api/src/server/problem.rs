//! Problem documents as HTTP responses, and conversions of errors to problems.

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};

use millrace_model::ConfigErrors;
use millrace_store::{CommitError, ConfirmError, LockError, ReadError, StorageError, UnixTime};

use super::live::LiveError;
use crate::view::{InvalidValue, Problem, ProblemKind, format_utc};

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let unauthorized = self.is(ProblemKind::Unauthorized);
        let mut response = (status, Json(self)).into_response();
        let headers = response.headers_mut();
        headers.insert(
            header::CONTENT_TYPE,
            HeaderValue::from_static("application/problem+json"),
        );
        if unauthorized {
            // RFC 6750, section 3, requires the header.
            headers.insert(
                header::WWW_AUTHENTICATE,
                HeaderValue::from_static("Bearer realm=\"millrace\""),
            );
        }
        response
    }
}

impl From<LiveError> for Problem {
    fn from(error: LiveError) -> Problem {
        let detail = error.to_string();
        match error {
            LiveError::FlowMod { index, code, message } => flow_refused(index, &code, message),
            LiveError::NoBridge { .. }
            | LiveError::NoVrf { .. }
            | LiveError::NoPort { .. }
            | LiveError::NoTable { .. }
            | LiveError::NoHop { .. } => Problem::new(ProblemKind::NotFound, detail),
            LiveError::LogFilter { .. } | LiveError::NothingToLoad { .. } => {
                Problem::new(ProblemKind::Invalid, detail)
            }
            LiveError::Contradicted { next_step, .. } => {
                Problem::new(ProblemKind::Conflict, detail).with_next_step(next_step)
            }
            LiveError::Unavailable { next_step, .. } => {
                Problem::new(ProblemKind::Unavailable, detail).with_next_step(next_step)
            }
        }
    }
}

impl From<ConfigErrors> for Problem {
    fn from(errors: ConfigErrors) -> Problem {
        let mut problem = Problem::new(ProblemKind::Invalid, errors.to_string());
        problem.errors = errors
            .shown()
            .map(|error| InvalidValue {
                pointer: error.path.pointer(),
                code: error.problem.code().to_owned(),
                detail: error.problem.to_string(),
            })
            .collect();
        problem
    }
}

impl From<StorageError> for Problem {
    fn from(error: StorageError) -> Problem {
        Problem::new(ProblemKind::Internal, error.to_string())
    }
}

impl From<ReadError> for Problem {
    fn from(error: ReadError) -> Problem {
        match error {
            ReadError::Storage(error) => error.into(),
            error => Problem::new(ProblemKind::NotFound, error.to_string()),
        }
    }
}

impl From<CommitError> for Problem {
    fn from(error: CommitError) -> Problem {
        match error {
            CommitError::Invalid(errors) => errors.into(),
            CommitError::Read(error) => error.into(),
            CommitError::Storage(error) => error.into(),
            CommitError::DeadlinePassed { .. } => Problem::new(ProblemKind::Invalid, error.to_string()),
            CommitError::Unconfirmed { .. } => Problem::new(ProblemKind::Conflict, error.to_string())
                .with_next_step(
                    "confirm it with `millrace confirm`, or roll it back with `millrace confirm --cancel`",
                ),
            CommitError::Locked { holder, expires } => locked(&holder, expires),
            CommitError::Owned { .. } => Problem::new(ProblemKind::Owned, error.to_string()),
            CommitError::Object(error) => Problem::new(ProblemKind::NotFound, error.to_string())
                .with_next_step("`millrace show owners` lists the objects"),
            error => Problem::new(ProblemKind::Conflict, error.to_string()),
        }
    }
}

impl From<LockError> for Problem {
    fn from(error: LockError) -> Problem {
        match error {
            LockError::Held { holder, expires } => locked(&holder, expires),
            error => Problem::new(ProblemKind::Conflict, error.to_string()),
        }
    }
}

/// Returns the problem of a request while another session holds the lock.
fn locked(holder: &str, expires: UnixTime) -> Problem {
    let until = format_utc(expires.0);
    let detail = format!("{holder} holds the lock on the configuration, until {until} unless it is renewed");
    Problem::new(ProblemKind::Locked, detail)
        .with_next_step("wait until it is free, or break it with `millrace lock break`")
}

impl From<ConfirmError> for Problem {
    fn from(error: ConfirmError) -> Problem {
        match error {
            ConfirmError::Storage(error) => error.into(),
            ConfirmError::Locked { holder, expires } => locked(&holder, expires),
            error => Problem::new(ProblemKind::Conflict, error.to_string()),
        }
    }
}

/// Returns the problem of a request whose flow at `index` was rejected.
pub(super) fn flow_refused(index: usize, code: &str, detail: String) -> Problem {
    let mut problem = Problem::new(
        ProblemKind::Invalid,
        format!("flow {}: {detail}; nothing was changed", index + 1),
    );
    problem.errors.push(InvalidValue {
        pointer: format!("/flows/{index}"),
        code: code.to_owned(),
        detail,
    });
    problem
}

/// Returns the text of the page at a problem's `type`, or `None` if no kind has this name.
pub(super) fn page(name: &str) -> Option<String> {
    let kind = ProblemKind::all().find(|kind| kind.name() == name)?;
    Some(format!("{} (HTTP {}).\n", kind.title(), kind.status()))
}
