//! Difference between two configurations. Bridges and ports are matched by name and not by list index, so a
//! reordered file is not a change, and a removed port is exactly one change. Hops of a chain and classes of
//! an emulated path are matched by name as well, but their order affects packets, so another order is a
//! change.

use crate::change::Change;
use crate::config::Config;
use crate::decode::Field as _;
use crate::schema::TakesEffect;

/// Returns the changes from `old` to `new`, in the order of the schema; empty if the configurations are equivalent.
pub fn diff(old: &Config, new: &Config) -> Vec<Change> {
    let mut changes = Vec::new();
    new.diff(old, "", TakesEffect::Live, &mut changes);
    changes
}
