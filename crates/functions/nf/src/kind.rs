//! Kinds of functions, which hops of a chain can name.

use core::fmt;
use core::time::Duration;
use std::path::Path;

use thiserror::Error;

use crate::counters::Counters;
use crate::function::Function;
use crate::outbox::Outbox;
use crate::settings::{SettingError, Settings};
use crate::shared::{FormatterConstructor, SharedKind, SharedValue};

/// Maximum number of reports in a function's queue.
const REPORTS: usize = 2;
/// Entries of a table in a function that is created only to check its settings.
const CHECK_ENTRIES: usize = 8;

/// The parts of a packet that a function reads or writes, one bit each. Two functions commute if neither writes what the
/// other reads or writes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Access(u8);

impl Access {
    /// No part.
    pub const NONE: Access = Access(0);
    /// All parts.
    pub const ALL: Access = Access(31);
    /// The Ethernet header and VLAN tags.
    pub const LINK: Access = Access(1);
    /// IP addresses.
    pub const ADDRESSES: Access = Access(2);
    /// Transport ports.
    pub const PORTS: Access = Access(4);
    /// All other header fields.
    pub const HEADERS: Access = Access(8);
    pub const PAYLOAD: Access = Access(16);

    /// Returns the bits.
    pub const fn to_raw(self) -> u8 {
        self.0
    }

    /// Returns the parts for a number, or `None` if it has unknown bits.
    pub const fn from_raw(raw: u8) -> Option<Access> {
        match raw {
            0..=31 => Some(Access(raw)),
            _ => None,
        }
    }

    /// Returns the union of two sets.
    pub const fn or(self, other: Access) -> Access {
        Access(self.0 | other.0)
    }

    /// Returns whether two sets have a common part.
    pub const fn meets(self, other: Access) -> bool {
        self.0 & other.0 != 0
    }
}

/// Resource limits of a function. Its kind or its class enforces them.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Limits {
    /// Memory, in bytes.
    pub memory: Option<u64>,
    /// Instructions of a WebAssembly function for one burst.
    pub fuel: Option<u64>,
    /// Time of a WebAssembly function for one burst, rounded up to 10 ms. Its creation may take a hundred times as long.
    pub burst_time: Option<Duration>,
}

/// The inputs and outputs of a new function.
#[derive(Clone, Debug)]
pub struct Setup {
    pub settings: Settings,
    /// The counters, with the names that the kind defines.
    pub counters: Counters,
    /// The queue for messages that the `export` setting asks for.
    pub outbox: Outbox,
    /// The queue for text that shows the function's state to operators.
    pub report: Outbox,
    /// The shared value of the hop; `None` until it is compiled, and for kinds without one.
    pub shared: Option<SharedValue>,
    /// The resource limits.
    pub limits: Limits,
    /// The Unix time in milliseconds at which the function's clock was zero.
    pub zero_unix_millis: u64,
    /// A secret random number that keys the function's hash tables.
    pub seed: u64,
    /// The number of the function among all functions of its hop, over lanes and instances, from 0.
    pub instance: u32,
    /// The function is created only to check its settings, and gets no packets.
    is_check: bool,
}

impl Setup {
    /// Returns the number of entries to allocate for a table of `wanted` entries: few, if the function gets no packets.
    pub fn table_len(&self, wanted: usize) -> usize {
        match self.is_check {
            true => wanted.min(CHECK_ENTRIES),
            false => wanted,
        }
    }
}

/// The reason why a function cannot be created.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum MakeError {
    /// No function has that name.
    #[error("there is no function `{name}`: expected {expected}")]
    Unknown {
        name: String,
        /// The names of all functions.
        expected: String,
    },
    /// The file of the function cannot be loaded.
    #[error("function {name}: {reason}")]
    Load {
        /// The name, with the file.
        name: String,
        reason: String,
    },
    /// The function rejects a setting.
    #[error("function {name}: {source}")]
    Setting {
        /// The name of the function.
        name: &'static str,
        source: SettingError,
    },
}

/// The packets that must reach the same instance of a function, in the same lane.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Spread {
    /// The packets of a flow. Fragments, which have no ports, are spread by addresses, so they may reach
    /// another instance.
    #[default]
    Flow,
    /// The packets between two addresses, fragments and tunnelled packets included. A function that
    /// reassembles packets then sees all packets of a flow.
    Addresses,
}

/// The constructor of a function.
pub type Constructor = dyn Fn(&Setup) -> Result<Box<dyn Function>, SettingError> + Sync;

