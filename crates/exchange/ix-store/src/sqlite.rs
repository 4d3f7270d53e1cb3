//! The database as one SQLite file.

use std::fs::OpenOptions;
use std::io::ErrorKind;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

use rusqlite::{Connection, OptionalExtension as _, Row, TransactionBehavior, params};
use serde_json::Value;

use crate::Store;
use crate::answer::write_answer;
use crate::audit::{AuditEntry, AuditRecord, SignedHead, SigningKey};
use crate::error::StoreError;
use crate::schema;
use crate::setting::write_setting;
use crate::standing::Standing;
use crate::time::UnixMillis;
use crate::transaction::{
    ANSWER_LIFETIME, Answer, ChangeRecord, ChangeState, Committed, Contents, EPOCHS_AHEAD_MAX,
    IdempotencyKey, JournalRecord, ObjectRow, Revision, Session, StoredAnswer, Transaction,
};

/// A database in one SQLite file, or in memory.
#[derive(Debug)]
pub struct Sqlite {
    pub(crate) connection: Connection,
    pub(crate) epoch: u64,
}

impl Sqlite {
    /// Opens the database, or creates it with mode 0600, and starts a new epoch.
    ///
    /// # Errors
    /// [`StoreError::Open`] if others than the owner can read the file; [`StoreError::Newer`] for a newer schema.
    pub fn open(path: &Path) -> Result<Sqlite, StoreError> {
        let refused = |reason: String| StoreError::Open {
            path: path.display().to_string(),
            reason,
        };
        match OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path)
        {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                let metadata = std::fs::metadata(path).map_err(|error| refused(error.to_string()))?;
                let mode = metadata.permissions().mode() & 0o777;
                if mode & 0o077 != 0 {
                    return Err(refused(format!(
                        "mode {mode:03o} lets others read it; run chmod 600"
                    )));
                }
            }
            Err(error) => return Err(refused(error.to_string())),
        }
        let damaged = |error: StoreError| match error {
            StoreError::Damaged(reason) => StoreError::DamagedFile {
                path: path.display().to_string(),
                reason,
            },
            other => other,
        };
        let store = Connection::open(path)
            .map_err(StoreError::from)
            .and_then(Sqlite::start)
            .map_err(damaged)?;
        store.quick_check().map_err(damaged)?;
        Ok(store)
    }

    /// Opens the database to read it, without a new epoch, while an engine may be writing.
    ///
    /// # Errors
    /// [`StoreError`] if the file does not exist or is no database.
    pub fn open_read_only(path: &Path) -> Result<Sqlite, StoreError> {
        let flags = rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY | rusqlite::OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(path, flags).map_err(|error| StoreError::Open {
            path: path.display().to_string(),
            reason: error.to_string(),
        })?;
        connection.busy_timeout(std::time::Duration::from_secs(5))?;
        let epoch = connection.query_row("SELECT epoch FROM engine", [], |row| unsigned(row, 0))?;
        Ok(Sqlite { connection, epoch })
    }

    /// Returns a database in memory, for tests and simulations.
    ///
    /// # Errors
    /// [`StoreError`] if SQLite has no memory.
    pub fn in_memory() -> Result<Sqlite, StoreError> {
        Sqlite::start(Connection::open_in_memory()?)
    }

    fn start(mut connection: Connection) -> Result<Sqlite, StoreError> {
        connection.busy_timeout(std::time::Duration::from_secs(5))?;
        connection.pragma_update(None, "journal_mode", "WAL")?;
        connection.pragma_update(None, "synchronous", "FULL")?;
        connection.pragma_update(None, "foreign_keys", true)?;
        connection.set_prepared_statement_cache_capacity(64);
        schema::migrate(&mut connection)?;
        let mut store = Sqlite { connection, epoch: 0 };
        store.new_epoch()?;
        Ok(store)
    }

    /// Starts a new epoch, as if the file was opened again. Simulations use it to restart an engine.
    ///
    /// # Errors
    /// [`StoreError`] if the database cannot be written.
    pub fn new_epoch(&mut self) -> Result<(), StoreError> {
        let sql = "UPDATE engine SET epoch = epoch + 1 RETURNING epoch";
        self.epoch = self.connection.query_row(sql, [], |row| unsigned(row, 0))?;
        Ok(())
    }

    /// Writes in one transaction, if no other engine has opened the database since.
    pub(crate) fn fenced<T>(
        &mut self,
        write: impl FnOnce(&Connection) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let mine = self.epoch;
        let sql = self
            .connection
            .transaction_with_behavior(TransactionBehavior::Immediate)?;
        let found = sql.query_row("SELECT epoch FROM engine", [], |row| unsigned(row, 0))?;
        if found != mine {
            return Err(StoreError::Fenced { found, mine });
        }
        let written = write(&sql)?;
        sql.commit()?;
        Ok(written)
    }

    /// Limits the database to a number of pages, to simulate a full disk.
    ///
    /// # Errors
    /// [`StoreError`] if SQLite refuses the limit.
    pub fn limit_pages(&mut self, pages: u32) -> Result<(), StoreError> {
        self.connection
            .pragma_update_and_check(None, "max_page_count", pages, |_| Ok(()))?;
        Ok(())
    }

    /// Writes a copy of the database to a new file of mode 0600, which is on the medium then. The copy is one moment of
    /// the database, also while an engine writes.
    ///
    /// # Errors
    /// [`StoreError`] if the file exists or cannot be written.
    pub fn back_up(&self, path: &Path) -> Result<(), StoreError> {
        let text = path.display().to_string();
        let refused = |error: std::io::Error| StoreError::Open {
            path: text.clone(),
            reason: error.to_string(),
        };
        // The file exists with its mode before it has content. VACUUM writes into an empty file.
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path)
            .map_err(refused)?;
        self.connection.execute("VACUUM INTO ?1", params![text])?;
        file.sync_all().map_err(refused)
    }

    /// Runs SQLite's own check of the file.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] with the first finding.
    pub fn check(&self) -> Result<(), StoreError> {
        self.pragma_check("PRAGMA integrity_check(1)")
    }

    /// Runs SQLite's check without the comparison of tables with their indexes, which would take longer than a start may.
    fn quick_check(&self) -> Result<(), StoreError> {
        self.pragma_check("PRAGMA quick_check(1)")
    }

    fn pragma_check(&self, pragma: &str) -> Result<(), StoreError> {
        let found: String = self.connection.query_row(pragma, [], |row| row.get(0))?;
        if found == "ok" {
            Ok(())
        } else {
            Err(StoreError::Damaged(found))
        }
    }
}

