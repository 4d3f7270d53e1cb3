//! Answers to requests, by idempotency key.

use rusqlite::{Connection, params};

use crate::error::StoreError;
use crate::time::UnixMillis;
use crate::transaction::{Answer, IdempotencyKey};

/// Writes the answer to a request, for the case that the request is repeated.
pub(crate) fn write_answer(
    sql: &Connection,
    key: &IdempotencyKey,
    answer: &Answer,
    now: UnixMillis,
) -> Result<(), StoreError> {
    sql.prepare_cached("INSERT OR REPLACE INTO idempotency VALUES (?1, ?2, ?3, ?4, ?5)")?
        .execute(params![
            key.scope,
            key.key,
            answer.request_hash,
            answer.body.to_string(),
            now.0.cast_signed()
        ])?;
    Ok(())
}
