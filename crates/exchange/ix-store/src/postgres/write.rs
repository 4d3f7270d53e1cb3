//! The writes of a transaction into the tables of PostgreSQL.

use serde_json::Value;
use tokio_postgres::Client;
use tokio_postgres::types::Type;

use super::Known;
use super::failure::Failure;
use super::read::{signed, unsigned};

use crate::audit::AuditRow;
use crate::error::StoreError;
use crate::time::UnixMillis;
use crate::transaction::{
    Answer, ChangeState, Committed, IdempotencyKey, JournalRecord, ObjectRow, Revision, Transaction,
};

/// Locks the row of the engine until the transaction ends, if the epoch is still this engine's. Returns its values.
pub(super) async fn fence(sql: &Client, mine: u64) -> Result<(u64, u64, String), Failure> {
    let fence = "SELECT epoch, revision, audit_serial, audit_hash FROM engine FOR UPDATE";
    let row = sql.query_typed_one(fence, &[]).await?;
    let found = unsigned(&row, 0);
    if found != mine {
        return Err(StoreError::Fenced { found, mine }.into());
    }
    Ok((unsigned(&row, 1), unsigned(&row, 2), row.try_get(3)?))
}

/// Writes the rows of a transaction within the group. `known` is the state that this engine expects to find.
pub(super) async fn write_one(
    sql: &Client,
    mine: u64,
    known: Option<&Known>,
    transaction: &Transaction,
    now: UnixMillis,
) -> Result<(Committed, Known), Failure> {
    let (before, mut serial, mut hash) = fence(sql, mine).await?;
    if known.is_some_and(|known| (known.revision, &known.audit_hash) != (before, &hash)) {
        let reason = "the database has other contents than this engine wrote last, and they are read again";
        return Err(StoreError::Away(reason.to_owned()).into());
    }
    let revision = before + 1;
    write_objects(sql, transaction, revision).await?;
    write_journal(sql, &transaction.journal).await?;
    for entry in &transaction.audit {
        let row = AuditRow::new(serial + 1, &hash, entry, now).map_err(StoreError::from)?;
        let append = "INSERT INTO audit VALUES ($1, $2::text::json, $3)";
        let number = signed(row.serial);
        let values = [
            (&number as _, Type::INT8),
            (&row.text as _, Type::TEXT),
            (&row.hash as _, Type::TEXT),
        ];
        sql.execute_typed(append, &values).await?;
        (serial, hash) = (row.serial, row.hash);
    }
    for (key, answer) in &transaction.answers {
        write_answer(sql, key, answer, now).await?;
    }
    for (name, value) in &transaction.settings {
        write_setting(sql, name, value.as_ref()).await?;
    }
    let update = "UPDATE engine SET revision = $1, audit_serial = $2, audit_hash = $3,
        newest_time = greatest(newest_time, $5) WHERE epoch = $4";
    let (number, count, epoch, time) = (signed(revision), signed(serial), signed(mine), signed(now.0));
    let updated = sql
        .execute_typed(
            update,
            &[
                (&number, Type::INT8),
                (&count, Type::INT8),
                (&hash, Type::TEXT),
                (&epoch, Type::INT8),
                (&time, Type::INT8),
            ],
        )
        .await?;
    if updated != 1 {
        return Err(StoreError::Database("the row of the engine was not written".to_owned()).into());
    }
    let committed = Committed {
        revision: Revision(revision),
        audit_serial: serial,
    };
    let audit_hash = hash;
    Ok((committed, Known { revision, audit_hash }))
}

