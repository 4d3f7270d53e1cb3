//! The way back from a clock that was ahead: the newest time of the database becomes the present time.

use rusqlite::params;

use crate::Store as _;
use crate::audit::AuditEntry;
use crate::error::StoreError;
use crate::sqlite::Sqlite;
use crate::time::UnixMillis;
use crate::transaction::Transaction;

impl Sqlite {
    pub(crate) fn set_time_back(
        &mut self,
        now: UnixMillis,
        entry: AuditEntry,
    ) -> Result<UnixMillis, StoreError> {
        let before = self.newest_time()?;
        let transaction = Transaction {
            audit: vec![entry],
            ..Transaction::default()
        };
        self.commit(&transaction, now)?;
        self.fenced(|sql| {
            let now = params![now.0.cast_signed()];
            sql.execute("DELETE FROM idempotency WHERE at > ?1", now)?;
            sql.execute("DELETE FROM session", [])?;
            sql.execute("UPDATE engine SET newest_time = ?1", now)?;
            Ok(())
        })?;
        Ok(before)
    }
}
