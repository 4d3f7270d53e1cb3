//! Refusals: each names file, line, column, option and reason, and says what was expected.

use std::fmt;

use serde::Serialize;
use thiserror::Error;

/// The position of a text in a file. Lines and columns count from 1; columns count bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Position {
    pub line: u32,
    pub column: u32,
}

/// The cause of a refusal.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Reason {
    /// The keyword is in none of the documented syntaxes.
    #[error("unknown keyword; expected a keyword of the rule language{}", suggestion(.near.as_deref()))]
    UnknownKeyword {
        /// The known keyword with the most similar spelling.
        near: Option<String>,
    },
    /// The keyword is known, but the engine does not support it.
    #[error("not supported: {why}; disable the rule, or express it with other options")]
    Unsupported {
        /// The reason why the engine does not support the keyword.
        why: &'static str,
    },
    /// The text does not have the form that the grammar requires.
    #[error("{problem}; expected {expected}")]
    Invalid {
        problem: String,
        /// The expected form.
        expected: &'static str,
    },
    /// A limit on the size of rule files is exceeded.
    #[error("more than {limit} {unit}; expected at most that many")]
    Limit {
        /// The counted unit.
        unit: &'static str,
        /// The largest accepted count.
        limit: usize,
    },
    /// A variable has no value.
    #[error("the variable ${name} is not set; expected a value, as with --set {name}=any")]
    UnknownVariable {
        /// The name without the dollar sign.
        name: String,
    },
    /// A set contains no address or port.
    #[error(
        "the set {text} is empty, so that the rule never matches; expected at least one element that no negation removes{}",
        empty(text)
    )]
    EmptySet {
        /// The set as the rule has it.
        text: String,
    },
    /// The rule's `requires` does not hold: it is skipped, and is no error.
    #[error("not met here; expected nothing, as the rule is for other programs or versions")]
    Requirements,
    /// Another rule has the same gid and sid, and the same or a higher revision.
    #[error("sid {sid} (gid {gid}) is used by the rule in {first} too; expected one rule for each sid")]
    Duplicate {
        /// The generator.
        gid: u32,
        /// The signature.
        sid: u32,
        /// The position of the other rule, as FILE:LINE.
        first: String,
    },
}

/// Returns the end of a message that names a similar keyword.
fn suggestion(near: Option<&str>) -> String {
    near.map(|near| format!("; did you mean {near}?"))
        .unwrap_or_default()
}

/// Returns the end of a message about an empty set: advice about the variable that the set names, if any.
fn empty(text: &str) -> String {
    let Some((_, rest)) = text.split_once('$') else {
        return String::new();
    };
    let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '_' | '-')));
    let name = rest.get(..end.unwrap_or(rest.len())).unwrap_or_default();
    format!("; give ${name} a value other than any, as with --set {name}=10.0.0.0/8")
}

impl Reason {
    /// Returns the reason for a text that does not have the expected form.
    pub(crate) fn invalid(problem: impl Into<String>, expected: &'static str) -> Reason {
        Reason::Invalid {
            problem: problem.into(),
            expected,
        }
    }

    /// Returns the name of the reason's kind, by which `check` groups refusals.
    pub fn kind(&self) -> &'static str {
        match self {
            Reason::UnknownKeyword { .. } => "unknown keyword",
            Reason::Unsupported { .. } => "not supported",
            Reason::Invalid { .. } => "invalid",
            Reason::Limit { .. } => "limit exceeded",
            Reason::UnknownVariable { .. } => "unknown variable",
            Reason::EmptySet { .. } => "empty set",
            Reason::Requirements => "requirements",
            Reason::Duplicate { .. } => "duplicate sid",
        }
    }
}

/// A rule or directive that was not loaded.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub struct Refusal {
    /// The file's name, as the caller gave it.
    pub file: String,
    /// The position of the option, or of the part of the header.
    pub position: Position,
    /// The rule's sid, if it could be read.
    pub sid: Option<u32>,
    /// The option's keyword, or the name of the header's part.
    pub option: String,
    pub reason: Reason,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Position { line, column } = self.position;
        write!(f, "{}:{line}:{column}: ", self.file)?;
        if let Some(sid) = self.sid {
            write!(f, "sid {sid}: ")?;
        }
        write!(f, "{}: {}", self.option, self.reason)
    }
}