/// Reads an integer that the schema keeps at zero or above.
pub(crate) fn unsigned(row: &Row<'_>, index: usize) -> rusqlite::Result<u64> {
    row.get::<_, i64>(index).map(i64::cast_unsigned)
}

const SIGNED_HEADS: &str = "SELECT serial, hash, at, public_key, signature FROM audit_head";

fn signed_head(row: &Row<'_>) -> rusqlite::Result<SignedHead> {
    Ok(SignedHead {
        serial: unsigned(row, 0)?,
        hash: row.get(1)?,
        at: UnixMillis(unsigned(row, 2)?),
        public_key: row.get(3)?,
        signature: row.get(4)?,
    })
}

fn json(text: &str) -> Result<Value, StoreError> {
    serde_json::from_str(text).map_err(|error| StoreError::Damaged(error.to_string()))
}

fn state(text: &str) -> Result<ChangeState, StoreError> {
    text.parse().map_err(StoreError::Damaged)
}

/// Returns the entries that a query selects by a serial number and a limit.
fn audit_records(
    connection: &Connection,
    sql: &str,
    serial: u64,
    limit: usize,
) -> Result<Vec<AuditRecord>, StoreError> {
    let mut statement = connection.prepare_cached(sql)?;
    let serial = i64::try_from(serial).unwrap_or(i64::MAX);
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let rows = statement.query_map(params![serial, limit], |row| {
        let body: String = row.get(1)?;
        Ok((unsigned(row, 0)?, body, row.get(2)?))
    })?;
    rows.map(|row| {
        let (serial, body, hash) = row?;
        let body = json(&body)?;
        Ok(AuditRecord { serial, body, hash })
    })
    .collect()
}

/// A row of `change` before its texts are parsed: id, state, times, detail.
type RawChange = (u64, String, u64, u64, String);

fn raw_change(row: &Row<'_>) -> rusqlite::Result<RawChange> {
    Ok((
        unsigned(row, 0)?,
        row.get(1)?,
        unsigned(row, 2)?,
        unsigned(row, 3)?,
        row.get(4)?,
    ))
}

