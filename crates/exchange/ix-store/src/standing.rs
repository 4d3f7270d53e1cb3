//! The part that an engine has among the engines of one database.

use std::fmt;
use std::time::Duration;

use crate::transaction::Revision;

/// An engine as others show it to people.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Leader {
    /// The name in its settings.
    pub name: String,
    /// The address of its page; empty if it has none.
    pub address: String,
}

impl fmt::Display for Leader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.name.is_empty(), self.address.is_empty()) {
            (true, _) => f.write_str("another engine"),
            (false, true) => f.write_str(&self.name),
            (false, false) => write!(f, "{} ({})", self.name, self.address),
        }
    }
}

/// The part of an engine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Role {
    /// It writes, and commands switches.
    Leads {
        /// The number of its election.
        epoch: u64,
    },
    /// It reads.
    Follows {
        /// The engine that leads; its name is empty while that is not known.
        leader: Leader,
        /// The newest epoch in the database, as far as it is known.
        epoch: u64,
    },
}

/// The part of an engine at one moment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Standing {
    /// Grows when the contents of the database may be other ones than this engine has in memory: it has begun to lead or to
    /// follow, or the database was away and has other contents now.
    pub term: u64,
    pub role: Role,
    /// The newest revision in the database, as far as a follower knows it.
    pub revision: Revision,
    /// The time for which the database has not answered; `None` if it answered last.
    pub silent: Option<Duration>,
    /// True if other engines may share the database.
    pub shared: bool,
}

impl Standing {
    /// Returns the standing of the only engine of a database.
    pub fn alone(epoch: u64) -> Standing {
        Standing {
            term: 0,
            role: Role::Leads { epoch },
            revision: Revision(0),
            silent: None,
            shared: false,
        }
    }

    /// Returns the epoch in which this engine leads; `None` if it follows.
    pub fn epoch(&self) -> Option<u64> {
        match self.role {
            Role::Leads { epoch } => Some(epoch),
            Role::Follows { .. } => None,
        }
    }
}
