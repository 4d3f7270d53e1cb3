//! Kinds of functions: what an operator can name in a chain.

use core::fmt;
use std::path::Path;

use thiserror::Error;

use crate::counters::Counters;
use crate::function::Function;
use crate::outbox::Outbox;
use crate::settings::{SettingError, Settings};

/// Reports that wait to be read.
const REPORTS: usize = 2;
/// Entries of a table that is made to check settings.
const REHEARSED: usize = 8;

/// Parts of a packet that a function reads or writes. Two functions that only read, or write what the other neither
/// reads nor writes, may change places.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Access(u8);

impl Access {
    /// Nothing.
    pub const NONE: Access = Access(0);
    /// Everything.
    pub const ALL: Access = Access(31);
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

    /// As a number, a bit for each part.
    pub const fn to_raw(self) -> u8 {
        self.0
    }

    /// The same from a number; `None` if it has other bits.
    pub const fn from_raw(raw: u8) -> Option<Access> {
        match raw {
            0..=31 => Some(Access(raw)),
            _ => None,
        }
    }

    /// Both.
    pub const fn or(self, other: Access) -> Access {
        Access(self.0 | other.0)
    }

    /// Whether the two have something in common.
    pub const fn meets(self, other: Access) -> bool {
        self.0 & other.0 != 0
    }
}

/// What a function may use, where its kind or its class can bound it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Limits {
    /// Bytes of memory.
    pub memory: Option<u64>,
    /// Instructions that a WebAssembly function may take over one burst.
    pub fuel: Option<u64>,
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
    /// What it may use, where that can be bounded.
    pub limits: Limits,
    /// The Unix time in milliseconds at which its clock was zero.
    pub zero_unix_millis: u64,
    /// A random number that nobody outside knows: keys its hash tables.
    pub seed: u64,
    /// Whether only its settings are checked: no packet will come.
    is_rehearsal: bool,
}

impl Setup {
    /// How many entries to take memory for, where so many are wanted: few, if no packet will come.
    pub fn room(&self, wanted: usize) -> usize {
        match self.is_rehearsal {
            true => wanted.min(REHEARSED),
            false => wanted,
        }
    }
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
    /// The file that it is to be loaded from is none.
    #[error("function {name}: {reason}")]
    Load {
        /// The name, with the file.
        name: String,
        /// What is wrong with it.
        reason: String,
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

/// How a function is made.
pub type Make = dyn Fn(&Setup) -> Result<Box<dyn Function>, SettingError> + Sync;

/// A kind of function.
#[derive(Clone, Copy)]
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
    /// What it writes. If that is nothing, it may be given packets at the same time as its neighbours in a chain of which
    /// the same is true; and what it did to them after all is undone, where it is not trusted with their memory.
    pub writes: Access,
    /// Whether both directions of a flow must meet the same instance.
    pub keeps_flows: bool,
    /// Messages that its outbox holds, and the bytes of the longest one; zero if it sends none.
    pub outbox: (usize, usize),
    /// Bytes of its longest report; zero if it makes none.
    pub report: usize,
    /// Makes one.
    pub make: &'static Make,
}

impl fmt::Debug for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kind")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl Kind {
    /// What a function of this kind is to be given: counters and outboxes of its own.
    pub fn setup(&self, settings: &Settings, seed: u64, zero_unix_millis: u64) -> Setup {
        Setup {
            settings: settings.clone(),
            counters: Counters::new(self.counters),
            outbox: Outbox::new(self.outbox.0, self.outbox.1),
            report: Outbox::new(REPORTS, self.report),
            limits: Limits::default(),
            zero_unix_millis,
            seed,
            is_rehearsal: false,
        }
    }

    /// Whether a function of this kind takes the settings. It is made, with little memory, and dropped.
    ///
    /// # Errors
    /// What is wrong with the first setting that it refuses.
    pub fn check(&self, settings: &Settings) -> Result<(), SettingError> {
        let setup = self.small_setup(settings);
        self.make_checked(&setup).map(drop)
    }

    /// Returns a setup for a function that sees single packets only, for checks and traces: its tables have room
    /// for a few entries, and its messages go nowhere.
    pub fn small_setup(&self, settings: &Settings) -> Setup {
        Setup {
            settings: settings.clone(),
            counters: Counters::new(self.counters),
            outbox: Outbox::new(1, 0),
            report: Outbox::new(1, 0),
            limits: Limits::default(),
            zero_unix_millis: 0,
            seed: 0,
            is_rehearsal: true,
        }
    }

    fn make_checked(&self, setup: &Setup) -> Result<Box<dyn Function>, SettingError> {
        let keys: Vec<&str> = self.settings.iter().map(|(key, _)| *key).collect();
        setup.settings.only(&keys)?;
        (self.make)(setup)
    }

    /// Makes a function. One that replaces another is given the setup of that one, and counts on.
    ///
    /// # Errors
    /// [`MakeError::Setting`].
    pub fn make_function(&self, setup: &Setup) -> Result<Box<dyn Function>, MakeError> {
        self.make_checked(setup).map_err(|source| MakeError::Setting {
            name: self.name,
            source,
        })
    }

    /// Whether it only reads packets, and says what becomes of them.
    pub fn only_reads(&self) -> bool {
        self.writes == Access::NONE
    }

    /// Whether this function and the next one in a chain could work on a packet at the same time.
    pub fn is_parallel_with(&self, next: &Kind) -> bool {
        !self.writes.meets(next.reads.or(next.writes)) && !next.writes.meets(self.reads)
    }
}

/// A way to functions that do not come along.
#[derive(Clone, Copy, Debug)]
pub struct Loader {
    /// What a name begins with that this one finds, before a colon: `wasm`.
    pub prefix: &'static str,
    /// Finds the function in a file. What was found once is found again without reading the file, until that changes.
    /// The reason, if there is none.
    pub load: fn(&Path) -> Result<&'static Kind, String>,
}

/// The functions that can be named.
#[derive(Clone, Copy, Debug)]
pub struct Catalogue {
    kinds: &'static [Kind],
    loaders: &'static [Loader],
}

impl Catalogue {
    /// These.
    pub const fn new(kinds: &'static [Kind]) -> Catalogue {
        Catalogue { kinds, loaders: &[] }
    }

    /// And those that can be loaded in these ways.
    pub const fn with_loaders(self, loaders: &'static [Loader]) -> Catalogue {
        Catalogue { loaders, ..self }
    }

    /// Those that come along.
    pub fn kinds(&self) -> &'static [Kind] {
        self.kinds
    }

    /// The function of that name, or in the file that it names: `wasm:PATH`.
    ///
    /// # Errors
    /// [`MakeError::Unknown`], [`MakeError::Load`].
    pub fn find(&self, name: &str) -> Result<&'static Kind, MakeError> {
        if let Some((prefix, path)) = name.split_once(':')
            && let Some(loader) = self.loaders.iter().find(|loader| loader.prefix == prefix)
        {
            return (loader.load)(Path::new(path)).map_err(|reason| MakeError::Load {
                name: name.to_owned(),
                reason,
            });
        }
        let kind = self.kinds.iter().find(|kind| kind.name == name);
        let files = self
            .loaders
            .iter()
            .map(|loader| format!("{}:PATH", loader.prefix));
        let names = self.kinds.iter().map(|kind| kind.name.to_owned());
        kind.ok_or_else(|| MakeError::Unknown {
            name: name.to_owned(),
            expected: names.chain(files).collect::<Vec<_>>().join(", "),
        })
    }
}
