//! The description of a kind of function as lines of text: a module returns it in its memory, and a process writes it to its
//! standard output. Both may be hostile, so all sizes are limited.
//!
//! ```text
//! millrace-nf 1
//! name macswap
//! about exchanges the two Ethernet addresses
//! setting KEY description of the setting
//! counter swapped
//! reads 1
//! writes 1
//! keeps_flows
//! ```
//!
//! A function without a line `writes` may write all parts of packets.

use core::fmt;
use std::collections::HashSet;

use thiserror::Error;

use crate::kind::{Access, Constructor, Kind};

/// The first line: the version of the interface between functions and switches.
const VERSION: &str = "millrace-nf 1";
/// Size limit of a description, in bytes.
const SIZE_MAX: usize = 16 * 1024;
/// Limit of counters, and of settings.
const LINES_MAX: usize = 64;
/// Size limit of a name, in bytes.
const NAME_MAX: usize = 32;

/// The reason why a text is not a description.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum DescriptionError {
    /// The first line is not the supported version.
    #[error("it describes itself with `{found}`: expected `{VERSION}`")]
    Version {
        /// The first line.
        found: String,
    },
    /// The description exceeds a limit.
    #[error("its description has {found} {what}: expected {most} at most")]
    TooMuch {
        /// The counted items: bytes, settings or counters.
        what: &'static str,
        /// Their number.
        found: usize,
        /// The limit.
        most: usize,
    },
    /// Two settings or two counters have the same name.
    #[error("its description has two {what} `{name}`: expected a name of its own for each")]
    Repeated {
        /// Settings or counters.
        what: &'static str,
        name: String,
    },
    /// A line is invalid.
    #[error("its description has a line `{line}`: expected {expected}")]
    Line {
        line: String,
        /// The expected text.
        expected: &'static str,
    },
    /// The name is missing.
    #[error("its description has no line `name NAME`")]
    NoName,
}

/// A kind of function without its constructor.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Description {
    pub name: String,
    /// A description in one line.
    pub about: String,
    /// The keys of the settings, each with a description in one line.
    pub settings: Vec<(String, String)>,
    /// The names of the counters.
    pub counters: Vec<String>,
    /// The parts of packets that the function reads.
    pub reads: Access,
    /// The parts of packets that the function writes.
    pub writes: Access,
    /// Both directions of a flow must reach the same instance.
    pub keeps_flows: bool,
}

impl From<&Kind> for Description {
    fn from(kind: &Kind) -> Description {
        let settings = kind.settings.iter();
        Description {
            name: kind.name.to_owned(),
            about: kind.about.to_owned(),
            settings: settings
                .map(|(key, about)| ((*key).to_owned(), (*about).to_owned()))
                .collect(),
            counters: kind.counters.iter().map(|name| (*name).to_owned()).collect(),
            reads: kind.reads,
            writes: kind.writes,
            keeps_flows: kind.keeps_flows,
        }
    }
}

impl fmt::Display for Description {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{VERSION}\nname {}\nabout {}", self.name, self.about)?;
        for (key, about) in &self.settings {
            writeln!(f, "setting {key} {about}")?;
        }
        for counter in &self.counters {
            writeln!(f, "counter {counter}")?;
        }
        writeln!(
            f,
            "reads {}\nwrites {}",
            self.reads.to_raw(),
            self.writes.to_raw()
        )?;
        match self.keeps_flows {
            true => writeln!(f, "keeps_flows"),
            false => Ok(()),
        }
    }
}

/// Returns the first 64 characters of an untrusted text, with `?` for control characters.
fn printable(text: &str) -> String {
    let characters = text.chars().map(|c| if c.is_control() { '?' } else { c });
    characters.take(64).collect()
}

/// Returns an error if a name occurs twice.
fn unique<'a>(what: &'static str, names: impl Iterator<Item = &'a String>) -> Result<(), DescriptionError> {
    let mut seen = HashSet::new();
    for name in names {
        if !seen.insert(name) {
            let name = name.clone();
            return Err(DescriptionError::Repeated { what, name });
        }
    }
    Ok(())
}

