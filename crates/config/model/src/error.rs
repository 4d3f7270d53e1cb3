//! What can be wrong with a configuration, and where. All faults are collected in one pass, each
//! with its place (line and column of the file, or the JSON pointer in a REST body), what was found
//! and what was expected, so that a person mends a file in one round.

use std::fmt;

use serde::Serialize;
use serde::ser::{SerializeStruct as _, Serializer};
use thiserror::Error;

/// A step from the root of a configuration to a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Into a table, by key.
    Key(String),
    /// Into a list, by position from zero.
    Index(usize),
}

/// The way from the root of a configuration to a value.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Path(pub Vec<Step>);

impl Path {
    /// The path as a JSON pointer (RFC 6901): `/bridge/0/port/1/mtu`; empty for the root.
    pub fn pointer(&self) -> String {
        let mut text = String::new();
        for step in &self.0 {
            text.push('/');
            match step {
                Step::Key(key) => text.push_str(&key.replace('~', "~0").replace('/', "~1")),
                Step::Index(index) => text.push_str(&index.to_string()),
            }
        }
        text
    }

    /// The path of a key in the table here.
    #[must_use]
    pub fn key(&self, key: &str) -> Path {
        let mut longer = self.clone();
        longer.0.push(Step::Key(key.to_owned()));
        longer
    }

    /// The path of an item of the list here.
    #[must_use]
    pub fn index(&self, index: usize) -> Path {
        let mut longer = self.clone();
        longer.0.push(Step::Index(index));
        longer
    }

    /// Whether `self` is `other` or lies below it.
    pub(crate) fn is_within(&self, other: &Path) -> bool {
        self.0.starts_with(&other.0)
    }
}

impl fmt::Display for Path {
    /// The path as TOML people write it: `bridge[0].port[1].mtu`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, step) in self.0.iter().enumerate() {
            match step {
                Step::Key(key) if position == 0 => f.write_str(key)?,
                Step::Key(key) => write!(f, ".{key}")?,
                Step::Index(index) => write!(f, "[{index}]")?,
            }
        }
        Ok(())
    }
}

/// What is wrong with a value.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Problem {
    /// The text is not TOML.
    #[error("not TOML: {message}")]
    Syntax {
        /// What the parser said.
        message: String,
    },
    /// A key that the model does not have.
    #[error("unknown key `{key}`: {}", known_keys(.suggestion.as_deref(), .known))]
    UnknownKey {
        /// The key that was found.
        key: String,
        /// The key that was probably meant.
        suggestion: Option<String>,
        /// Every key that may stand here.
        known: Vec<&'static str>,
    },
    /// A key without which the table means nothing.
    #[error("missing key `{key}`: expected {expected}")]
    MissingKey {
        /// The key that is missing.
        key: &'static str,
        /// What it should hold.
        expected: String,
    },
    /// A value of another kind than the key takes.
    #[error("found {found}: expected {expected}")]
    WrongType {
        /// What was found, in words.
        found: String,
        /// What the key takes, in words.
        expected: String,
    },
    /// A number outside its range.
    #[error("{found} is out of range: expected {min} to {max}{unit}")]
    OutOfRange {
        /// The number that was found.
        found: i128,
        /// The least legal value.
        min: u64,
        /// The greatest legal value.
        max: u64,
        /// The unit with a leading blank, or nothing.
        unit: &'static str,
    },
    /// Text that does not mean what the key needs.
    #[error("{message}{}", did_you_mean(.suggestion.as_deref()))]
    Malformed {
        /// What was found and what was expected.
        message: String,
        /// The text that was probably meant.
        suggestion: Option<String>,
    },
    /// Two things that must differ are equal.
    #[error("{what} {value} is already used by {first}")]
    Duplicate {
        /// What must be unique: "bridge name", "port number", "device".
        what: &'static str,
        /// The value that occurs twice.
        value: String,
        /// The path of the first use.
        first: Path,
    },
    /// Two values that exclude each other, or a value that lacks its companion.
    #[error("{message}")]
    Conflict {
        /// What clashes and what was expected.
        message: String,
    },
    /// Something that this machine does not have. Found by who can look at the machine, never by this crate.
    #[error("{message}")]
    Unavailable {
        /// What is not there and what was expected.
        message: String,
    },
}

