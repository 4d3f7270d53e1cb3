//! Errors of a configuration. All errors are collected in one pass, each with its location (line and column of the
//! file, or the JSON pointer in a REST body), the value found and the value expected, so that one round of edits fixes
//! a file.

use std::fmt;

use serde::Serialize;
use serde::ser::{SerializeStruct as _, Serializer};
use thiserror::Error;

/// A step from the root of a configuration to a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Into a table, by key.
    Key(String),
    /// Into a list, by index from zero.
    Index(usize),
}

/// The path from the root of a configuration to a value.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Path(pub Vec<Step>);

impl Path {
    /// Returns the path as a JSON pointer (RFC 6901): `/bridge/0/port/1/mtu`; empty for the root.
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

    /// Returns the path of a key of the table at this path.
    #[must_use]
    pub fn key(&self, key: &str) -> Path {
        let mut longer = self.clone();
        longer.0.push(Step::Key(key.to_owned()));
        longer
    }

    /// Returns the path of an item of the list at this path.
    #[must_use]
    pub fn index(&self, index: usize) -> Path {
        let mut longer = self.clone();
        longer.0.push(Step::Index(index));
        longer
    }

    /// Returns true if `self` is `other` or lies below it.
    pub(crate) fn is_within(&self, other: &Path) -> bool {
        self.0.starts_with(&other.0)
    }
}

impl fmt::Display for Path {
    /// Writes the path in the notation of TOML: `bridge[0].port[1].mtu`.
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

/// An error of a value.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Problem {
    /// The text is not TOML.
    #[error("not TOML: {message}")]
    Syntax {
        /// The message of the parser.
        message: String,
    },
    /// A key that the model does not have.
    #[error("unknown key `{key}`: {}", known_keys(.suggestion.as_deref(), .known, .places))]
    UnknownKey {
        /// The key that was found.
        key: String,
        /// The known key that was probably meant.
        suggestion: Option<String>,
        /// All valid keys of the table.
        known: Vec<&'static str>,
        /// The tables of the configuration that have this key, in the notation of TOML; empty if there is none or if many
        /// have it.
        places: Vec<String>,
    },
    /// A required key that is missing.
    #[error("missing key `{key}`: expected {expected}")]
    MissingKey {
        /// The key that is missing.
        key: &'static str,
        /// A description of the expected value.
        expected: String,
    },
    /// A value of a type that the key does not take.
    #[error("found {found}: expected {expected}")]
    WrongType {
        /// A description of the value found.
        found: String,
        /// A description of the expected value.
        expected: String,
    },
    /// A number outside its range.
    #[error("{found} is out of range: expected {min} to {max}{unit}")]
    OutOfRange {
        /// The number found.
        found: i128,
        /// The smallest valid value.
        min: u64,
        /// The largest valid value.
        max: u64,
        /// The unit with a leading blank, or an empty string.
        unit: &'static str,
    },
    /// Text that the key cannot parse.
    #[error("{message}{}", did_you_mean(.suggestion.as_deref()))]
    Malformed {
        /// The text found and the form expected.
        message: String,
        /// The text that was probably meant.
        suggestion: Option<String>,
    },
    /// A value that must be unique and occurs twice.
    #[error("{what} {value} is already used by {first}")]
    Duplicate {
        /// The kind of the value that must be unique: "bridge name", "port number", "device".
        what: &'static str,
        /// The value that occurs twice.
        value: String,
        /// The path of the first use.
        first: Path,
    },
    /// Two values that exclude each other, or a value that requires another, missing value.
    #[error("{message}")]
    Conflict {
        /// The conflict and the expected values.
        message: String,
    },
    /// A resource that this machine does not have. Callers with access to the machine report this error; this
    /// crate does not.
    #[error("{message}")]
    Unavailable {
        /// The missing resource and the expected one.
        message: String,
    },
}

impl Problem {
    /// Returns the stable error code for programs: `syntax`, `unknown-key`, `missing-key`, `wrong-type`,
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

fn known_keys(suggestion: Option<&str>, known: &[&str], places: &[String]) -> String {
    let places = places.join(" and ");
    match suggestion {
        Some(text) if places.is_empty() => format!("did you mean `{text}`?"),
        Some(text) => format!("did you mean `{text}`? The key belongs to {places}"),
        None if places.is_empty() => format!("expected one of {}", known.join(", ")),
        None => format!("the key belongs to {places}"),
    }
}

/// A location in a text file. Lines and columns count from one; columns count characters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Location {
    /// The name of the file, as the caller gave it.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// The column in characters, from 1.
    pub column: usize,
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.file, self.line, self.column)
    }
}

/// One error of a configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError {
    /// The location in the file, if the configuration was read from a file.
    pub location: Option<Location>,
    /// The path in the configuration.
    pub path: Path,
    /// The error.
    pub problem: Problem,
}

impl ConfigError {
    /// Returns the error of a value at `path` that names a resource that this machine does not have.
    pub fn unavailable(path: Path, message: String) -> ConfigError {
        ConfigError {
            location: None,
            path,
            problem: Problem::Unavailable { message },
        }
    }
}

impl fmt::Display for ConfigError {
    /// Writes `FILE:LINE:COLUMN: bridge[0].tables: 300 is out of range: expected 1 to 255`, or the same with the JSON
    /// pointer in front if there is no file.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.location {
            Some(location) => {
                write!(f, "{location}: ")?;
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
    /// Serializes as `{pointer, code, detail}` and, if known, `file`, `line`, `column`: an element of the `errors`
    /// list of a problem document (RFC 9457).
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let len = if self.location.is_some() { 6 } else { 3 };
        let mut out = serializer.serialize_struct("ConfigError", len)?;
        out.serialize_field("pointer", &self.path.pointer())?;
        out.serialize_field("code", self.problem.code())?;
        out.serialize_field("detail", &self.problem.to_string())?;
        if let Some(location) = &self.location {
            out.serialize_field("file", &location.file)?;
            out.serialize_field("line", &location.line)?;
            out.serialize_field("column", &location.column)?;
        }
        out.end()
    }
}

/// All errors of a configuration: at least one, in the order of the file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct ConfigErrors(Vec<ConfigError>);

impl ConfigErrors {
    /// Sorts the errors by location. The caller passes at least one.
    pub(crate) fn new(mut errors: Vec<ConfigError>) -> ConfigErrors {
        errors.sort_by_key(|error| {
            error
                .location
                .as_ref()
                .map(|location| (location.line, location.column))
        });
        ConfigErrors(errors)
    }

    /// Returns `Ok` if there are no errors.
    ///
    /// # Errors
    /// The given errors, if there are any.
    pub fn unless_empty(errors: Vec<ConfigError>) -> Result<(), ConfigErrors> {
        if errors.is_empty() {
            return Ok(());
        }
        Err(ConfigErrors::new(errors))
    }

    pub(crate) fn into_errors(self) -> Vec<ConfigError> {
        self.0
    }

    /// Returns an iterator over the errors, at least one.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &ConfigError> {
        self.0.iter()
    }

    /// Returns an iterator over the errors that [`Display`](fmt::Display) prints, the first twenty.
    pub fn shown(&self) -> impl ExactSizeIterator<Item = &ConfigError> {
        self.0.iter().take(SHOWN_LEN)
    }
}

/// The number of errors that are printed in full. A file that is not a configuration has an error on each
/// line.
const SHOWN_LEN: usize = 20;

impl fmt::Display for ConfigErrors {
    /// Prints one error on each line, and after the twentieth how many more there are.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, error) in self.shown().enumerate() {
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
