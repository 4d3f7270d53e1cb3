//! Kinds of functions: what an operator can name in a chain.

use thiserror::Error;

use crate::counters::Counters;
use crate::function::Function;
use crate::outbox::Outbox;
use crate::settings::{SettingError, Settings};

/// Reports that wait to be read.
const REPORTS: usize = 2;

/// Parts of a packet that a function reads or writes. Two functions that only read, or write what the other neither
/// reads nor writes, may change places.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Access(u8);

impl Access {
    /// Nothing.
    pub const NONE: Access = Access(0);
    /// The Ethernet header and tags.
    pub const LINK: Access = Access(1);
    /// IP addresses.
    pub const ADDRESSES: Access = Access(2);
    /// Transport ports.
    pub const PORTS: Access = Access(4);
    /// All other header fields.
    pub const HEADERS: Access = Access(8);
    /// What follows the headers.
    pub const PAYLOAD: Access = Access(16);

    /// Both.
    pub const fn or(self, other: Access) -> Access {
        Access(self.0 | other.0)
    }

    /// Whether the two have something in common.
    pub const fn meets(self, other: Access) -> bool {
        self.0 & other.0 != 0
    }
}

/// What a function is given when it is made.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Its settings.
    pub settings: Settings,
    /// Its counters, named as its kind says.
    pub counters: Counters,
    /// Where it puts messages for the outside: what its `export` setting wants.
    pub outbox: Outbox,
    /// Where it puts what it knows now, as text, for whoever asks.
    pub report: Outbox,
    /// The Unix time in milliseconds at which its clock was zero.
    pub zero_unix_millis: u64,
    /// A random number that nobody outside knows: keys its hash tables.
    pub seed: u64,
}

/// Why a function cannot be made.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum MakeError {
    /// There is no function of that name.
    #[error("there is no function `{name}`: expected {expected}")]
    Unknown {
        /// The name.
        name: String,
        /// Those that there are.
        expected: String,
    },
    /// A setting is wrong.
    #[error("function {name}: {source}")]
    Setting {
        /// The function.
        name: &'static str,
        /// What is wrong.
        source: SettingError,
    },
}

/// A kind of function.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    /// What operators call it.
    pub name: &'static str,
    /// One line for people.
    pub about: &'static str,
    /// The keys of its settings, each with a line for people.
    pub settings: &'static [(&'static str, &'static str)],
    /// Names of its counters.
    pub counters: &'static [&'static str],
    /// What it reads.
    pub reads: Access,
    /// What it writes.
    pub writes: Access,
    /// Whether both directions of a flow must meet the same instance.
    pub keeps_flows: bool,
    /// Messages that its outbox holds, and the bytes of the longest one; zero if it sends none.
    pub outbox: (usize, usize),
    /// Bytes of its longest report; zero if it makes none.
    pub report: usize,
    /// Makes one.
    pub make: fn(&Setup) -> Result<Box<dyn Function>, SettingError>,
}

impl Kind {
    /// What a function of this kind is to be given: counters and outboxes of its own.
    pub fn setup(&self, settings: &Settings, seed: u64, zero_unix_millis: u64) -> Setup {
        Setup {
            settings: settings.clone(),
            counters: Counters::new(self.counters),
            outbox: Outbox::new(self.outbox.0, self.outbox.1),
            report: Outbox::new(REPORTS, self.report),
            zero_unix_millis,
            seed,
        }
    }

    /// Makes a function. One that replaces another is given the setup of that one, and counts on.
    ///
    /// # Errors
    /// [`MakeError::Setting`].
    pub fn make_function(&self, setup: &Setup) -> Result<Box<dyn Function>, MakeError> {
        let refuse = |source| MakeError::Setting {
            name: self.name,
            source,
        };
        let keys: Vec<&str> = self.settings.iter().map(|(key, _)| *key).collect();
        setup.settings.only(&keys).map_err(refuse)?;
        (self.make)(setup).map_err(refuse)
    }

    /// Whether this function and the next one in a chain could work on a packet at the same time.
    pub fn is_parallel_with(&self, next: &Kind) -> bool {
        !self.writes.meets(next.reads.or(next.writes)) && !next.writes.meets(self.reads)
    }
}

/// The functions that can be named.
#[derive(Clone, Copy, Debug)]
pub struct Catalogue(pub &'static [Kind]);

impl Catalogue {
    /// The function of that name.
    ///
    /// # Errors
    /// [`MakeError::Unknown`].
    pub fn find(&self, name: &str) -> Result<&'static Kind, MakeError> {
        let kind = self.0.iter().find(|kind| kind.name == name);
        kind.ok_or_else(|| MakeError::Unknown {
            name: name.to_owned(),
            expected: self.0.iter().map(|kind| kind.name).collect::<Vec<_>>().join(", "),
        })
    }
}