impl Problem {
    /// A stable word for programs: `syntax`, `unknown-key`, `missing-key`, `wrong-type`,
    /// `out-of-range`, `malformed`, `duplicate`, `conflict` or `unavailable`.
    pub fn code(&self) -> &'static str {
        match self {
            Problem::Syntax { .. } => "syntax",
            Problem::UnknownKey { .. } => "unknown-key",
            Problem::MissingKey { .. } => "missing-key",
            Problem::WrongType { .. } => "wrong-type",
            Problem::OutOfRange { .. } => "out-of-range",
            Problem::Malformed { .. } => "malformed",
            Problem::Duplicate { .. } => "duplicate",
            Problem::Conflict { .. } => "conflict",
            Problem::Unavailable { .. } => "unavailable",
        }
    }
}

fn did_you_mean(suggestion: Option<&str>) -> String {
    suggestion
        .map(|text| format!("; did you mean `{text}`?"))
        .unwrap_or_default()
}

fn known_keys(suggestion: Option<&str>, known: &[&str]) -> String {
    match suggestion {
        Some(text) => format!("did you mean `{text}`?"),
        None => format!("expected one of {}", known.join(", ")),
    }
}

/// Where in a text file something stands. Lines and columns count from one; columns count characters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Place {
    /// The file as it was named by the caller.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// The column in characters, from 1.
    pub column: usize,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.file, self.line, self.column)
    }
}

/// One fault of a configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError {
    /// Where in the file, if the configuration came from a file.
    pub place: Option<Place>,
    /// Where in the model.
    pub path: Path,
    /// What is wrong.
    pub problem: Problem,
}

impl ConfigError {
    /// The value at `path` names something that this machine does not have.
    pub fn unavailable(path: Path, message: String) -> ConfigError {
        ConfigError {
            place: None,
            path,
            problem: Problem::Unavailable { message },
        }
    }
}

impl fmt::Display for ConfigError {
    /// `FILE:LINE:COLUMN: bridge[0].tables: 300 is out of range: expected 1 to 255`, or the same with
    /// the JSON pointer in front when there is no file.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Some(place) => {
                write!(f, "{place}: ")?;
                if !self.path.0.is_empty() {
                    write!(f, "{}: ", self.path)?;
                }
            }
            None if !self.path.0.is_empty() => write!(f, "{}: ", self.path.pointer())?,
            None => {}
        }
        write!(f, "{}", self.problem)
    }
}

impl std::error::Error for ConfigError {}

impl Serialize for ConfigError {
    /// `{pointer, code, detail}` and, if known, `file`, `line`, `column`: an element of the `errors`
    /// list of a problem document (RFC 9457).
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let len = if self.place.is_some() { 6 } else { 3 };
        let mut out = serializer.serialize_struct("ConfigError", len)?;
        out.serialize_field("pointer", &self.path.pointer())?;
        out.serialize_field("code", self.problem.code())?;
        out.serialize_field("detail", &self.problem.to_string())?;
        if let Some(place) = &self.place {
            out.serialize_field("file", &place.file)?;
            out.serialize_field("line", &place.line)?;
            out.serialize_field("column", &place.column)?;
        }
        out.end()
    }
}

/// Every fault that was found in a configuration: at least one, in the order of the file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct ConfigErrors(Vec<ConfigError>);

impl ConfigErrors {
    /// At least one fault, which the callers see to.
    pub(crate) fn new(mut errors: Vec<ConfigError>) -> ConfigErrors {
        errors.sort_by_key(|error| error.place.as_ref().map(|place| (place.line, place.column)));
        ConfigErrors(errors)
    }

    /// Nothing, if no fault was found.
    ///
    /// # Errors
    /// The faults, if there are any.
    pub fn unless_empty(errors: Vec<ConfigError>) -> Result<(), ConfigErrors> {
        if errors.is_empty() {
            return Ok(());
        }
        Err(ConfigErrors::new(errors))
    }

    pub(crate) fn into_errors(self) -> Vec<ConfigError> {
        self.0
    }

    /// The faults, at least one.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &ConfigError> {
        self.0.iter()
    }
}

/// Errors that are printed in full: a file of another kind has one on each of its lines.
const SHOWN_LEN: usize = 20;

impl fmt::Display for ConfigErrors {
    /// Prints one error on each line, and after the twentieth how many more there are.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, error) in self.0.iter().take(SHOWN_LEN).enumerate() {
            if position > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{error}")?;
        }
        match self.0.len().saturating_sub(SHOWN_LEN) {
            0 => Ok(()),
            1 => f.write_str("\nand 1 more error"),
            more => write!(f, "\nand {more} more errors"),
        }
    }
}

impl std::error::Error for ConfigErrors {}
