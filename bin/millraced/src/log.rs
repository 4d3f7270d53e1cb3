//! Log of the daemon: the filter as text, and its change at run time.

use std::collections::BTreeMap;
use std::fmt;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::str::FromStr;

use millrace_log::Lines;
use parking_lot::Mutex;
use thiserror::Error;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, Registry, reload};

use crate::journal::{self, Journal};

/// The target of DPDK's log messages.
pub(crate) const DPDK: &str = "dpdk";

/// The targets that log: the crates of the daemon, and DPDK.
pub(crate) const TARGETS: [&str; 11] = [
    DPDK,
    "millrace_agent",
    "millrace_api",
    "millrace_chain",
    "millrace_datapath",
    "millrace_dpdk",
    "millrace_inspection",
    "millrace_listener",
    "millrace_ovs_follower",
    "millrace_store",
    "millraced",
];

/// The levels, from silent to verbose.
pub(crate) const LEVELS: [(&str, LevelFilter); 6] = [
    ("off", LevelFilter::OFF),
    ("error", LevelFilter::ERROR),
    ("warn", LevelFilter::WARN),
    ("info", LevelFilter::INFO),
    ("debug", LevelFilter::DEBUG),
    ("trace", LevelFilter::TRACE),
];

/// The error for a text that is not a filter.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(crate) enum FilterError {
    #[error("`{word}` is not a level: expected {}", levels())]
    Level { word: String },
    #[error("`{word}` is not a target: expected {}", TARGETS.join(", "))]
    Target { word: String },
    #[error("`{word}` appears twice")]
    Twice { word: String },
    #[error("it is empty: expected a level, {}", levels())]
    Empty,
}

fn levels() -> String {
    LEVELS.map(|(name, _)| name).join(", ")
}

/// A default level and the levels of single targets: `info`, or `warn,millrace_agent=debug`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Filter {
    general: LevelFilter,
    targets: BTreeMap<&'static str, LevelFilter>,
}

impl Filter {
    /// Returns the level of a target.
    pub(crate) fn level(&self, target: &str) -> LevelFilter {
        self.targets.get(target).copied().unwrap_or(self.general)
    }

    fn targets(&self) -> Targets {
        let targets = self.targets.iter().map(|(target, level)| (*target, *level));
        Targets::new().with_default(self.general).with_targets(targets)
    }
}

impl FromStr for Filter {
    type Err = FilterError;

    fn from_str(text: &str) -> Result<Filter, FilterError> {
        let mut general = None;
        let mut targets = BTreeMap::new();
        for part in text.split(',').map(str::trim) {
            let (is_known, word) = match part.split_once('=') {
                None if part.is_empty() => return Err(FilterError::Empty),
                None => (general.replace(level(part)?).is_none(), part),
                Some((target, word)) => {
                    let known = TARGETS.iter().find(|known| **known == target.trim());
                    let target = *known.ok_or_else(|| FilterError::Target {
                        word: target.trim().to_owned(),
                    })?;
                    (targets.insert(target, level(word.trim())?).is_none(), target)
                }
            };
            if !is_known {
                return Err(FilterError::Twice {
                    word: word.to_owned(),
                });
            }
        }
        Ok(Filter {
            general: general.unwrap_or(LevelFilter::INFO),
            targets,
        })
    }
}

impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.general)?;
        for (target, level) in &self.targets {
            write!(f, ",{target}={level}")?;
        }
        Ok(())
    }
}

fn level(word: &str) -> Result<LevelFilter, FilterError> {
    let found = LEVELS.iter().find(|(name, _)| *name == word);
    found.map(|(_, level)| *level).ok_or_else(|| FilterError::Level {
        word: word.to_owned(),
    })
}

/// The place of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Place {
    /// The journal, if standard error is connected to it.
    Auto,
    Stderr,
    /// The journal with this socket.
    Journal(PathBuf),
}

impl Place {
    /// Returns the socket of the journal, if the log goes there.
    fn journal(&self) -> Option<PathBuf> {
        match self {
            Place::Auto => journal::is_stderr().then(|| journal::SOCKET.into()),
            Place::Stderr => None,
            Place::Journal(path) => Some(path.clone()),
        }
    }
}

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Place, String> {
        match text.split_once(':') {
            None if text == "auto" => Ok(Place::Auto),
            None if text == "stderr" => Ok(Place::Stderr),
            None if text == "journal" => Ok(Place::Journal(journal::SOCKET.into())),
            Some(("journal", path)) if path.starts_with('/') => Ok(Place::Journal(path.into())),
            _ => Err("expected auto, stderr, journal or journal:/SOCKET".to_owned()),
        }
    }
}

/// The log of this process.
#[derive(Debug)]
pub(crate) struct Log {
    filter: Mutex<Filter>,
    handle: reload::Handle<Targets, Registry>,
}

