//! Conversion of a configuration from and to TOML and JSON.

use std::collections::HashMap;
use std::ops::Range;

use serde_json::Value as Json;
use toml::de::DeTable;

use crate::config::Config;
use crate::decode::{Decoder, Detail, Field, UnlocatedError};
use crate::error::{ConfigError, ConfigErrors, Location, Path, Problem, Step};
use crate::node::{Entry, Node, Table, Value};
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
        let error = (text.len(), Path::default(), Problem::Syntax { message });
        Err(ConfigErrors::new(Lines::new(file, &text).locate(vec![error])))
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
        // After a syntax error, the parser guesses the rest of the file, so only the parser's messages are
        // reported.
        if !syntax.is_empty() {
            let error = |error: toml::de::Error| {
                let span = error.span().unwrap_or_default();
                let mut message = error.message().trim().replace('\n', ", ");
                if message == DUPLICATE {
                    message += &format!(" `{}`", text.get(span.clone()).unwrap_or_default());
                }
                (span.start, Path::default(), Problem::Syntax { message })
            };
            return Err(ConfigErrors::new(
                lines.locate(syntax.into_iter().map(error).collect()),
            ));
        }
        let mut spans = Spans::new(&root);
        let errors = issues.into_iter().map(|UnlocatedError { path, problem }| {
            let at = spans.find(&path, matches!(problem, Problem::UnknownKey { .. }));
            (at.start, path, problem)
        });
        let errors = errors.collect();
        finish(config, lines.locate(errors))
    }

    /// Reads the JSON form, which has the same tables and keys.
    ///
    /// # Errors
    /// [`ConfigErrors`] with every error that can be determined, each with its JSON pointer.
    pub fn from_json(json: &Json) -> Result<Config, ConfigErrors> {
        let (config, issues) = decode_root(&Node::from_json(json));
        finish(config, without_location(issues))
    }

    /// Checks the constraints between values. Each single value is already valid by its type.
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
    /// Returns the same errors with their lines and columns in `text`, the file that the configuration was
    /// read from. Use it for errors that are found after the file was read.
    #[must_use]
    pub fn with_locations(self, file: &str, text: &str) -> ConfigErrors {
        let (document, _) = DeTable::parse_recoverable(text);
        let root = Node::from_toml(&document);
        let mut spans = Spans::new(&root);
        let errors = self.into_errors().into_iter().map(|error| {
            let at = spans.find(&error.path, false);
            (at.start, error.path, error.problem)
        });
        let errors = errors.collect();
        ConfigErrors::new(Lines::new(file, text).locate(errors))
    }
}

impl<'de> serde::Deserialize<'de> for Config {
    /// Deserializes from any data format; the error holds the text of all errors. Only single values are checked, as
    /// for the other sections: a stored revision can be read although a newer version rejects its combination of
    /// values or the settings of its functions. [`Config::validate`] checks these.
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Config, D::Error> {
        let json = Json::deserialize(deserializer)?;
        section_from_json(&json).map_err(serde::de::Error::custom)
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
    let mut decoder = Decoder::default();
    let config = Config::decode(&mut decoder, root);
    let mut issues = std::mem::take(&mut decoder.issues);
    if let Some(config) = &config {
        issues.extend(validate::cross_check(config, &issues, &decoder.dropped));
        issues.extend(validate::check_functions(config, &issues, &decoder.dropped));
    }
    (config, issues)
}

fn finish<T>(value: Option<T>, errors: Vec<ConfigError>) -> Result<T, ConfigErrors> {
    match value {
        Some(value) if errors.is_empty() => Ok(value),
        // A decoder that returns nothing has recorded an error, so the list is not empty.
        _ => Err(ConfigErrors::new(errors)),
    }
}

/// The spans of keys and values. A file that is not a configuration has an error on each line, so large
/// tables get an index of their keys.
struct Spans<'a> {
    root: &'a Node,
    /// The keys of the large tables that were searched, by the address of the table.
    indices: HashMap<*const Table, HashMap<&'a str, &'a Entry>>,
}

/// The smallest number of keys of a table that gets an index.
const INDEXED_LEN: usize = 64;

impl<'a> Spans<'a> {
    fn new(root: &'a Node) -> Spans<'a> {
        Spans {
            root,
            indices: HashMap::new(),
        }
    }

    /// Returns the span of the value at `path` (of its key if `key_is_wrong`), or of the nearest table above.
    fn find(&mut self, path: &Path, key_is_wrong: bool) -> Range<usize> {
        let mut node = self.root;
        let mut span = node.span.clone();
        for (position, step) in path.0.iter().enumerate() {
            let last = position + 1 == path.0.len();
            match (&node.value, step) {
                (Value::Table(table), Step::Key(key)) => {
                    let Some(entry) = self.entry(table, key) else {
                        return span;
                    };
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

    fn entry(&mut self, table: &'a Table, key: &str) -> Option<&'a Entry> {
        if table.entries.len() < INDEXED_LEN {
            return table.find(key);
        }
        let index = self.indices.entry(std::ptr::from_ref(table)).or_insert_with(|| {
            let entries = table.entries.iter();
            entries.map(|entry| (entry.key.as_str(), entry)).collect()
        });
        index.get(key).copied()
    }
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

    /// Returns the errors at these byte offsets with their locations, in the order of the text, which is read once.
    fn locate(&self, mut errors: Vec<(usize, Path, Problem)>) -> Vec<ConfigError> {
        errors.sort_by_key(|(offset, ..)| *offset);
        let mut here = Location {
            file: self.file.to_owned(),
            line: 1,
            column: 1,
        };
        let mut chars = self.text.char_indices().peekable();
        let located = errors.into_iter().map(|(offset, path, problem)| {
            // The loop stops before a character that contains the offset.
            while let Some((_, char)) = chars.next_if(|(at, char)| at + char.len_utf8() <= offset) {
                match char {
                    '\n' => (here.line, here.column) = (here.line + 1, 1),
                    _ => here.column += 1,
                }
            }
            ConfigError {
                location: Some(here.clone()),
                path,
                problem,
            }
        });
        located.collect()
    }
}
