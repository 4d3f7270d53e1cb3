//! Problems as HTTP answers, and what becomes a problem.

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};

use millrace_model::ConfigErrors;
use millrace_store::{CommitError, ConfirmError, ReadError, StorageError};

use super::live::LiveError;
use super::routes::flow_mods::refused;
use crate::view::{Mistake, Problem, ProblemKind};

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
            // RFC 6750, section 3.
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
            LiveError::FlowMod { index, code, message } => refused(index, &code, message),
            LiveError::NoBridge { .. }
            | LiveError::NoPort { .. }
            | LiveError::NoTable { .. }
            | LiveError::NoHop { .. } => Problem::new(ProblemKind::NotFound, detail),
            LiveError::LogFilter { .. } => Problem::new(ProblemKind::Invalid, detail),
            LiveError::Unavailable { remedy, .. } => {
                Problem::new(ProblemKind::Unavailable, detail).with_remedy(remedy)
            }
        }
    }
}

impl From<ConfigErrors> for Problem {
    fn from(errors: ConfigErrors) -> Problem {
        let mut problem = Problem::new(ProblemKind::Invalid, errors.to_string());
        problem.errors = errors
            .iter()
            .map(|error| Mistake {
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
                .with_remedy("`millrace confirm` keeps it, `millrace confirm --cancel` takes it back"),
            error => Problem::new(ProblemKind::Conflict, error.to_string()),
        }
    }
}

impl From<ConfirmError> for Problem {
    fn from(error: ConfirmError) -> Problem {
        match error {
            ConfirmError::Storage(error) => error.into(),
            error => Problem::new(ProblemKind::Conflict, error.to_string()),
        }
    }
}

/// The page about one kind of problem, at the address that its `type` is.
pub(super) fn page(name: &str) -> Option<String> {
    let kind = ProblemKind::all().find(|kind| kind.name() == name)?;
    Some(format!("{} (HTTP {}).\n", kind.title(), kind.status()))
}
