//! The configuration file of the daemon: `courier.toml`.

use crate::size::ByteSize;
use millrace_courier::identity::PublicKey;
use millrace_types::{BitRate, parse_duration};
use serde::Deserialize;
use serde::de::{Deserializer, Error as _};
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use thiserror::Error;

/// The smallest pool. Bytes are written in groups of 16 KiB: with fewer bytes of credit, no group would ever be whole.
const POOL_MIN: ByteSize = ByteSize(1 << 20);

/// A configuration that cannot be used.
#[derive(Debug, Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read {}: {error}", path.display())]
    Read { path: PathBuf, error: io::Error },
    /// The file is no TOML, or has an unknown key or a wrong value.
    #[error("{}: {error}", path.display())]
    Syntax {
        path: PathBuf,
        /// The cause, with line and column.
        error: Box<toml::de::Error>,
    },
    /// A grant is not valid.
    #[error("grant `{name}`: {reason}")]
    Grant {
        /// The grant.
        name: String,
        /// The finding, and what was expected.
        reason: String,
    },
    /// Metrics would leave the machine.
    #[error(
        "metrics = \"{0}\": expected a loopback address such as 127.0.0.1:9780; others reach it by a reverse proxy with authentication"
    )]
    MetricsAddress(SocketAddr),
    /// The pool is smaller than any transfer needs.
    #[error("pool = {0}: expected 1MiB or more, because bytes are written in groups")]
    Pool(ByteSize),
}

/// A verb of a grant.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verb {
    /// New files may be written: their names must not exist.
    Create,
    /// Files may be written, and replace others.
    Replace,
    /// Files may be read.
    Read,
    /// Directories may be listed.
    List,
}

impl Verb {
    /// Returns the verb's name in the configuration.
    pub fn name(self) -> &'static str {
        match self {
            Verb::Create => "create",
            Verb::Replace => "replace",
            Verb::Read => "read",
            Verb::List => "list",
        }
    }
}

/// The configuration of the daemon.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The UDP address to listen at.
    #[serde(default = "loopback")]
    pub listen: SocketAddr,
    /// The directory of identity, lock, status socket and audit log.
    #[serde(default = "default_state")]
    pub state: PathBuf,
    /// The loopback address of metrics over TCP, in addition to the status socket.
    pub metrics: Option<SocketAddr>,
    /// The time that running transfers have after SIGTERM.
    #[serde(default = "thirty_seconds", deserialize_with = "duration")]
    pub drain: Duration,
    /// Silence after which a peer counts as lost.
    #[serde(default = "twenty_seconds", deserialize_with = "duration")]
    pub silence: Duration,
    /// The time that a lost peer has to come back.
    #[serde(default = "ten_minutes", deserialize_with = "duration")]
    pub patience: Duration,
    /// The maximum number of received bytes that are not written yet, for each transfer.
    #[serde(default = "default_pool")]
    pub pool: ByteSize,
    #[serde(default, rename = "grant")]
    pub grants: Vec<GrantConfig>,
}

/// A `[[grant]]`: the verbs that some keys have below a directory, and the limits.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GrantConfig {
    /// The name: the first part of paths.
    pub name: String,
    /// The keys that have the grant.
    #[serde(deserialize_with = "keys")]
    pub keys: Vec<PublicKey>,
    /// The directory; nothing outside it is touched.
    pub directory: PathBuf,
    /// The allowed verbs.
    pub verbs: BTreeSet<Verb>,
    /// Bytes that the directory may hold.
    pub quota_bytes: Option<ByteSize>,
    /// Files, directories and symlinks that the directory may hold.
    pub quota_files: Option<u64>,
    /// The highest rate of all transfers together.
    #[serde(default, deserialize_with = "rate")]
    pub rate: Option<BitRate>,
    /// Transfers that may run at once.
    #[serde(default = "four")]
    pub transfers: usize,
    /// The time at which the grant ends.
    #[serde(default, deserialize_with = "until")]
    pub until: Option<SystemTime>,
    /// Files get the permission bits and modification times of the source.
    #[serde(default)]
    pub modes_and_times: bool,
    /// The symlinks that are taken.
    #[serde(default)]
    pub symlinks: Symlinks,
}

/// The symlinks that a grant takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Symlinks {
    /// Those that lead to nothing outside the directory of the grant.
    #[default]
    Beneath,
    /// All: only for users whom all programs that read the directory trust.
    Any,
}

fn loopback() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 7_800))
}

fn default_state() -> PathBuf {
    PathBuf::from("/var/lib/millrace-courier")
}

