//! Errors as RFC 9457 has them.

use serde::{Deserialize, Serialize};

/// The kinds of problems; each is a `type` of RFC 9457, relative to `/problems/`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ProblemKind {
    /// The request is not well formed: a bad path, query or header, or no JSON.
    BadRequest,
    /// No credential, or a wrong one.
    Unauthorized,
    /// A browser's page of another origin asks.
    ForeignOrigin,
    /// There is no such thing.
    NotFound,
    /// The thing is there and does not know this method.
    MethodNotAllowed,
    /// The request came too slowly, or the answer took too long.
    Timeout,
    /// It contradicts the state of something.
    Conflict,
    /// The configuration has changed since the client read it.
    Stale,
    /// The body is too large.
    TooLarge,
    /// The body is of another type.
    UnsupportedMedia,
    /// Well formed, and wrong.
    Invalid,
    /// A PUT without `If-Match`.
    ConditionRequired,
    /// Too many long requests at once.
    Busy,
    /// The switch failed.
    Internal,
    /// The running switch cannot answer at present.
    Unavailable,
}

impl ProblemKind {
    const ROWS: [(ProblemKind, u16, &'static str, &'static str); 15] = [
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
            "A credential is needed",
        ),
        (
            ProblemKind::ForeignOrigin,
            403,
            "foreign-origin",
            "The request comes from a page of another origin",
        ),
        (ProblemKind::NotFound, 404, "not-found", "There is no such thing"),
        (
            ProblemKind::MethodNotAllowed,
            405,
            "method-not-allowed",
            "The method is not allowed here",
        ),
        (ProblemKind::Timeout, 408, "timeout", "It took too long"),
        (
            ProblemKind::Conflict,
            409,
            "conflict",
            "The request contradicts the present state",
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
            "The body is of another type than expected",
        ),
        (
            ProblemKind::Invalid,
            422,
            "invalid",
            "The request is well formed, and what it says is wrong",
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
        (
            ProblemKind::Internal,
            500,
            "internal",
            "The switch failed to answer",
        ),
        (
            ProblemKind::Unavailable,
            503,
            "unavailable",
            "The switch cannot answer at present",
        ),
    ];

    fn row(self) -> (u16, &'static str, &'static str) {
        let row = Self::ROWS.iter().find(|(kind, ..)| *kind == self);
        row.map_or(
            (500, "internal", "The switch failed to answer"),
            |(_, status, name, title)| (*status, name, title),
        )
    }

    /// Every kind.
    pub fn all() -> impl Iterator<Item = ProblemKind> {
        Self::ROWS.into_iter().map(|(kind, ..)| kind)
    }

    /// Returns the HTTP status.
    pub fn status(self) -> u16 {
        self.row().0
    }

    /// Returns the last part of the `type`.
    pub fn name(self) -> &'static str {
        self.row().1
    }

    /// Returns the same for every problem of the kind.
    pub fn title(self) -> &'static str {
        self.row().2
    }
}

/// An error answer, of type `application/problem+json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
#[error("{detail}")]
pub struct Problem {
    /// The kind of problem: `/problems/` and a name.
    #[serde(rename = "type")]
    #[cfg_attr(feature = "server", schema(value_type = String))]
    pub kind: Box<str>,
    /// The kind in words.
    #[cfg_attr(feature = "server", schema(value_type = String))]
    pub title: Box<str>,
    /// The HTTP status.
    pub status: u16,
    /// What is wrong this time, and what was expected.
    pub detail: String,
    /// What to do about it, if that is not plain from `detail`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "server", schema(value_type = Option<String>))]
    pub remedy: Option<Box<str>>,
    /// Every mistake in a configuration, each with its place.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<Mistake>,
}

/// One mistake in a configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
pub struct Mistake {
    /// Where, as a JSON pointer (RFC 6901).
    pub pointer: String,
    /// The kind of mistake: `unknown-key`, `out-of-range`…
    pub code: String,
    /// What is wrong there, and what was expected.
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
            remedy: None,
            errors: Vec::new(),
        }
    }

    /// Returns the same, with what to do about it.
    #[must_use]
    pub fn with_remedy(mut self, remedy: impl Into<Box<str>>) -> Problem {
        self.remedy = Some(remedy.into());
        self
    }

    /// Returns true if it is of this kind.
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
