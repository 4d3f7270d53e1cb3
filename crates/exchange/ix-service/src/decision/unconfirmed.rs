//! The list of the changes that wait for their confirmation.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use millrace_ix_model::{ObjectId, Operation};
use millrace_ix_store::{Store, StoreError, UnixMillis};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::now::Now;

/// The setting that holds the unconfirmed changes.
const UNCONFIRMED: &str = "unconfirmed";
/// The longest time for which a change waits for its confirmation.
pub(super) const CONFIRM_WITHIN_MAX: Duration = Duration::from_secs(86_400);

/// A change that waits for its confirmation.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Unconfirmed {
    /// The time at which the change is undone.
    pub until: UnixMillis,
    /// The operations that undo the change.
    pub inverse: Vec<Operation>,
    /// The objects that nobody else changes meanwhile.
    pub objects: BTreeSet<ObjectId>,
}

/// The unconfirmed changes by number.
pub(crate) type AllUnconfirmed = BTreeMap<u64, Unconfirmed>;

/// Reads the unconfirmed changes from the database. One that was never accepted is left out. None waits longer than for
/// [`CONFIRM_WITHIN_MAX`] from now: it may have been ordered while the clock was ahead.
pub(crate) fn load(store: &dyn Store, next_change: u64, now: Now) -> Result<AllUnconfirmed, StoreError> {
    let Some(value) = store.setting(UNCONFIRMED)? else {
        return Ok(AllUnconfirmed::new());
    };
    let mut all: AllUnconfirmed = serde_json::from_value(value)
        .map_err(|error| StoreError::Database(format!("{UNCONFIRMED}: {error}")))?;
    all.retain(|change, _| *change < next_change);
    let longest = u64::try_from(CONFIRM_WITHIN_MAX.as_millis()).unwrap_or(u64::MAX);
    let latest = UnixMillis(now.wall.0.saturating_add(longest));
    for waiting in all.values_mut() {
        waiting.until = waiting.until.min(latest);
    }
    Ok(all)
}

pub(super) fn setting(all: &AllUnconfirmed) -> (String, Option<Value>) {
    let value = (!all.is_empty()).then(|| json!(all));
    (UNCONFIRMED.to_owned(), value)
}