/// Writes objects: deletions first, and all replaced objects, so that objects may swap their unique keys.
async fn write_objects(sql: &Client, transaction: &Transaction, revision: u64) -> Result<(), Failure> {
    let replaced = transaction.puts.iter().map(|row| (&*row.kind, row.id));
    let deleted = transaction.deletes.iter().map(|(kind, id)| (&**kind, *id));
    let (kinds, ids): (Vec<&str>, Vec<i64>) = deleted
        .chain(replaced)
        .map(|(kind, id)| (kind, i64::from(id)))
        .unzip();
    if kinds.is_empty() {
        return Ok(());
    }
    let delete = "DELETE FROM object USING unnest($1::text[], $2::bigint[]) AS gone (kind, id)
        WHERE object.kind = gone.kind AND object.id = gone.id";
    sql.execute_typed(delete, &[(&kinds, Type::TEXT_ARRAY), (&ids, Type::INT8_ARRAY)])
        .await?;
    // Write addresses last: an address belongs to the service of its end, which must be written before.
    let is_address = |row: &&ObjectRow| matches!(row.kind.as_str(), "mc" | "ip");
    let (addresses, others): (Vec<&ObjectRow>, Vec<&ObjectRow>) =
        transaction.puts.iter().partition(is_address);
    for rows in [others, addresses] {
        if rows.is_empty() {
            continue;
        }
        let kinds: Vec<&str> = rows.iter().map(|row| &*row.kind).collect();
        let ids: Vec<i64> = rows.iter().map(|row| i64::from(row.id)).collect();
        let bodies: Vec<String> = rows.iter().map(|row| row.body.to_string()).collect();
        let revision = signed(revision);
        let put = "INSERT INTO object SELECT kind, id, $3, body::jsonb
            FROM unnest($1::text[], $2::bigint[], $4::text[]) AS new (kind, id, body)";
        sql.execute_typed(
            put,
            &[
                (&kinds, Type::TEXT_ARRAY),
                (&ids, Type::INT8_ARRAY),
                (&revision, Type::INT8),
                (&bodies, Type::TEXT_ARRAY),
            ],
        )
        .await?;
    }
    Ok(())
}

/// Writes journal records, and sets the states of their changes.
async fn write_journal(sql: &Client, records: &[JournalRecord]) -> Result<(), Failure> {
    for record in records {
        let (id, name, at) = (signed(record.change), record.state.name(), signed(record.at.0));
        let detail = record.detail.to_string();
        let mut changed = 0;
        if record.state == ChangeState::Accepted {
            let create =
                "INSERT INTO change VALUES ($1, $2, $3, $3, $4::text::json) ON CONFLICT (id) DO NOTHING";
            let values = [
                (&id as _, Type::INT8),
                (&name as _, Type::TEXT),
                (&at as _, Type::INT8),
                (&detail as _, Type::TEXT),
            ];
            changed = sql.execute_typed(create, &values).await?;
        }
        if changed == 0 {
            let update = "UPDATE change SET state = $2, updated_at = $3 WHERE id = $1";
            let values = [
                (&id as _, Type::INT8),
                (&name as _, Type::TEXT),
                (&at as _, Type::INT8),
            ];
            changed = sql.execute_typed(update, &values).await?;
        }
        if changed == 0 {
            let reason = format!("change {} is {name} but was never accepted", record.change);
            return Err(StoreError::Database(reason).into());
        }
        let append = "INSERT INTO journal (change, state, at, detail) VALUES ($1, $2, $3, $4::text::json)";
        let values = [
            (&id as _, Type::INT8),
            (&name as _, Type::TEXT),
            (&at as _, Type::INT8),
            (&detail as _, Type::TEXT),
        ];
        sql.execute_typed(append, &values).await?;
    }
    Ok(())
}

/// Writes the answer to a request, for the case that the request is repeated.
pub(super) async fn write_answer(
    sql: &Client,
    key: &IdempotencyKey,
    answer: &Answer,
    now: UnixMillis,
) -> Result<(), Failure> {
    let write =
        "INSERT INTO idempotency VALUES ($1, $2, $3, $4::text::json, $5) ON CONFLICT (scope, key) DO UPDATE
        SET request_hash = excluded.request_hash, body = excluded.body, at = excluded.at";
    let (body, at) = (answer.body.to_string(), signed(now.0));
    let values = [
        (&key.scope as _, Type::TEXT),
        (&key.key as _, Type::TEXT),
        (&answer.request_hash as _, Type::TEXT),
        (&body as _, Type::TEXT),
        (&at as _, Type::INT8),
    ];
    sql.execute_typed(write, &values).await?;
    Ok(())
}

/// Writes a setting, or removes it.
pub(super) async fn write_setting(sql: &Client, name: &str, value: Option<&Value>) -> Result<(), Failure> {
    let Some(value) = value else {
        let delete = "DELETE FROM setting WHERE name = $1";
        sql.execute_typed(delete, &[(&name, Type::TEXT)]).await?;
        return Ok(());
    };
    let write = "INSERT INTO setting VALUES ($1, $2::text::json) ON CONFLICT (name) DO UPDATE SET body = excluded.body";
    let body = value.to_string();
    sql.execute_typed(write, &[(&name, Type::TEXT), (&body, Type::TEXT)])
        .await?;
    Ok(())
}
