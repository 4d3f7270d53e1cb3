//! The answers to orders, as JSON values.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::Coded;

/// The answer to an order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Ordered {
    /// True if nothing was done.
    pub dry_run: bool,
    /// The change that updates the switches; null for a dry run, or if no switch is affected.
    #[schema(required)]
    pub change: Option<String>,
    /// The objects that were, or would be, created.
    pub created: Vec<String>,
    /// The objects that were, or would be, changed.
    pub changed: Vec<String>,
    /// The objects that were, or would be, deleted.
    pub deleted: Vec<String>,
    /// The numbers of entries to add, change and remove in each switch.
    pub plan: Vec<PlannedSwitch>,
    /// The frames that a dry run would make take other ways, each in a sentence; empty for orders. Of frames of other members, only
    /// those that the caller sends or gets are told.
    #[serde(default)]
    pub effects: Vec<String>,
    /// The active filters of the same account that a new filter repeats, hides or contradicts, or that hide it.
    #[serde(default)]
    pub conflicts: Vec<Conflict>,
    /// The tags that were, or would be, chosen for the end.
    #[schema(required)]
    pub vlan: Option<String>,
    /// The secret of a new service key; it is shown once.
    #[schema(required)]
    pub secret: Option<String>,
}

/// A conflict of a new filter with an active one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Conflict {
    /// `identical`, `shadowed` (the active filter applies first to all packets of the new one), `shadows` (the other way round) or
    /// `overlapping` (some packets match both, and the treatments differ).
    pub relation: String,
    /// The active filter.
    pub filter: String,
    /// The conflict in words.
    pub text: String,
    /// The sentences of the text as codes, for translation.
    pub coded: Vec<Coded>,
}

/// The numbers of entries that an order adds, changes and removes in a switch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PlannedSwitch {
    /// The name of the switch.
    pub switch: String,
    /// The number of entries, groups and meters that are added.
    pub added: usize,
    /// The number of entries, groups and meters that are changed.
    pub changed: usize,
    /// The number of entries, groups and meters that are removed.
    pub removed: usize,
}