fn change((id, name, accepted, updated, detail): RawChange) -> Result<ChangeRecord, StoreError> {
    let (accepted_at, updated_at) = (UnixMillis(accepted), UnixMillis(updated));
    Ok(ChangeRecord {
        id,
        state: state(&name)?,
        accepted_at,
        updated_at,
        detail: json(&detail)?,
    })
}

impl Store for Sqlite {
    fn standing(&mut self) -> Standing {
        Standing::alone(self.epoch)
    }

    fn load(&self) -> Result<Contents, StoreError> {
        let sql = "SELECT epoch, revision FROM engine";
        let (epoch, revision) = self
            .connection
            .query_row(sql, [], |row| Ok((unsigned(row, 0)?, unsigned(row, 1)?)))?;
        let mut statement = self
            .connection
            .prepare("SELECT kind, id, revision, body FROM object")?;
        let rows = statement.query_map([], |row| {
            Ok((
                row.get::<_, String>(0)?,
                row.get::<_, u32>(1)?,
                unsigned(row, 2)?,
                row.get::<_, String>(3)?,
            ))
        })?;
        let mut objects = Vec::new();
        for row in rows {
            let (kind, id, revision, body) = row?;
            objects.push(ObjectRow {
                kind,
                id,
                revision: Revision(revision),
                body: json(&body)?,
            });
        }
        let mut statement = self.connection.prepare(
            "SELECT id, state, accepted_at, updated_at, detail FROM change
             WHERE state NOT IN ('cleaned', 'rolled_back') ORDER BY id",
        )?;
        let rows = statement.query_map([], raw_change)?;
        let open_changes = rows.map(|row| change(row?)).collect::<Result<_, _>>()?;
        let next_change =
            self.connection
                .query_row("SELECT coalesce(max(id), 0) + 1 FROM change", [], |row| {
                    unsigned(row, 0)
                })?;
        Ok(Contents {
            epoch,
            revision: Revision(revision),
            objects,
            open_changes,
            next_change,
        })
    }

    fn newest_time(&self) -> Result<UnixMillis, StoreError> {
        let sql = "SELECT newest_time FROM engine";
        Ok(self
            .connection
            .query_row(sql, [], |row| unsigned(row, 0).map(UnixMillis))?)
    }

    fn begin(&mut self) -> Result<(), StoreError> {
        self.connection.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
        Ok(())
    }

    fn write(&mut self, transaction: &Transaction, now: UnixMillis) -> Result<Committed, StoreError> {
        self.check_group()?;
        self.connection.prepare_cached("SAVEPOINT one")?.execute([])?;
        let written = self.write_one(transaction, now);
        // SQLite has ended the whole group if the disk is full or failed.
        if written.is_err() && !self.connection.is_autocommit() {
            self.connection.prepare_cached("ROLLBACK TO one")?.execute([])?;
        }
        if !self.connection.is_autocommit() {
            self.connection.prepare_cached("RELEASE one")?.execute([])?;
        }
        written
    }

    fn finish(&mut self) -> Result<(), StoreError> {
        self.check_group()?;
        let done = self.connection.prepare_cached("COMMIT")?.execute([]);
        if done.is_err() {
            self.abandon();
        }
        done?;
        Ok(())
    }

    fn abandon(&mut self) {
        if !self.connection.is_autocommit() {
            // Without COMMIT nothing becomes durable, and BEGIN of the next group reports a group that is
            // still open.
            let _still_open = self.connection.execute_batch("ROLLBACK");
        }
    }

    fn answer(&self, key: &IdempotencyKey, now: UnixMillis) -> Result<Option<StoredAnswer>, StoreError> {
        let oldest = now.0.saturating_sub(ANSWER_LIFETIME);
        let sql = "SELECT request_hash, body, at FROM idempotency WHERE scope = ?1 AND key = ?2 AND at > ?3";
        let found = self
            .connection
            .prepare_cached(sql)?
            .query_row(params![key.scope, key.key, oldest.cast_signed()], |row| {
                Ok((
                    row.get::<_, String>(0)?,
                    row.get::<_, String>(1)?,
                    unsigned(row, 2)?,
                ))
            })
            .optional()?;
        found
            .map(|(request_hash, body, at)| {
                let answer = Answer {
                    request_hash,
                    body: json(&body)?,
                };
                Ok(StoredAnswer {
                    answer,
                    at: UnixMillis(at),
                })
            })
            .transpose()
    }

