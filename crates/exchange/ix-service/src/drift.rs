//! Drift: entries of a switch that differ from the plan, with the objects to which they belong, as readers see it.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;

use millrace_ix_engine::Drift;
use millrace_ix_model::{ConfigId, FilterId, ObjectId, ServiceId, SwitchId};
use millrace_ix_store::UnixMillis;

use crate::fabric::FabricKey;

/// The kept findings of each switch, the newest first.
pub type DriftFindings = BTreeMap<SwitchId, VecDeque<DriftFinding>>;

/// The drift of a switch that one comparison has found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DriftFinding {
    /// The time of the comparison.
    pub found_at: UnixMillis,
    /// The number of entries that differed, with those of changes in progress.
    pub entries: usize,
    /// True if the switch was compared before on this connection: somebody else has changed its entries.
    pub by_another: bool,
    /// Some of the entries, without those of changes in progress.
    pub named: Vec<DriftedEntry>,
    /// The time from which the switch equalled the plan again; `None` while it differs.
    pub mended_at: Option<UnixMillis>,
}

/// The entries of a switch that differ from the plan at one moment, without those of changes in progress.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SwitchDrift {
    /// The number of entries.
    pub total: usize,
    /// The first of them.
    pub entries: Vec<DriftedEntry>,
}

/// An entry that differs from the plan. Its `Display` is a sentence without full stop: "group 3 is missing".
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DriftedEntry {
    pub key: FabricKey,
    /// `None` for an entry that is not the exchange's, and for groups and meters.
    pub owner: Option<EntryOwner>,
    pub drift: Drift,
}

/// The object to which a flow entry belongs, by its cookie. The name is that of the service, of the connection of an end, or of
/// the account of a filter.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum EntryOwner {
    Service {
        id: ServiceId,
        name: String,
    },
    End {
        id: ConfigId,
        connection: String,
    },
    Filter {
        id: FilterId,
        account: String,
    },
    /// An entry that the switch has whatever the exchange carries.
    Base,
}

impl EntryOwner {
    /// Returns the object; `None` for the switch itself.
    pub fn object(&self) -> Option<ObjectId> {
        match self {
            EntryOwner::Service { id, .. } => Some((*id).into()),
            EntryOwner::End { id, .. } => Some((*id).into()),
            EntryOwner::Filter { id, .. } => Some((*id).into()),
            EntryOwner::Base => None,
        }
    }
}

impl fmt::Display for EntryOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EntryOwner::Service { name, .. } => write!(f, "service \"{name}\""),
            EntryOwner::End { connection, .. } => write!(f, "an end of {connection}"),
            EntryOwner::Filter { account, .. } => write!(f, "a filter of {account}"),
            EntryOwner::Base => f.write_str("the switch itself"),
        }
    }
}

impl fmt::Display for DriftedEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.key {
            FabricKey::Flow(flow) => write!(
                f,
                "an entry of table {}, priority {}",
                flow.table.0, flow.priority.0
            )?,
            FabricKey::Group(group) => write!(f, "group {}", group.0)?,
            FabricKey::Meter(meter) => write!(f, "meter {}", meter.0)?,
        }
        if let Some(owner) = &self.owner {
            write!(f, " of {owner}")?;
        }
        f.write_str(match self.drift {
            Drift::Added => " was added",
            Drift::Removed => " is missing",
            Drift::Changed => " was changed",
        })
    }
}
