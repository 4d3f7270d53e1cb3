//! Problem documents (RFC 9457). Every failed request has one.

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use millrace_ix_model::{Reason, reason};
use serde::Serialize;
use utoipa::ToSchema;

use crate::view::{Coded, coded};

/// The kind of a problem. Its name is the last part of the document's `type`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProblemKind {
    /// The path, the query, a header or the JSON syntax is wrong.
    BadRequest,
    /// The request has no session and no API key, or a wrong one.
    Unauthorized,
    /// The password is right and a one-time code is missing.
    CodeRequired,
    /// The role does not permit the request.
    Forbidden,
    /// A page of another origin sent the request.
    ForeignOrigin,
    /// The object does not exist, or it belongs to another account.
    NotFound,
    /// The resource does not support this method.
    MethodNotAllowed,
    /// The state of the object does not allow the change, or an idempotency key was used for another request.
    Conflict,
    /// The object has a newer revision than the one in `If-Match`.
    Stale,
    /// The body is too large.
    TooLarge,
    /// The body is not JSON.
    UnsupportedMedia,
    /// The body is well formed, but a value is not valid.
    Invalid,
    /// `If-Match` is missing.
    ConditionRequired,
    /// Too many requests.
    Busy,
    /// An error in this program.
    Internal,
    /// The engine or its database does not answer.
    Unavailable,
}

impl ProblemKind {
    /// All kinds.
    pub const ALL: [ProblemKind; 16] = [
        ProblemKind::BadRequest,
        ProblemKind::Unauthorized,
        ProblemKind::CodeRequired,
        ProblemKind::Forbidden,
        ProblemKind::ForeignOrigin,
        ProblemKind::NotFound,
        ProblemKind::MethodNotAllowed,
        ProblemKind::Conflict,
        ProblemKind::Stale,
        ProblemKind::TooLarge,
        ProblemKind::UnsupportedMedia,
        ProblemKind::Invalid,
        ProblemKind::ConditionRequired,
        ProblemKind::Busy,
        ProblemKind::Internal,
        ProblemKind::Unavailable,
    ];

    const fn row(self) -> (u16, &'static str, &'static str) {
        match self {
            ProblemKind::BadRequest => (400, "bad-request", "The request is malformed"),
            ProblemKind::Unauthorized => (401, "unauthorized", "Sign-in is required"),
            ProblemKind::CodeRequired => (401, "code-required", "A one-time code is required"),
            ProblemKind::Forbidden => (403, "forbidden", "The role does not permit this"),
            ProblemKind::ForeignOrigin => {
                (403, "foreign-origin", "A page of another origin sent the request")
            }
            ProblemKind::NotFound => (404, "not-found", "There is no such resource"),
            ProblemKind::MethodNotAllowed => (
                405,
                "method-not-allowed",
                "The resource does not support the method",
            ),
            ProblemKind::Conflict => (409, "conflict", "The state does not allow the change"),
            ProblemKind::Stale => (412, "stale", "The object has changed since it was read"),
            ProblemKind::TooLarge => (413, "too-large", "The body is too large"),
            ProblemKind::UnsupportedMedia => (415, "unsupported-media", "The body has another media type"),
            ProblemKind::Invalid => (422, "invalid", "A value is not valid"),
            ProblemKind::ConditionRequired => (428, "condition-required", "If-Match is required"),
            ProblemKind::Busy => (429, "busy", "Too many requests"),
            ProblemKind::Internal => (500, "internal", "The engine made a mistake"),
            ProblemKind::Unavailable => (503, "unavailable", "The engine does not answer"),
        }
    }

    /// Returns the HTTP status.
    pub const fn status(self) -> u16 {
        self.row().0
    }

    /// Returns the last part of the document's `type`.
    pub const fn name(self) -> &'static str {
        self.row().1
    }

    /// Returns the title.
    pub const fn title(self) -> &'static str {
        self.row().2
    }
}

/// A value of the request that is not valid.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct InvalidValue {
    /// The JSON pointer (RFC 6901) of the value in the body.
    pub pointer: String,
    /// The reason as a word, for programs and translations.
    pub code: String,
    /// The reason in words.
    pub detail: String,
    /// The translatable sentences of the reason; empty if the reason has no code.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    pub coded: Vec<Coded>,
}

