//! Conversion of a configuration from and to TOML and JSON.

use std::ops::Range;

use serde_json::Value as Json;
use toml::de::DeTable;

use crate::config::Config;
use crate::decode::{Decoder, Detail, Field, UnlocatedError};
use crate::error::{ConfigError, ConfigErrors, Location, Path, Problem, Step};
use crate::node::{Node, Value};
use crate::toml_writer::document;
use crate::validate;

/// The parser's message for a duplicate key; it does not name the key.
const DUPLICATE: &str = "duplicate key";

impl Config {
    /// Reads a configuration file from bytes, which must be UTF-8; otherwise as [`Config::from_toml`].
    ///
    /// # Errors
    /// [`ConfigErrors`], also with the location of the first byte that is not UTF-8.
    pub fn from_toml_bytes(file: &str, bytes: &[u8]) -> Result<Config, ConfigErrors> {
        let error = match std::str::from_utf8(bytes) {
            Ok(text) => return Config::from_toml(file, text),
            Err(error) => error,
        };
        let (text, rest) = bytes.split_at_checked(error.valid_up_to()).unwrap_or_default();
        let text = String::from_utf8_lossy(text);
        let byte = rest.first().copied().unwrap_or_default();
        let message = format!(
            "byte {byte:#04x} at offset {} is not UTF-8: expected text in UTF-8",
            text.len()
        );
        Err(ConfigErrors::new(vec![ConfigError {
            location: Some(Lines::new(file, &text).location(text.len())),
            path: Path::default(),
            problem: Problem::Syntax { message },
        }]))
    }

    /// Reads a configuration file; `file` is the name of the file in errors.
    ///
    /// # Errors
    /// [`ConfigErrors`] with every error that can be determined, each with line and column.
    pub fn from_toml(file: &str, text: &str) -> Result<Config, ConfigErrors> {
        let (document, syntax) = DeTable::parse_recoverable(text);
        let lines = Lines::new(file, text);
        let root = Node::from_toml(&document);
        let (config, issues) = decode_root(&root);
        // After a syntax error, the parser's recovery of the rest is a guess; only its own messages are reported.
        if !syntax.is_empty() {
            let error = |error: toml::de::Error| {
                let span = error.span().unwrap_or_default();
                let mut message = error.message().trim().replace('\n', ", ");
                if message == DUPLICATE {
                    message += &format!(" `{}`", text.get(span.clone()).unwrap_or_default());
                }
                ConfigError {
                    location: Some(lines.location(span.start)),
                    path: Path::default(),
                    problem: Problem::Syntax { message },
                }
            };
            return Err(ConfigErrors::new(syntax.into_iter().map(error).collect()));
        }
        let errors = issues.into_iter().map(|UnlocatedError { path, problem }| {
            let at = locate(&root, &path, matches!(problem, Problem::UnknownKey { .. }));
            ConfigError {
                location: Some(lines.location(at.start)),
                path,
                problem,
            }
        });
        finish(config, errors.collect())
    }

    /// Reads the JSON form, which has the same tables and keys.
    ///
    /// # Errors
    /// [`ConfigErrors`] with every error that can be determined, each with its JSON pointer.
    pub fn from_json(json: &Json) -> Result<Config, ConfigErrors> {
        let (config, issues) = decode_root(&Node::from_json(json));
        finish(config, without_location(issues))
    }

    /// Checks the constraints between values, each of which is valid by its type.
    ///
    /// # Errors
    /// [`ConfigErrors`] with every violation.
    pub fn validate(&self) -> Result<(), ConfigErrors> {
        // The check goes through the full JSON form, so that it cannot diverge from the check of a file.
        Config::from_json(&self.to_json()).map(|_| ())
    }

    /// Returns the full JSON form: every key that has a value, defaults included.
    pub fn to_json(&self) -> Json {
        self.encode(Detail::Full)
            .map_or(Json::Null, |node| node.to_json())
    }

    /// Returns the configuration as a TOML file, without keys at their defaults.
    pub fn to_toml(&self) -> String {
        self.encode(Detail::Sparse)
            .map(|node| document(&node))
            .unwrap_or_default()
    }

    /// Returns the configuration as a TOML file with every key that has a value, defaults included.
    pub fn to_toml_full(&self) -> String {
        self.encode(Detail::Full)
            .map(|node| document(&node))
            .unwrap_or_default()
    }
}

