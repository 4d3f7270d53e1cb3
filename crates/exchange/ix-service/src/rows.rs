//! Objects of the exchange as rows of the database.

use millrace_ix_model::allocate::HOLD_DOWN;
use millrace_ix_model::{ChangeSet, Exchange, NumberHold, Object, ObjectId, PoolKind, Timestamp};
use millrace_ix_store::{ObjectRow, Revision};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::error::StartError;
use crate::revisions::Revisions;

/// The kind of the row that holds the state that belongs to no object.
const POOLS: &str = "pools";

/// The released numbers, which may not be used again yet, and the last identifier.
#[derive(Serialize, Deserialize)]
struct Pools {
    released: Vec<(PoolKind, u32, NumberHold)>,
    last_id: u32,
}

/// Returns the key of an object's row: the prefix of its identifier, and the number.
pub(crate) fn key(id: ObjectId) -> (String, u32) {
    (id.prefix().to_owned(), id.number())
}

/// Returns the row of an object.
pub(crate) fn row(id: ObjectId, object: &Object) -> ObjectRow {
    let (kind, number) = key(id);
    let body = serde_json::to_value(object).unwrap_or(Value::Null);
    ObjectRow {
        kind,
        id: number,
        revision: Revision(0),
        body,
    }
}

/// Returns the row of the pools.
pub(crate) fn pools(exchange: &Exchange) -> ObjectRow {
    let released = exchange.pools.iter().flat_map(|(kind, pool)| {
        pool.released
            .iter()
            .map(|(number, released)| (*kind, *number, *released))
    });
    let pools = Pools {
        released: released.collect(),
        last_id: exchange.last_id,
    };
    let body = serde_json::to_value(pools).unwrap_or(Value::Null);
    ObjectRow {
        kind: POOLS.to_owned(),
        id: 0,
        revision: Revision(0),
        body,
    }
}

/// Returns the exchange and the revision of each object. No number is held for longer than [`HOLD_DOWN`] from now: the hold
/// may have begun while the clock was ahead.
pub(crate) fn exchange(rows: Vec<ObjectRow>, now: Timestamp) -> Result<(Exchange, Revisions), StartError> {
    let latest = now.after(HOLD_DOWN);
    let held = |hold: NumberHold| match hold {
        NumberHold::FreeFrom(time) => NumberHold::FreeFrom(time.min(latest)),
        NumberHold::InSwitches => NumberHold::InSwitches,
    };
    let mut changes = ChangeSet::default();
    let mut revisions = Revisions::default();
    for row in rows {
        let (kind, number) = (&row.kind, row.id);
        let refused = |reason: String| StartError::Object {
            id: format!("{kind}-{number}"),
            reason,
        };
        if row.kind == POOLS {
            let pools: Pools =
                serde_json::from_value(row.body).map_err(|error| refused(error.to_string()))?;
            changes.released = pools
                .released
                .into_iter()
                .map(|(kind, number, hold)| (kind, number, Some(held(hold))))
                .collect();
            changes.last_id = pools.last_id;
            continue;
        }
        let id = ObjectId::new(kind, number).ok_or_else(|| refused("an unknown kind".to_owned()))?;
        let object: Object = serde_json::from_value(row.body).map_err(|error| refused(error.to_string()))?;
        changes.objects.insert(id, Some(object));
        revisions.set(id, row.revision);
    }
    let mut exchange = Exchange::default();
    exchange.commit(changes);
    Ok((exchange, revisions))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hold_that_began_while_the_clock_was_ahead_ends_within_a_minute() {
        let now = Timestamp::from_secs(1_800_000_000);
        let far = now.after(std::time::Duration::from_secs(1_000_000_000));
        let kind = PoolKind::ServiceIndex;
        let mut exchange_then = Exchange::default();
        exchange_then.commit(ChangeSet {
            released: vec![
                (kind, 1, Some(NumberHold::FreeFrom(far))),
                (kind, 2, Some(NumberHold::FreeFrom(now))),
                (kind, 3, Some(NumberHold::InSwitches)),
            ],
            ..ChangeSet::default()
        });
        let (found, _) = exchange(vec![pools(&exchange_then)], now).unwrap();
        let released = &found.pools[&kind].released;
        assert_eq!(released[&1], NumberHold::FreeFrom(now.after(HOLD_DOWN)));
        assert_eq!(released[&2], NumberHold::FreeFrom(now));
        assert_eq!(released[&3], NumberHold::InSwitches);
    }
}
