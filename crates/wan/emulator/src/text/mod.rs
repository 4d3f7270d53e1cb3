//! The text form of a setting: `HEAD[,flag][,key=value]…`. Each stage of a path has one string, the same in
//! TOML, in JSON and on a command line.

mod number;
mod units;

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

pub(crate) use number::decimal;
pub use number::{BitErrorRate, BitErrorRateError};
pub use units::{ByteSize, Interval, Probability};

/// The error for a text that does not follow its grammar.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("`{text}` is not {what}: {problem}")]
pub struct TextError {
    /// The text as given.
    pub text: String,
    /// The expected kind of setting, with its article: "a duration".
    pub what: &'static str,
    /// The invalid part, and the expected grammar or range.
    pub problem: String,
}

impl TextError {
    pub(crate) fn new(text: &str, what: &'static str, problem: impl Into<String>) -> TextError {
        TextError {
            text: text.to_owned(),
            what,
            problem: problem.into(),
        }
    }
}

/// The name and the grammar of a setting, for errors and for the help of command lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grammar {
    /// The kind of setting with its article: "a jitter".
    pub what: &'static str,
    /// An example of each form: "`5ms`, `5ms,normal,half-life=50ms`".
    pub expected: &'static str,
}

/// The items of a setting that are not read yet.
pub(crate) struct Items<'a> {
    text: &'a str,
    grammar: Grammar,
    rest: Vec<&'a str>,
}

impl<'a> Items<'a> {
    pub(crate) fn new(text: &'a str, grammar: Grammar) -> Items<'a> {
        Items {
            text,
            grammar,
            rest: text.split(',').map(str::trim).collect(),
        }
    }

    /// Removes the first item, which may be empty, and returns it.
    pub(crate) fn head(&mut self) -> &'a str {
        if self.rest.is_empty() {
            ""
        } else {
            self.rest.remove(0)
        }
    }

    /// Removes the item `name` and returns true, if it is there.
    pub(crate) fn flag(&mut self, name: &str) -> bool {
        let position = self.rest.iter().position(|item| *item == name);
        position.map(|at| self.rest.remove(at)).is_some()
    }

    /// Removes `key=value` and returns the value, if the item is there.
    pub(crate) fn value<T: FromStr<Err: fmt::Display>>(&mut self, key: &str) -> Result<Option<T>, TextError> {
        let found = self.rest.iter().enumerate().find_map(|(at, item)| {
            let (name, value) = item.split_once('=')?;
            (name.trim() == key).then_some((at, value.trim()))
        });
        let Some((at, value)) = found else {
            return Ok(None);
        };
        self.rest.remove(at);
        let value = value
            .parse()
            .map_err(|error| self.error(format!("{key}: {error}")))?;
        Ok(Some(value))
    }

    /// Removes `key=value` and returns the value.
    pub(crate) fn required<T: FromStr<Err: fmt::Display>>(&mut self, key: &str) -> Result<T, TextError> {
        self.value(key)?
            .ok_or_else(|| self.error(format!("`{key}=` is missing")))
    }

    /// Removes the first remaining item without `=`, and returns it.
    pub(crate) fn word(&mut self) -> Option<&'a str> {
        let at = self.rest.iter().position(|item| !item.contains('='))?;
        Some(self.rest.remove(at))
    }

    /// Ends the reading. A remaining item is an error.
    pub(crate) fn finish(self) -> Result<(), TextError> {
        match self.rest.first() {
            None => Ok(()),
            Some(item) => Err(self.error(format!("`{item}` is unknown or repeated"))),
        }
    }

    /// Returns the error for this text, with the expected grammar.
    pub(crate) fn error(&self, problem: impl fmt::Display) -> TextError {
        let problem = format!("{problem}; expected {}", self.grammar.expected);
        TextError::new(self.text, self.grammar.what, problem)
    }

    /// Returns the value if it is in the range, and the error otherwise.
    pub(crate) fn within<T: PartialOrd + fmt::Display>(
        &self,
        key: &str,
        value: T,
        range: std::ops::RangeInclusive<T>,
    ) -> Result<T, TextError> {
        if range.contains(&value) {
            return Ok(value);
        }
        let (low, high) = (range.start(), range.end());
        Err(self.error(format!("{key} is {value}, and the range is {low} to {high}")))
    }
}

/// Implements serde for types in their text form.
macro_rules! serde_as_text {
    ($($type:ty),+ $(,)?) => {$(
        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<$type, D::Error> {
                let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    )+};
}
pub(crate) use serde_as_text;

/// Implements the text form of an enum whose variants are words.
macro_rules! words {
    ($type:ident, $what:literal, $($word:literal => $variant:ident),+ $(,)?) => {
        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(match self { $($type::$variant => $word),+ })
            }
        }

        impl std::str::FromStr for $type {
            type Err = $crate::text::TextError;

            fn from_str(text: &str) -> Result<$type, $crate::text::TextError> {
                match text {
                    $($word => Ok($type::$variant),)+
                    _ => Err($crate::text::TextError::new(
                        text,
                        $what,
                        concat!("expected one of", $(" `", $word, "`"),+),
                    )),
                }
            }
        }

        $crate::text::serde_as_text!($type);
    };
}
pub(crate) use words;