    fn put_answer(
        &mut self,
        key: &IdempotencyKey,
        answer: &Answer,
        now: UnixMillis,
    ) -> Result<(), StoreError> {
        self.fenced(|sql| write_answer(sql, key, answer, now))
    }

    fn audit(&self, after: u64, limit: usize) -> Result<Vec<AuditRecord>, StoreError> {
        let sql = "SELECT serial, body, hash FROM audit WHERE serial > ?1 ORDER BY serial LIMIT ?2";
        audit_records(&self.connection, sql, after, limit)
    }

    fn audit_before(&self, before: u64, limit: usize) -> Result<Vec<AuditRecord>, StoreError> {
        let sql = "SELECT serial, body, hash FROM audit WHERE serial < ?1 ORDER BY serial DESC LIMIT ?2";
        audit_records(&self.connection, sql, before, limit)
    }

    fn sign_head(&mut self, key: &SigningKey, now: UnixMillis) -> Result<Option<SignedHead>, StoreError> {
        self.fenced(|sql| {
            let (serial, hash) = sql.query_row("SELECT audit_serial, audit_hash FROM engine", [], |row| {
                Ok((unsigned(row, 0)?, row.get::<_, String>(1)?))
            })?;
            let signed: u64 =
                sql.query_row("SELECT coalesce(max(serial), 0) FROM audit_head", [], |row| {
                    unsigned(row, 0)
                })?;
            if signed == serial {
                return Ok(None);
            }
            let head = key.sign(serial, &hash, now)?;
            sql.execute(
                "INSERT INTO audit_head VALUES (?1, ?2, ?3, ?4, ?5)",
                params![
                    serial.cast_signed(),
                    head.hash,
                    now.0.cast_signed(),
                    head.public_key,
                    head.signature
                ],
            )?;
            Ok(Some(head))
        })
    }

    fn signed_heads(&self) -> Result<Vec<SignedHead>, StoreError> {
        let sql = format!("{SIGNED_HEADS} ORDER BY serial");
        let mut statement = self.connection.prepare_cached(&sql)?;
        Ok(statement.query_map([], signed_head)?.collect::<Result<_, _>>()?)
    }

    fn newest_head(&self) -> Result<Option<SignedHead>, StoreError> {
        let sql = format!("{SIGNED_HEADS} ORDER BY serial DESC LIMIT 1");
        Ok(self.connection.query_row(&sql, [], signed_head).optional()?)
    }

    fn changes(&self, before: u64, limit: usize) -> Result<Vec<ChangeRecord>, StoreError> {
        let sql = "SELECT id, state, accepted_at, updated_at, detail FROM change WHERE id < ?1 ORDER BY id DESC LIMIT ?2";
        let mut statement = self.connection.prepare_cached(sql)?;
        let (before, limit) = (
            i64::try_from(before).unwrap_or(i64::MAX),
            i64::try_from(limit).unwrap_or(i64::MAX),
        );
        let rows = statement.query_map(params![before, limit], raw_change)?;
        rows.map(|row| change(row?)).collect()
    }

    fn journal(&self, change: u64) -> Result<Vec<JournalRecord>, StoreError> {
        let sql = "SELECT state, at, detail FROM journal WHERE change = ?1 ORDER BY serial";
        let mut statement = self.connection.prepare_cached(sql)?;
        let rows = statement.query_map(params![change.cast_signed()], |row| {
            Ok((
                row.get::<_, String>(0)?,
                unsigned(row, 1)?,
                row.get::<_, String>(2)?,
            ))
        })?;
        rows.map(|row| {
            let (name, at, detail) = row?;
            Ok(JournalRecord {
                change,
                state: state(&name)?,
                at: UnixMillis(at),
                detail: json(&detail)?,
            })
        })
        .collect()
    }

    fn put_session(&mut self, session: &Session) -> Result<(), StoreError> {
        let (expires, body) = (session.expires.0.cast_signed(), session.body.to_string());
        self.fenced(|sql| {
            sql.prepare_cached("INSERT OR REPLACE INTO session VALUES (?1, ?2, ?3)")?
                .execute(params![session.token_hash, expires, body])?;
            Ok(())
        })
    }

