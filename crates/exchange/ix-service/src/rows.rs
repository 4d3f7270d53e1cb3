//! Objects of the exchange as rows of the database.

use std::collections::BTreeMap;

use millrace_ix_model::{ChangeSet, Exchange, Object, ObjectId, PoolKind};
use millrace_ix_store::{ObjectRow, Revision};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::error::StartError;

/// The kind of the row that holds the state that belongs to no object.
const POOLS: &str = "pools";

/// The released numbers, which may not be used again yet, and the last identifier.
#[derive(Serialize, Deserialize)]
struct Pools {
    released: Vec<(PoolKind, u32, millrace_ix_model::NumberHold)>,
    last_id: u32,
}

/// Returns the key of an object's row: the prefix of its identifier, and the number.
pub(crate) fn key(id: ObjectId) -> (String, u32) {
    let text = id.to_string();
    let (kind, number) = text.split_once('-').unwrap_or((&text, "0"));
    (kind.to_owned(), number.parse().unwrap_or(0))
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

/// Returns the exchange and the revision of each object.
pub(crate) fn exchange(rows: Vec<ObjectRow>) -> Result<(Exchange, BTreeMap<ObjectId, Revision>), StartError> {
    let mut changes = ChangeSet::default();
    let mut revisions = BTreeMap::new();
    for row in rows {
        let text = format!("{}-{}", row.kind, row.id);
        let refused = |reason: String| StartError::Object {
            id: text.clone(),
            reason,
        };
        if row.kind == POOLS {
            let pools: Pools =
                serde_json::from_value(row.body).map_err(|error| refused(error.to_string()))?;
            changes.released = pools
                .released
                .into_iter()
                .map(|(kind, number, rest)| (kind, number, Some(rest)))
                .collect();
            changes.last_id = pools.last_id;
            continue;
        }
        let id: ObjectId = text.parse().map_err(|_| refused("an unknown kind".to_owned()))?;
        let object: Object = serde_json::from_value(row.body).map_err(|error| refused(error.to_string()))?;
        changes.objects.insert(id, Some(object));
        revisions.insert(id, row.revision);
    }
    let mut exchange = Exchange::default();
    exchange.commit(changes);
    Ok((exchange, revisions))
}
