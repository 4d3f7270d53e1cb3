//! The writes of a transaction into the tables of SQLite.

use std::collections::BTreeMap;

use rusqlite::{Connection, params};

use crate::answer::write_answer;
use crate::audit::AuditRow;
use crate::error::StoreError;
use crate::setting::write_setting;
use crate::sqlite::{Sqlite, unsigned};
use crate::time::UnixMillis;
use crate::transaction::{ChangeState, Committed, JournalRecord, ObjectRow, Revision, Transaction};

impl Sqlite {
    /// Returns an error if no group of transactions is open: SQLite ends a group by itself when the disk is
    /// full.
    pub(crate) fn check_group(&self) -> Result<(), StoreError> {
        if self.connection.is_autocommit() {
            return Err(StoreError::Database(
                "the group of transactions was rolled back".to_owned(),
            ));
        }
        Ok(())
    }

    /// Writes the rows of a transaction within the group.
    pub(crate) fn write_one(
        &self,
        transaction: &Transaction,
        now: UnixMillis,
    ) -> Result<Committed, StoreError> {
        let mine = self.epoch;
        let sql = &self.connection;
        let (found, revision, mut serial, mut hash) = sql
            .prepare_cached("SELECT epoch, revision, audit_serial, audit_hash FROM engine")?
            .query_row([], |row| {
                Ok((
                    unsigned(row, 0)?,
                    unsigned(row, 1)? + 1,
                    unsigned(row, 2)?,
                    row.get::<_, String>(3)?,
                ))
            })?;
        if found != mine {
            return Err(StoreError::Fenced { found, mine });
        }
        // Deletions first, and all replaced objects, so that objects may swap their unique keys.
        let mut delete = sql.prepare_cached("DELETE FROM object WHERE kind = ?1 AND id = ?2")?;
        for (kind, id) in &transaction.deletes {
            delete.execute(params![kind, id])?;
        }
        for row in &transaction.puts {
            delete.execute(params![row.kind, row.id])?;
        }
        let mut put = sql.prepare_cached("INSERT INTO object VALUES (?1, ?2, ?3, ?4)")?;
        // Write addresses last: an address belongs to the service of its end, which must be written before.
        let is_address = |row: &&ObjectRow| matches!(row.kind.as_str(), "mc" | "ip");
        let others = transaction.puts.iter().filter(|row| !is_address(row));
        for row in others.chain(transaction.puts.iter().filter(is_address)) {
            put.execute(params![
                row.kind,
                row.id,
                revision.cast_signed(),
                row.body.to_string()
            ])?;
        }
        write_journal(sql, &transaction.journal)?;
        let mut append = sql.prepare_cached("INSERT INTO audit VALUES (?1, ?2, ?3)")?;
        for entry in &transaction.audit {
            let row = AuditRow::new(serial + 1, &hash, entry, now)?;
            append.execute(params![row.serial.cast_signed(), row.text, row.hash])?;
            (serial, hash) = (row.serial, row.hash);
        }
        for (key, answer) in &transaction.answers {
            write_answer(sql, key, answer, now)?;
        }
        for (name, value) in &transaction.settings {
            write_setting(sql, name, value.as_ref())?;
        }
        sql.prepare_cached(
            "UPDATE engine SET revision = ?1, audit_serial = ?2, audit_hash = ?3, newest_time = max(newest_time, ?5)
             WHERE epoch = ?4",
        )?
        .execute(params![
            revision.cast_signed(),
            serial.cast_signed(),
            hash,
            mine.cast_signed(),
            now.0.cast_signed()
        ])?;
        Ok(Committed {
            revision: Revision(revision),
            audit_serial: serial,
        })
    }
}

/// Writes journal records, and sets the states of their changes: each change gets its newest state once, because a row of a change
/// is long.
fn write_journal(sql: &Connection, records: &[JournalRecord]) -> Result<(), StoreError> {
    let mut create =
        sql.prepare_cached("INSERT INTO change VALUES (?1, ?2, ?3, ?3, ?4) ON CONFLICT (id) DO NOTHING")?;
    let mut update = sql.prepare_cached("UPDATE change SET state = ?2, updated_at = ?3 WHERE id = ?1")?;
    let mut append =
        sql.prepare_cached("INSERT INTO journal (change, state, at, detail) VALUES (?1, ?2, ?3, ?4)")?;
    let details: Vec<String> = records.iter().map(|record| record.detail.to_string()).collect();
    let mut newest = BTreeMap::new();
    for (record, detail) in records.iter().zip(&details) {
        let (id, name, at) = columns(record);
        let is_new =
            record.state == ChangeState::Accepted && create.execute(params![id, name, at, detail])? == 1;
        if !is_new {
            newest.insert(id, (name, at));
        }
    }
    for (id, (name, at)) in newest {
        if update.execute(params![id, name, at])? == 0 {
            return Err(StoreError::Database(format!(
                "change {id} is {name} but was never accepted"
            )));
        }
    }
    for (record, detail) in records.iter().zip(&details) {
        let (id, name, at) = columns(record);
        append.execute(params![id, name, at, detail])?;
    }
    Ok(())
}

/// Returns the change of a record, the name of its state, and its time.
fn columns(record: &JournalRecord) -> (i64, &'static str, i64) {
    (
        record.change.cast_signed(),
        record.state.name(),
        record.at.0.cast_signed(),
    )
}