impl Log {
    /// Starts the log. With `json`, it is JSON on standard error.
    ///
    /// # Errors
    /// A log was already started in this process, or the journal that `place` names is not there.
    pub(crate) fn start(filter: Filter, json: bool, place: &Place) -> anyhow::Result<Log> {
        let (targets, handle) = reload::Layer::new(filter.targets());
        let has_colors = std::io::stderr().is_terminal();
        let lines = tracing_subscriber::fmt::layer()
            .with_writer(move || Lines::new(std::io::stderr(), has_colors))
            .with_ansi(has_colors);
        let lines = match (json, place.journal()) {
            (true, _) => lines.json().boxed(),
            (false, None) => lines.boxed(),
            (false, Some(path)) => match Journal::connect(&path) {
                Ok(journal) => journal.boxed(),
                // Standard error is the journal, too, without fields.
                Err(_) if *place == Place::Auto => lines.boxed(),
                Err(error) => anyhow::bail!(
                    "--log-to: {}: {error}: expected the socket of systemd-journald",
                    path.display()
                ),
            },
        };
        tracing_subscriber::registry()
            .with(targets)
            .with(lines)
            .try_init()
            .map_err(|error| anyhow::anyhow!("the log cannot be started: {error}"))?;
        Ok(Log {
            filter: Mutex::new(filter),
            handle,
        })
    }

    /// Returns the current filter.
    pub(crate) fn filter(&self) -> Filter {
        self.filter.lock().clone()
    }

    /// Replaces the filter, and logs the change if the old or the new filter allows it.
    pub(crate) fn set(&self, filter: Filter) {
        let mut current = self.filter.lock();
        let (old, new) = (current.to_string(), filter.to_string());
        if filter.level(env!("CARGO_CRATE_NAME")) < LevelFilter::INFO {
            tracing::info!(%old, %new, "log filter changed");
        }
        // The call fails if the subscriber was dropped; nothing logs then.
        let _gone = self.handle.reload(filter.targets());
        if filter.level(env!("CARGO_CRATE_NAME")) >= LevelFilter::INFO {
            tracing::info!(%old, %new, "log filter changed");
        }
        *current = filter;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may fail")]

    use std::collections::BTreeSet;
    use std::path::Path;

    use super::*;

    #[test]
    fn a_filter_is_a_level_and_levels_of_targets() {
        for (text, shown) in [
            ("info", "info"),
            ("off", "off"),
            (" debug , dpdk = warn", "debug,dpdk=warn"),
            ("millraced=trace", "info,millraced=trace"),
        ] {
            assert_eq!(text.parse::<Filter>().unwrap().to_string(), shown, "{text}");
        }
    }

    #[test]
    fn unknown_words_are_refused_with_those_that_are_known() {
        let message = |text: &str| text.parse::<Filter>().unwrap_err().to_string();
        assert_eq!(
            message("inof"),
            "`inof` is not a level: expected off, error, warn, info, debug, trace"
        );
        assert!(
            message("info,millrace_agnet=debug")
                .starts_with("`millrace_agnet` is not a target: expected dpdk, ")
        );
        assert!(message("millraced=loud").contains("`loud` is not a level"));
        assert!(message("info,debug").contains("`debug` appears twice"));
        assert!(message("dpdk=info,dpdk=debug").contains("`dpdk` appears twice"));
        assert!(message("").contains("expected a level"));
        assert!(message("info,").contains("expected a level"));
    }

    /// Adds the crate of each Rust file below `directory` that calls a macro of `tracing`.
    fn crates_that_log(directory: &Path, name: &str, found: &mut BTreeSet<String>) {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                crates_that_log(&path, name, found);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = std::fs::read_to_string(&path).unwrap();
                let levels = ["error", "warn", "info", "debug", "trace"];
                if levels
                    .iter()
                    .any(|level| text.contains(&format!("tracing::{level}!(")))
                {
                    found.insert(name.to_owned());
                }
            }
        }
    }

    /// The crates of these planes that log in another program, `millrace-mgmt`.
    const ELSEWHERE: [&str; 1] = ["agentx"];

    #[test]
    fn every_crate_of_the_daemon_that_logs_is_a_target() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let mut found = BTreeSet::from([DPDK.to_owned()]);
        crates_that_log(&root.join("bin/millraced/src"), "millraced", &mut found);
        for plane in [
            "base",
            "io",
            "switch",
            "functions",
            "config",
            "management",
            "control",
        ] {
            for folder in std::fs::read_dir(root.join("crates").join(plane)).unwrap() {
                let folder = folder.unwrap().path();
                let name = folder.file_name().unwrap().to_str().unwrap().replace('-', "_");
                if folder.join("src").is_dir() && !ELSEWHERE.contains(&name.as_str()) {
                    crates_that_log(&folder.join("src"), &format!("millrace_{name}"), &mut found);
                }
            }
        }
        assert_eq!(found, TARGETS.map(str::to_owned).into());
    }
}
