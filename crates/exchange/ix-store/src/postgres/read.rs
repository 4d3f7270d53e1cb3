//! Queries and the conversion of their rows.

use serde_json::Value;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Row};

use super::failure::Failure;
use crate::audit::{AuditRecord, SignedHead};
use crate::error::StoreError;
use crate::time::UnixMillis;
use crate::transaction::{ChangeRecord, ChangeState, Contents, ObjectRow, Revision};

/// A parameter with its type.
pub(super) type Parameter<'a> = (&'a (dyn ToSql + Sync), Type);

/// The columns of a change.
pub(super) const CHANGE: &str = "SELECT id, state, accepted_at, updated_at, detail::text FROM change";

/// The columns of a signature.
pub(super) const HEAD: &str = "SELECT serial, hash, at, public_key, signature FROM audit_head";

/// Reads an integer that this program keeps at zero or above.
pub(super) fn unsigned(row: &Row, index: usize) -> u64 {
    row.try_get::<_, i64>(index).map_or(0, i64::cast_unsigned)
}

pub(super) fn json(text: &str) -> Result<Value, StoreError> {
    serde_json::from_str(text).map_err(|error| StoreError::Damaged(error.to_string()))
}

pub(super) fn state(text: &str) -> Result<ChangeState, StoreError> {
    text.parse().map_err(StoreError::Damaged)
}

/// Returns a number as PostgreSQL stores it, or the greatest one.
pub(super) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

pub(super) fn head(row: &Row) -> Result<SignedHead, Failure> {
    Ok(SignedHead {
        serial: unsigned(row, 0),
        hash: row.try_get(1)?,
        at: UnixMillis(unsigned(row, 2)),
        public_key: row.try_get(3)?,
        signature: row.try_get(4)?,
    })
}

pub(super) fn change(row: &Row) -> Result<ChangeRecord, Failure> {
    Ok(ChangeRecord {
        id: unsigned(row, 0),
        state: state(row.try_get(1)?)?,
        accepted_at: UnixMillis(unsigned(row, 2)),
        updated_at: UnixMillis(unsigned(row, 3)),
        detail: json(row.try_get(4)?)?,
    })
}

pub(super) fn audit_record(row: &Row) -> Result<AuditRecord, Failure> {
    Ok(AuditRecord {
        serial: unsigned(row, 0),
        body: json(row.try_get(1)?)?,
        hash: row.try_get(2)?,
    })
}

/// Returns the objects and the changes that are not finished, as of one moment.
pub(super) async fn load(sql: &Client) -> Result<(Contents, String), Failure> {
    sql.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        .await?;
    let loaded = load_within(sql).await;
    sql.batch_execute("ROLLBACK").await?;
    loaded
}

async fn load_within(sql: &Client) -> Result<(Contents, String), Failure> {
    let row = sql
        .query_typed_one("SELECT epoch, revision, audit_hash FROM engine", &[])
        .await?;
    let (epoch, revision, hash) = (unsigned(&row, 0), unsigned(&row, 1), row.try_get(2)?);
    let mut objects = Vec::new();
    for row in sql
        .query_typed("SELECT kind, id, revision, body::text FROM object", &[])
        .await?
    {
        let id: i64 = row.try_get(1)?;
        let id = u32::try_from(id).map_err(|_| StoreError::Damaged(format!("object {id}")))?;
        objects.push(ObjectRow {
            kind: row.try_get(0)?,
            id,
            revision: Revision(unsigned(&row, 2)),
            body: json(row.try_get(3)?)?,
        });
    }
    // The order is that of the primary key, as in a SQLite file.
    objects.sort_by(|one, other| (&one.kind, one.id).cmp(&(&other.kind, other.id)));
    let open = format!("{CHANGE} WHERE state NOT IN ('cleaned', 'rolled_back') ORDER BY id");
    let open_changes = sql.query_typed(&open, &[]).await?;
    let next = "SELECT coalesce(max(id), 0) + 1 FROM change";
    let next_change = unsigned(&sql.query_typed_one(next, &[]).await?, 0);
    let contents = Contents {
        epoch,
        revision: Revision(revision),
        objects,
        open_changes: open_changes.iter().map(change).collect::<Result<_, _>>()?,
        next_change,
    };
    Ok((contents, hash))
}