fn thirty_seconds() -> Duration {
    Duration::from_secs(30)
}

fn twenty_seconds() -> Duration {
    Duration::from_secs(20)
}

fn ten_minutes() -> Duration {
    Duration::from_secs(600)
}

fn default_pool() -> ByteSize {
    ByteSize(256 << 20)
}

fn four() -> usize {
    4
}

fn duration<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    let text = String::deserialize(deserializer)?;
    match parse_duration(&text) {
        Ok(duration) if duration.is_zero() => Err(D::Error::custom(format!(
            "`{text}`: expected more than no time, such as 30s"
        ))),
        Ok(duration) => Ok(duration),
        Err(error) => Err(D::Error::custom(error)),
    }
}

fn rate<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<BitRate>, D::Error> {
    let rate: BitRate = String::deserialize(deserializer)?
        .parse()
        .map_err(D::Error::custom)?;
    if rate.bps() == 0 {
        return Err(D::Error::custom(
            "a rate of 0 moves nothing; remove the verbs instead",
        ));
    }
    Ok(Some(rate))
}

fn keys<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<PublicKey>, D::Error> {
    let texts = Vec::<String>::deserialize(deserializer)?;
    texts
        .iter()
        .map(|text| text.parse().map_err(D::Error::custom))
        .collect()
}

fn until<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<SystemTime>, D::Error> {
    let datetime = toml::value::Datetime::deserialize(deserializer)?;
    let wrong =
        || D::Error::custom("expected a date, or a date and time in UTC such as 2027-01-31T12:00:00Z");
    let date = datetime.date.ok_or_else(wrong)?;
    let offset = match datetime.offset {
        None | Some(toml::value::Offset::Z) => 0,
        Some(toml::value::Offset::Custom { minutes }) => i64::from(minutes),
    };
    let time = datetime.time.map_or(0, |time| {
        i64::from(time.hour) * 3_600 + i64::from(time.minute) * 60 + i64::from(time.second.unwrap_or(0))
    });
    let days = days_since_1970(i64::from(date.year), i64::from(date.month), i64::from(date.day));
    let seconds = days * 86_400 + time - offset * 60;
    let seconds = u64::try_from(seconds).map_err(|_| wrong())?;
    Ok(Some(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)))
}

/// Returns the days from 1970-01-01 to a date of the Gregorian calendar (Hinnant, "chrono-Compatible Low-Level Date Algorithms").
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

impl Config {
    /// Returns the configuration in a file.
    ///
    /// # Errors
    /// If the file cannot be read or is not valid; the error names key, line and what was expected.
    pub fn load(path: &Path) -> Result<Config, ConfigError> {
        let text = fs::read_to_string(path).map_err(|error| ConfigError::Read {
            path: path.to_owned(),
            error,
        })?;
        Config::parse(&text, path)
    }

    fn parse(text: &str, path: &Path) -> Result<Config, ConfigError> {
        let config: Config = toml::from_str(text).map_err(|error| ConfigError::Syntax {
            path: path.to_owned(),
            error: Box::new(error),
        })?;
        config.check()?;
        Ok(config)
    }

    fn check(&self) -> Result<(), ConfigError> {
        if let Some(address) = self.metrics.filter(|address| !address.ip().is_loopback()) {
            return Err(ConfigError::MetricsAddress(address));
        }
        if self.pool < POOL_MIN {
            return Err(ConfigError::Pool(self.pool));
        }
        let mut names = BTreeSet::new();
        for grant in &self.grants {
            let problem = grant.problem().or_else(|| self.foreign_link(grant)).or_else(|| {
                (!names.insert(&grant.name))
                    .then(|| "another grant has the same name; names are unique".into())
            });
            if let Some(reason) = problem {
                let name = grant.name.clone();
                return Err(ConfigError::Grant { name, reason });
            }
        }
        Ok(())
    }
}

impl Config {
    /// Returns the problem of a grant whose directory is reached through a symlink in the directory of another grant: whoever may write
    /// there decides where the grant leads.
    fn foreign_link(&self, grant: &GrantConfig) -> Option<String> {
        for path in grant.directory.ancestors() {
            if !path.is_symlink() {
                continue;
            }
            let parent = path.parent()?.canonicalize().ok()?;
            let holds = |other: &&GrantConfig| {
                let directory = other.directory.canonicalize();
                other.name != grant.name && directory.is_ok_and(|directory| parent.starts_with(directory))
            };
            if let Some(other) = self.grants.iter().find(holds) {
                return Some(format!(
                    "{} is a symlink in the directory of grant `{}`, whose users may change it; name the directory that is meant",
                    path.display(),
                    other.name
                ));
            }
        }
        None
    }
}