impl ConfigErrors {
    /// Returns the same errors with their lines and columns in `text`, the file that the configuration was read from.
    /// It serves errors that are found after the file was read.
    #[must_use]
    pub fn with_locations(self, file: &str, text: &str) -> ConfigErrors {
        let (document, _) = DeTable::parse_recoverable(text);
        let (root, lines) = (Node::from_toml(&document), Lines::new(file, text));
        let located = |error: ConfigError| ConfigError {
            location: Some(lines.location(locate(&root, &error.path, false).start)),
            ..error
        };
        ConfigErrors::new(self.into_errors().into_iter().map(located).collect())
    }
}

impl<'de> serde::Deserialize<'de> for Config {
    /// Deserializes as [`Config::from_json`], from any data format; the error holds the text of all errors. The
    /// settings of functions are not checked: a stored revision can be read although a newer function rejects its
    /// settings.
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Config, D::Error> {
        let json = Json::deserialize(deserializer)?;
        let (config, issues, _) = decode_values(&Node::from_json(&json));
        finish(config, without_location(issues)).map_err(serde::de::Error::custom)
    }
}

pub(crate) fn section_from_json<T: Field>(json: &Json) -> Result<T, ConfigErrors> {
    let mut decoder = Decoder::default();
    let value = T::decode(&mut decoder, &Node::from_json(json));
    finish(value, without_location(decoder.issues))
}

fn without_location(issues: Vec<UnlocatedError>) -> Vec<ConfigError> {
    issues
        .into_iter()
        .map(|UnlocatedError { path, problem }| ConfigError {
            location: None,
            path,
            problem,
        })
        .collect()
}

/// Returns the configuration and its errors: errors of single values first, then violations between values as far as
/// they can be determined.
fn decode_root(root: &Node) -> (Option<Config>, Vec<UnlocatedError>) {
    let (config, mut issues, dropped) = decode_values(root);
    if let Some(config) = &config {
        issues.extend(validate::check_functions(config, &issues, &dropped));
    }
    (config, issues)
}

/// Returns the same as [`decode_root`] without the check of function settings, and the paths of list items that could
/// not be decoded.
fn decode_values(root: &Node) -> (Option<Config>, Vec<UnlocatedError>, Vec<Path>) {
    let mut decoder = Decoder::default();
    let config = Config::decode(&mut decoder, root);
    let mut issues = std::mem::take(&mut decoder.issues);
    if let Some(config) = &config {
        issues.extend(validate::cross_check(config, &issues, &decoder.dropped));
    }
    (config, issues, decoder.dropped)
}

fn finish<T>(value: Option<T>, errors: Vec<ConfigError>) -> Result<T, ConfigErrors> {
    match value {
        Some(value) if errors.is_empty() => Ok(value),
        // A decoder that returns nothing has recorded an error, so the list is not empty.
        _ => Err(ConfigErrors::new(errors)),
    }
}

/// Returns the span of the value at `path` (of its key if `key_is_wrong`), or of the nearest table above.
fn locate(root: &Node, path: &Path, key_is_wrong: bool) -> Range<usize> {
    let mut node = root;
    let mut span = root.span.clone();
    for (position, step) in path.0.iter().enumerate() {
        let last = position + 1 == path.0.len();
        match (&node.value, step) {
            (Value::Table(table), Step::Key(key)) => {
                let Some(entry) = table.find(key) else { return span };
                node = &entry.node;
                span = if last && key_is_wrong {
                    entry.key_span.clone()
                } else {
                    node.span.clone()
                };
            }
            (Value::List(items), Step::Index(index)) => {
                let Some(item) = items.get(*index) else {
                    return span;
                };
                node = item;
                span = node.span.clone();
            }
            _ => return span,
        }
    }
    span
}

/// A text and the name of its file, for conversion of offsets to lines and columns.
struct Lines<'a> {
    file: &'a str,
    text: &'a str,
}

impl<'a> Lines<'a> {
    fn new(file: &'a str, text: &'a str) -> Lines<'a> {
        Lines { file, text }
    }

    fn location(&self, offset: usize) -> Location {
        let mut end = offset.min(self.text.len());
        while !self.text.is_char_boundary(end) {
            end -= 1;
        }
        let before = self.text.get(..end).unwrap_or_default();
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        Location {
            file: self.file.to_owned(),
            line: before.matches('\n').count() + 1,
            column: before.get(line_start..).unwrap_or_default().chars().count() + 1,
        }
    }
}
