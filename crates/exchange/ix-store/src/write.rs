//! The writes of a transaction into the tables of SQLite.

use rusqlite::{Connection, params};

use crate::answer::write_answer;
use crate::audit::AuditRecord;
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
            let record = AuditRecord::new(serial + 1, &hash, entry, now)?;
            append.execute(params![
                record.serial.cast_signed(),
                record.body.to_string(),
                record.hash
            ])?;
            (serial, hash) = (record.serial, record.hash);
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

/// Writes journal records, and sets the states of their changes.
fn write_journal(sql: &Connection, records: &[JournalRecord]) -> Result<(), StoreError> {
    let mut create = sql.prepare_cached("INSERT INTO change VALUES (?1, ?2, ?3, ?3, ?4)")?;
    let mut update = sql.prepare_cached("UPDATE change SET state = ?2, updated_at = ?3 WHERE id = ?1")?;
    let mut append =
        sql.prepare_cached("INSERT INTO journal (change, state, at, detail) VALUES (?1, ?2, ?3, ?4)")?;
    let mut exists = sql.prepare_cached("SELECT 1 FROM change WHERE id = ?1")?;
    for record in records {
        let (id, name, at) = (
            record.change.cast_signed(),
            record.state.name(),
            record.at.0.cast_signed(),
        );
        let detail = record.detail.to_string();
        if record.state == ChangeState::Accepted && !exists.exists(params![id])? {
            create.execute(params![id, name, at, detail])?;
        } else if update.execute(params![id, name, at])? == 0 {
            return Err(StoreError::Database(format!(
                "change {} is {name} but was never accepted",
                record.change
            )));
        }
        append.execute(params![id, name, at, detail])?;
    }
    Ok(())
}