impl GrantConfig {
    fn problem(&self) -> Option<String> {
        let plain = |char: char| char.is_ascii_alphanumeric() || "-_.".contains(char);
        if self.name.is_empty() || self.name.starts_with('.') || !self.name.chars().all(plain) {
            return Some(
                "expected a name of letters, digits, `-`, `_` and `.`, which begins with no dot".into(),
            );
        }
        if self.verbs.is_empty() {
            return Some("verbs is empty; expected some of create, replace, read, list".into());
        }
        if !self.directory.is_absolute() {
            return Some(format!(
                "directory = {:?}: expected an absolute path",
                self.directory
            ));
        }
        if !self.directory.is_dir() {
            return Some(format!(
                "{} is no directory; create it first",
                self.directory.display()
            ));
        }
        (self.transfers == 0).then(|| "transfers = 0 admits nobody; expected 1 or more".into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";

    fn parse(text: &str) -> Result<Config, String> {
        let text = text.replace("KEY", KEY);
        Config::parse(&text, Path::new("courier.toml")).map_err(|error| error.to_string())
    }

    #[test]
    fn a_grant_says_who_may_do_what_and_how_much() {
        let config = parse(
            r#"
            listen = "0.0.0.0:7800"
            metrics = "127.0.0.1:9780"
            drain = "2m"
            [[grant]]
            name = "in"
            keys = ["KEY"]
            directory = "/tmp"
            verbs = ["create", "list"]
            quota_bytes = "10GiB"
            quota_files = 1000
            rate = "500Mbps"
            until = 2027-01-31T12:00:00Z
            "#,
        )
        .unwrap();
        assert_eq!(config.drain, Duration::from_secs(120));
        let grant = &config.grants[0];
        assert_eq!(grant.quota_bytes, Some(ByteSize(10 << 30)));
        assert_eq!(grant.rate, Some(BitRate::from_bps(500_000_000)));
        assert_eq!(grant.transfers, 4);
        let until = SystemTime::UNIX_EPOCH + Duration::from_secs(1_801_396_800);
        assert_eq!(grant.until, Some(until));
        assert!(
            parse("").unwrap().listen.ip().is_loopback(),
            "loopback unless told"
        );
    }

    #[test]
    fn a_grant_that_resolves_through_another_one_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name).display().to_string();
        fs::create_dir_all(dir.path().join("in/real")).unwrap();
        fs::create_dir(dir.path().join("out")).unwrap();
        let both = |second: &str| {
            let grant = |name: &str, directory: String| {
                format!(
                    "[[grant]]\nname = \"{name}\"\nkeys = [\"KEY\"]\ndirectory = \"{directory}\"\nverbs = [\"create\"]\n"
                )
            };
            parse(&(grant("in", path("in")) + &grant("second", path(second))))
        };
        assert!(both("in/real").is_ok() && both("out").is_ok());
        std::os::unix::fs::symlink(path("out"), path("in/link")).unwrap();
        let error = both("in/link").unwrap_err();
        assert!(error.contains("in the directory of grant `in`"), "{error}");
        std::os::unix::fs::symlink(path("out"), path("own")).unwrap();
        assert!(both("own").is_ok(), "the operator's own link");
    }

    #[test]
    fn every_mistake_is_refused_by_name() {
        let grant = |change: (&str, &str)| {
            "[[grant]]\nname = \"in\"\nkeys = [\"KEY\"]\ndirectory = \"/tmp\"\nverbs = [\"create\"]\nrate = \"1Gbps\"\n"
                .replace(change.0, change.1)
        };
        let cases = [
            (grant(("\"in\"", "\"../in\"")), "letters, digits"),
            (grant(("KEY", "mistyped")), "52 characters"),
            (grant(("/tmp", "tmp")), "absolute"),
            (grant(("/tmp", "/no/such/directory")), "create it first"),
            (grant(("\"create\"", "\"delete\"")), "delete"),
            (grant(("\"create\"", "")), "verbs is empty"),
            (grant(("1Gbps", "1")), "bit rate"),
            (grant(("verbs", "verb")), "verb"),
            (grant(("x", "x")) + &grant(("x", "x")), "same name"),
            ("metrics = \"0.0.0.0:9780\"".into(), "loopback"),
            ("drain = \"soon\"".into(), "such as 20s"),
            ("pool = \"1023KiB\"".into(), "1MiB or more"),
        ];
        for (text, expected) in cases {
            let error = parse(&text).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
