//! Errors as problem documents (RFC 9457).

use serde::{Deserialize, Serialize};

/// The kinds of problems; each is a `type` (RFC 9457, section 3.1.1), relative to `/problems/`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ProblemKind {
    /// The request is not well formed: a bad path, query or header, or invalid JSON.
    BadRequest,
    /// The token is missing or wrong.
    Unauthorized,
    /// A web page of another origin sent the request.
    ForeignOrigin,
    /// The resource does not exist.
    NotFound,
    /// The resource does not support the method.
    MethodNotAllowed,
    /// The request was too slow, or the response took too long.
    Timeout,
    /// The request contradicts the state of the resource.
    Conflict,
    /// The request changes an object that belongs to another origin.
    Owned,
    /// The configuration has changed since the client read it.
    Stale,
    /// The body exceeds the size limit.
    TooLarge,
    /// The body has an unsupported media type.
    UnsupportedMedia,
    /// The request is well formed, but a value is invalid.
    Invalid,
    /// Another session holds the lock on the configuration.
    Locked,
    /// A PUT without `If-Match`.
    ConditionRequired,
    /// Too many connections or long requests are open.
    Busy,
    /// The server failed.
    Internal,
    /// The running switch cannot respond at present.
    Unavailable,
}

impl ProblemKind {
    const ROWS: [(ProblemKind, u16, &'static str, &'static str); 17] = [
        (
            ProblemKind::BadRequest,
            400,
            "bad-request",
            "The request is not well formed",
        ),
        (
            ProblemKind::Unauthorized,
            401,
            "unauthorized",
            "The token is missing or wrong",
        ),
        (
            ProblemKind::ForeignOrigin,
            403,
            "foreign-origin",
            "The request comes from a page of another origin",
        ),
        (
            ProblemKind::NotFound,
            404,
            "not-found",
            "The resource does not exist",
        ),
        (
            ProblemKind::MethodNotAllowed,
            405,
            "method-not-allowed",
            "The method is not allowed here",
        ),
        (ProblemKind::Timeout, 408, "timeout", "The request took too long"),
        (
            ProblemKind::Conflict,
            409,
            "conflict",
            "The request contradicts the present state",
        ),
        (
            ProblemKind::Owned,
            409,
            "owned",
            "The object belongs to another origin",
        ),
        (
            ProblemKind::Stale,
            412,
            "stale",
            "The configuration has changed meanwhile",
        ),
        (ProblemKind::TooLarge, 413, "too-large", "The body is too large"),
        (
            ProblemKind::UnsupportedMedia,
            415,
            "unsupported-media",
            "The body has an unsupported media type",
        ),
        (
            ProblemKind::Invalid,
            422,
            "invalid",
            "The request is well formed, but a value is invalid",
        ),
        (
            ProblemKind::Locked,
            423,
            "locked",
            "Another session holds the lock on the configuration",
        ),
        (
            ProblemKind::ConditionRequired,
            428,
            "condition-required",
            "An If-Match header is needed",
        ),
        (
            ProblemKind::Busy,
            429,
            "busy",
            "Too many connections or long requests at once",
        ),
        (ProblemKind::Internal, 500, "internal", "The server failed"),
        (
            ProblemKind::Unavailable,
            503,
            "unavailable",
            "The switch cannot respond at present",
        ),
    ];

    fn row(self) -> (u16, &'static str, &'static str) {
        let row = Self::ROWS.iter().find(|(kind, ..)| *kind == self);
        row.map_or(
            (500, "internal", "The server failed"),
            |(_, status, name, title)| (*status, name, title),
        )
    }

    /// Returns all kinds.
    pub fn all() -> impl Iterator<Item = ProblemKind> {
        Self::ROWS.into_iter().map(|(kind, ..)| kind)
    }

    /// Returns the HTTP status.
    pub fn status(self) -> u16 {
        self.row().0
    }

    /// Returns the name, the last part of the `type`.
    pub fn name(self) -> &'static str {
        self.row().1
    }

    /// Returns the title, which is the same for all problems of the kind.
    pub fn title(self) -> &'static str {
        self.row().2
    }
}

/// An error response, of type `application/problem+json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
#[error("{detail}")]
pub struct Problem {
    /// The kind of problem: `/problems/` and the name.
    #[serde(rename = "type")]
    #[cfg_attr(feature = "server", schema(value_type = String))]
    pub kind: Box<str>,
    /// The kind of problem in words.
    #[cfg_attr(feature = "server", schema(value_type = String))]
    pub title: Box<str>,
    /// The HTTP status.
    pub status: u16,
    /// The cause of this problem, and the expected value.
    pub detail: String,
    /// The next step, if `detail` does not imply it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "server", schema(value_type = Option<String>))]
    pub next_step: Option<Box<str>>,
    /// The first twenty errors of an invalid configuration; `detail` ends with the number of others.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<InvalidValue>,
}

/// An error in a configuration or a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
pub struct InvalidValue {
    /// The location of the value, as a JSON pointer (RFC 6901).
    pub pointer: String,
    /// The kind of error: `unknown-key`, `out-of-range`…
    pub code: String,
    /// The cause, and the expected value.
    pub detail: String,
}

impl Problem {
    /// Returns a problem of this kind.
    pub fn new(kind: ProblemKind, detail: impl Into<String>) -> Problem {
        let (status, name, title) = kind.row();
        Problem {
            kind: format!("/problems/{name}").into(),
            title: title.into(),
            status,
            detail: detail.into(),
            next_step: None,
            errors: Vec::new(),
        }
    }

    /// Returns the problem with a next step.
    #[must_use]
    pub fn with_next_step(mut self, next_step: impl Into<Box<str>>) -> Problem {
        self.next_step = Some(next_step.into());
        self
    }

    /// Returns true if the problem is of this kind.
    pub fn is(&self, kind: ProblemKind) -> bool {
        self.kind.strip_prefix("/problems/") == Some(kind.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_has_a_status_and_a_name_of_its_own() {
        let mut seen = std::collections::BTreeSet::new();
        for kind in ProblemKind::all() {
            assert!(seen.insert(kind.name()) && seen.insert(kind.title()), "{kind:?}");
            assert!((400..600).contains(&kind.status()), "{kind:?}");
            assert!(Problem::new(kind, "").is(kind));
        }
    }
}