    fn session(&self, token_hash: &str, now: UnixMillis) -> Result<Option<Session>, StoreError> {
        let sql = "SELECT expires, body FROM session WHERE token_hash = ?1 AND expires > ?2";
        let found = self
            .connection
            .prepare_cached(sql)?
            .query_row(params![token_hash, now.0.cast_signed()], |row| {
                Ok((unsigned(row, 0)?, row.get::<_, String>(1)?))
            })
            .optional()?;
        found
            .map(|(expires, body)| {
                let (token_hash, expires) = (token_hash.to_owned(), UnixMillis(expires));
                Ok(Session {
                    token_hash,
                    expires,
                    body: json(&body)?,
                })
            })
            .transpose()
    }

    fn delete_session(&mut self, token_hash: &str) -> Result<(), StoreError> {
        self.fenced(|sql| {
            sql.execute("DELETE FROM session WHERE token_hash = ?1", params![token_hash])?;
            Ok(())
        })
    }

    fn setting(&self, name: &str) -> Result<Option<Value>, StoreError> {
        let sql = "SELECT body FROM setting WHERE name = ?1";
        let found: Option<String> = self
            .connection
            .prepare_cached(sql)?
            .query_row(params![name], |row| row.get(0))
            .optional()?;
        found.map(|text| json(&text)).transpose()
    }

    fn put_setting(&mut self, name: &str, value: Option<&Value>) -> Result<(), StoreError> {
        self.fenced(|sql| write_setting(sql, name, value))
    }

    fn raise_revision(&mut self, revision: Revision) -> Result<(), StoreError> {
        self.fenced(|sql| {
            let raise = "UPDATE engine SET revision = max(revision, ?1)";
            sql.execute(raise, params![revision.0.cast_signed()])?;
            Ok(())
        })
    }

    fn raise_epoch(&mut self, latest: u64) -> Result<u64, StoreError> {
        if latest.saturating_sub(self.epoch) > EPOCHS_AHEAD_MAX {
            return Err(StoreError::Database(format!(
                "epoch {latest} is not that of an earlier engine: expected at most {EPOCHS_AHEAD_MAX} above {}",
                self.epoch
            )));
        }
        self.epoch = self.fenced(|sql| {
            let raise = "UPDATE engine SET epoch = max(epoch, ?1) + 1 RETURNING epoch";
            Ok(sql.query_row(raise, params![latest.cast_signed()], |row| unsigned(row, 0))?)
        })?;
        Ok(self.epoch)
    }

    fn credential(&self, key: &str) -> Result<Option<Vec<u8>>, StoreError> {
        let sql = "SELECT value FROM credential WHERE key = ?1";
        Ok(self
            .connection
            .prepare_cached(sql)?
            .query_row(params![key], |row| row.get(0))
            .optional()?)
    }

    fn put_credential(&mut self, key: &str, value: Option<&[u8]>) -> Result<(), StoreError> {
        self.fenced(|sql| {
            match value {
                Some(value) => {
                    let write = "INSERT OR REPLACE INTO credential VALUES (?1, ?2)";
                    sql.execute(write, params![key, value])?
                }
                None => sql.execute("DELETE FROM credential WHERE key = ?1", params![key])?,
            };
            Ok(())
        })
    }

    fn credential_keys(&self, prefix: &str) -> Result<Vec<String>, StoreError> {
        let sql = "SELECT key FROM credential WHERE substr(key, 1, length(?1)) = ?1 ORDER BY key";
        let mut statement = self.connection.prepare_cached(sql)?;
        let rows = statement.query_map(params![prefix], |row| row.get(0))?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    fn reset_time(&mut self, now: UnixMillis, entry: AuditEntry) -> Result<UnixMillis, StoreError> {
        self.set_time_back(now, entry)
    }

    fn prune(&mut self, now: UnixMillis) -> Result<(), StoreError> {
        let oldest = now.0.saturating_sub(ANSWER_LIFETIME);
        self.fenced(|sql| {
            sql.execute(
                "DELETE FROM idempotency WHERE at <= ?1",
                params![oldest.cast_signed()],
            )?;
            sql.execute(
                "DELETE FROM session WHERE expires <= ?1",
                params![now.0.cast_signed()],
            )?;
            sql.execute(
                "UPDATE engine SET newest_time = max(newest_time, ?1)",
                params![now.0.cast_signed()],
            )?;
            Ok(())
        })
    }
}