impl Description {
    /// Parses a description.
    ///
    /// # Errors
    /// [`DescriptionError`].
    pub fn parse(text: &str) -> Result<Description, DescriptionError> {
        let most = |what, found: usize, most: usize| match found > most {
            true => Err(DescriptionError::TooMuch { what, found, most }),
            false => Ok(()),
        };
        most("bytes", text.len(), SIZE_MAX)?;
        let mut lines = text.lines();
        let first = lines.next().unwrap_or_default();
        if first != VERSION {
            return Err(DescriptionError::Version {
                found: printable(first),
            });
        }
        let mut description = Description {
            // The default of a description without a line `writes`.
            writes: Access::ALL,
            ..Description::default()
        };
        for line in lines {
            let wrong = |expected| DescriptionError::Line {
                line: printable(line),
                expected,
            };
            let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
            let name = |text: &str| {
                let is_name = !text.is_empty()
                    && text.len() <= NAME_MAX
                    && text
                        .bytes()
                        .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'_');
                match is_name {
                    true => Ok(text.to_owned()),
                    false => Err(wrong("a name of 1 to 32 lower-case letters, digits and `_`")),
                }
            };
            let access = || {
                let raw = rest.parse().ok().and_then(Access::from_raw);
                raw.ok_or_else(|| wrong("a number of 0 to 31"))
            };
            let about = |text: &str| match text.chars().any(char::is_control) {
                true => Err(wrong("no control characters")),
                false => Ok(text.to_owned()),
            };
            match word {
                "name" => description.name = name(rest)?,
                "about" => description.about = about(rest)?,
                "setting" => {
                    let (key, text) = rest.split_once(' ').unwrap_or((rest, ""));
                    description.settings.push((name(key)?, about(text)?));
                }
                "counter" => description.counters.push(name(rest)?),
                "reads" => description.reads = access()?,
                "writes" => description.writes = access()?,
                "keeps_flows" => description.keeps_flows = true,
                _ => {
                    return Err(wrong(
                        "name, about, setting, counter, reads, writes or keeps_flows",
                    ));
                }
            }
        }
        most("settings", description.settings.len(), LINES_MAX)?;
        most("counters", description.counters.len(), LINES_MAX)?;
        unique("settings", description.settings.iter().map(|(key, _)| key))?;
        // Two counters with one name would be two samples of one metric, for which Prometheus refuses the whole page.
        unique("counters", description.counters.iter())?;
        match description.name.is_empty() {
            true => Err(DescriptionError::NoName),
            false => Ok(description),
        }
    }

    /// Returns the kind with a constructor. Its memory is never freed, like that of built-in kinds.
    pub fn into_kind(self, make: Box<Constructor>) -> &'static Kind {
        let leak = |text: String| -> &'static str { text.leak() };
        let settings = self.settings.into_iter();
        let settings: Vec<_> = settings.map(|(key, about)| (leak(key), leak(about))).collect();
        let counters: Vec<_> = self.counters.into_iter().map(leak).collect();
        Box::leak(Box::new(Kind {
            name: leak(self.name),
            about: leak(self.about),
            settings: settings.leak(),
            counters: counters.leak(),
            reads: self.reads,
            writes: self.writes,
            keeps_flows: self.keeps_flows,
            make: Box::leak(make),
            ..Kind::DEFAULT
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full() -> Description {
        Description {
            name: "example".to_owned(),
            about: "does nothing, slowly".to_owned(),
            settings: vec![("slow".to_owned(), "yes or no".to_owned())],
            counters: vec!["seen".to_owned(), "slept".to_owned()],
            reads: Access::LINK.or(Access::PORTS),
            writes: Access::NONE,
            keeps_flows: true,
        }
    }

    #[test]
    fn a_description_parses_to_what_was_written() {
        assert_eq!(Description::parse(&full().to_string()), Ok(full()));
        let kind = full().into_kind(Box::new(|_| {
            Err(crate::SettingError::Refused {
                reason: "not today".to_owned(),
            })
        }));
        assert_eq!(Description::from(kind), full());
    }

    #[test]
    fn an_invalid_description_is_rejected_with_the_line() {
        let text = full().to_string();
        let told = |text: &str| Description::parse(text).unwrap_err().to_string();
        assert!(told("").contains("expected `millrace-nf 1`"));
        assert!(told(&text.replace("nf 1", "nf 2")).contains("`millrace-nf 2`"));
        assert!(told(&text.replace("name example", "name Ex\u{7}")).contains("lower-case letters"));
        assert!(told(&text.replace("reads 5", "reads 32")).contains("0 to 31"));
        assert!(told("millrace-nf 1\n").contains("no line"));
        assert!(told(&(text.clone() + "colour red\n")).contains("`colour red`"));
        assert!(told(&(text.clone() + "counter seen\n")).contains("two counters `seen`"));
        assert!(told(&(text.clone() + "setting slow again\n")).contains("two settings `slow`"));
        let many = (0..65).map(|number| format!("counter c{number}\n"));
        assert!(told(&(text + &many.collect::<String>())).contains("67 counters"));
        assert!(told(&"x".repeat(20_000)).contains("20000 bytes"));
    }
}