/// A problem document (RFC 9457).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Problem {
    /// The URI reference of the kind.
    #[serde(rename = "type")]
    #[schema(rename = "type", value_type = String)]
    pub kind: Box<str>,
    /// The title of the kind.
    #[schema(value_type = String)]
    pub title: &'static str,
    /// The HTTP status.
    pub status: u16,
    /// The description of this occurrence.
    #[schema(value_type = String)]
    pub detail: Box<str>,
    /// The reason as a word, for programs and translations.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false, value_type = Option<String>)]
    pub code: Option<&'static str>,
    /// The translatable sentences of `detail`; empty if the reason has no code.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    pub coded: Vec<Coded>,
    /// The next step.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false, value_type = Option<String>)]
    pub next_step: Option<Box<str>>,
    /// The values that are not valid.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    pub errors: Vec<InvalidValue>,
    /// The seconds after which the request may be repeated; also in `Retry-After`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false)]
    pub retry_after: Option<u32>,
}

impl Problem {
    /// Returns a problem of a kind.
    pub fn new(kind: ProblemKind, detail: impl Into<Box<str>>) -> Problem {
        Problem {
            kind: format!("/api/v1/problems/{}", kind.name()).into(),
            title: kind.title(),
            status: kind.status(),
            detail: detail.into(),
            code: None,
            coded: Vec::new(),
            next_step: None,
            errors: Vec::new(),
            retry_after: None,
        }
    }

    /// Returns the problem of one value that is not valid.
    pub(crate) fn invalid(pointer: impl Into<String>, detail: impl std::fmt::Display) -> Problem {
        Problem::new(ProblemKind::Invalid, detail.to_string()).with_error(pointer, "invalid")
    }

    /// Returns the problem for an object that does not exist or that the actor may not see. Both cases get
    /// the same answer.
    pub fn absent(id: impl std::fmt::Display) -> Problem {
        Problem::because(ProblemKind::NotFound, reason::not_found(id))
    }

    /// Returns a problem of a kind, with a reason that the page can translate.
    pub fn because(kind: ProblemKind, reason: Reason) -> Problem {
        let mut problem = Problem::new(kind, reason.text);
        problem.coded = coded(&reason.coded);
        problem
    }

    /// Adds the code of the reason.
    #[must_use]
    pub fn with_code(mut self, code: &'static str) -> Problem {
        self.code = Some(code);
        self
    }

    /// Adds the next step.
    #[must_use]
    pub fn with_next_step(mut self, next_step: impl Into<Box<str>>) -> Problem {
        self.next_step = Some(next_step.into());
        self
    }

    /// Adds a value that is not valid.
    #[must_use]
    pub fn with_error(mut self, pointer: impl Into<String>, code: impl Into<String>) -> Problem {
        let detail = self.detail.to_string();
        self.errors.push(InvalidValue {
            pointer: pointer.into(),
            code: code.into(),
            detail,
            coded: self.coded.clone(),
        });
        self
    }

    /// Adds the time in seconds after which the request may be repeated.
    #[must_use]
    pub fn retry_after(mut self, seconds: u32) -> Problem {
        self.retry_after = Some(seconds);
        self
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let retry_after = self.retry_after;
        let mut response = (status, Json(&self)).into_response();
        // The IX-API layer converts this problem into the format of IX-API.
        response.extensions_mut().insert(self);
        let headers = response.headers_mut();
        headers.insert(
            header::CONTENT_TYPE,
            HeaderValue::from_static("application/problem+json"),
        );
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if status == StatusCode::UNAUTHORIZED {
            // RFC 9110, section 11.6.1, requires the header.
            headers.insert(
                header::WWW_AUTHENTICATE,
                HeaderValue::from_static("Bearer realm=\"millrace-ix\""),
            );
        }
        if let Some(seconds) = retry_after {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}

/// Returns the text for the URI in a problem's `type`; `None` if no kind has this name.
pub(crate) fn describe(name: &str) -> Option<String> {
    let kind = ProblemKind::ALL.into_iter().find(|kind| kind.name() == name)?;
    Some(format!("{} (HTTP {}).\n", kind.title(), kind.status()))
}