/// A kind of function.
#[derive(Clone, Copy)]
pub struct Kind {
    /// The name in the configuration.
    pub name: &'static str,
    /// A description in one line.
    pub about: &'static str,
    /// The keys of the function's settings, each with a description in one line.
    pub settings: &'static [(&'static str, &'static str)],
    /// The names of the function's counters.
    pub counters: &'static [&'static str],
    /// The parts of packets that the function reads.
    pub reads: Access,
    /// The parts of packets that the function writes. A function that writes none may get packets in parallel with adjacent hops
    /// that write none either. If it writes nevertheless, its changes are discarded, unless it is trusted with
    /// packet memory.
    pub writes: Access,
    /// True if both directions of a flow must reach the same instance.
    pub keeps_flows: bool,
    /// The number of flows that a function shuns at a time ([`Effects::shun`](crate::Effects::shun)); zero if it shuns none.
    pub shuns: usize,
    /// The capacity of the function's outbox in messages, and the size of the longest message in bytes; zero
    /// if it sends none.
    pub outbox: (usize, usize),
    /// The size of the function's longest report in bytes; zero if it has none.
    pub report: usize,
    /// The packets that must reach the same instance.
    pub spread: Spread,
    /// The functions that make the value that all functions of a hop share; `None` for kinds without one.
    pub shared: Option<&'static SharedKind>,
    /// The formatter of the messages that the `export` setting asks for; `None` if they are exported as they are.
    pub formatter: Option<FormatterConstructor>,
    /// The constructor.
    pub make: &'static Constructor,
}

impl fmt::Debug for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kind")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl Kind {
    /// The default values of the fields: a kind that reads nothing, has no state, and cannot be created.
    pub const DEFAULT: Kind = Kind {
        name: "",
        about: "",
        settings: &[],
        counters: &[],
        reads: Access::NONE,
        writes: Access::NONE,
        keeps_flows: false,
        shuns: 0,
        outbox: (0, 0),
        report: 0,
        spread: Spread::Flow,
        shared: None,
        formatter: None,
        make: &|_| {
            Err(SettingError::Refused {
                reason: "it cannot be created".to_owned(),
            })
        },
    };

    /// Returns the inputs and outputs for a new function of this kind.
    pub fn setup(&self, settings: &Settings, seed: u64, zero_unix_millis: u64) -> Setup {
        Setup {
            settings: settings.clone(),
            counters: Counters::new(self.counters),
            outbox: Outbox::new(self.outbox.0, self.outbox.1),
            report: Outbox::new(REPORTS, self.report),
            shared: None,
            limits: Limits::default(),
            zero_unix_millis,
            seed,
            instance: 0,
            is_check: false,
        }
    }

    /// Checks the settings of a function of this kind. A function is created with little memory, and dropped.
    ///
    /// # Errors
    /// The first setting that is rejected, with the reason.
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
            shared: None,
            limits: Limits::default(),
            zero_unix_millis: 0,
            seed: 0,
            instance: 0,
            is_check: true,
        }
    }

    fn make_checked(&self, setup: &Setup) -> Result<Box<dyn Function>, SettingError> {
        let keys: Vec<&str> = self.settings.iter().map(|(key, _)| *key).collect();
        setup.settings.only(&keys)?;
        (self.make)(setup)
    }

    /// Creates a function. One that replaces another gets the setup of the old one, and continues its counters.
    ///
    /// # Errors
    /// [`MakeError::Setting`].
    pub fn make_function(&self, setup: &Setup) -> Result<Box<dyn Function>, MakeError> {
        self.make_checked(setup).map_err(|source| MakeError::Setting {
            name: self.name,
            source,
        })
    }

    /// Returns whether functions of this kind only read packets.
    pub fn only_reads(&self) -> bool {
        self.writes == Access::NONE
    }

    /// Returns whether functions of this kind and of the next kind in a chain could work on a packet in
    /// parallel.
    pub fn is_parallel_with(&self, next: &Kind) -> bool {
        !self.writes.meets(next.reads.or(next.writes)) && !next.writes.meets(self.reads)
    }
}

/// A loader of functions from files.
#[derive(Clone, Copy, Debug)]
pub struct Loader {
    /// The prefix of function names for this loader, such as `wasm` in `wasm:PATH`.
    pub prefix: &'static str,
    /// Returns the kind of function in a file, or the reason why there is none. A file is loaded again only if it has
    /// changed.
    pub load: fn(&Path) -> Result<&'static Kind, String>,
}

/// The functions that hops can name.
#[derive(Clone, Copy, Debug)]
pub struct Catalogue {
    kinds: &'static [Kind],
    loaders: &'static [Loader],
}

impl Catalogue {
    /// Returns a catalogue of built-in functions.
    pub const fn new(kinds: &'static [Kind]) -> Catalogue {
        Catalogue { kinds, loaders: &[] }
    }

    /// Returns the catalogue with loaders for functions from files.
    pub const fn with_loaders(self, loaders: &'static [Loader]) -> Catalogue {
        Catalogue { loaders, ..self }
    }

    /// Returns the built-in functions.
    pub fn kinds(&self) -> &'static [Kind] {
        self.kinds
    }

    /// Returns the built-in function with a name, or the function in the file that the name refers to (`wasm:PATH`).
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
