//! The interface of the store, over PostgreSQL.

use serde_json::Value;
use tokio_postgres::types::Type;

use super::Postgres;
use super::failure::Failure;
use super::read::{self, audit_record, change, json, load, signed, state, unsigned};
use super::write::{fence, write_answer, write_one, write_setting};
use crate::Store;
use crate::audit::{AuditEntry, AuditRecord, SignedHead, SigningKey};
use crate::error::StoreError;
use crate::standing::Standing;
use crate::time::UnixMillis;
use crate::transaction::{
    ANSWER_LIFETIME, Answer, ChangeRecord, Committed, Contents, EPOCHS_AHEAD_MAX, IdempotencyKey,
    JournalRecord, Revision, Session, StoredAnswer, Transaction,
};

impl Postgres {
    /// Writes in one transaction, if this engine leads.
    fn fenced<T>(
        &mut self,
        write: impl AsyncFnOnce(&tokio_postgres::Client) -> Result<T, Failure>,
    ) -> Result<T, StoreError> {
        self.check_leads()?;
        let mine = self.epoch;
        let done = self.run(async |sql| {
            sql.batch_execute("BEGIN").await?;
            let written = match fence(sql, mine).await {
                Ok(_) => write(sql).await,
                Err(failure) => Err(failure),
            };
            let end = if written.is_ok() { "COMMIT" } else { "ROLLBACK" };
            sql.batch_execute(end).await?;
            written
        });
        self.note_fence(done)
    }

    /// Returns rows.
    fn rows<T>(
        &self,
        sql: &str,
        parameters: &[read::Parameter<'_>],
        read: impl Fn(&tokio_postgres::Row) -> Result<T, Failure>,
    ) -> Result<Vec<T>, StoreError> {
        self.run(async |client| {
            let rows = client.query_typed(sql, parameters).await?;
            rows.iter().map(read).collect()
        })
    }

    /// Returns the first row.
    fn row<T>(
        &self,
        sql: &str,
        parameters: &[read::Parameter<'_>],
        read: impl Fn(&tokio_postgres::Row) -> Result<T, Failure>,
    ) -> Result<Option<T>, StoreError> {
        let mut rows = self.rows(sql, parameters, read)?;
        rows.truncate(1);
        Ok(rows.pop())
    }
}

impl Store for Postgres {
    fn standing(&mut self) -> Standing {
        self.standing_now()
    }

    fn load(&self) -> Result<Contents, StoreError> {
        let (contents, audit_hash) = self.run(async |sql| load(sql).await)?;
        self.known.replace(Some(super::Known {
            revision: contents.revision.0,
            audit_hash,
        }));
        Ok(contents)
    }

    fn newest_time(&self) -> Result<UnixMillis, StoreError> {
        let sql = "SELECT newest_time FROM engine";
        let found = self.row(sql, &[], |row| Ok(UnixMillis(unsigned(row, 0))))?;
        Ok(found.unwrap_or_default())
    }

    fn begin(&mut self) -> Result<(), StoreError> {
        self.check_leads()?;
        if self.group.is_some() {
            return Err(StoreError::Database("a group of transactions is open".to_owned()));
        }
        self.run(async |sql| Ok(sql.batch_execute("BEGIN").await?))?;
        self.group = Some(self.known.borrow().clone());
        Ok(())
    }

    fn write(&mut self, transaction: &Transaction, now: UnixMillis) -> Result<Committed, StoreError> {
        let Some(known) = self.group.clone() else {
            return Err(StoreError::Database(
                "the group of transactions was rolled back".to_owned(),
            ));
        };
        let mine = self.epoch;
        let written = self.run(async |sql| {
            sql.batch_execute("SAVEPOINT one").await?;
            let written = write_one(sql, mine, known.as_ref(), transaction, now).await;
            let end = match &written {
                Ok(_) => "RELEASE one",
                Err(_) => "ROLLBACK TO one; RELEASE one",
            };
            sql.batch_execute(end).await?;
            written
        });
        let written = self.note_fence(written);
        match &written {
            Ok((_, after)) => self.group = Some(Some(after.clone())),
            Err(StoreError::Away(_)) => {
                self.abandon();
                // A database that answers, and has other contents, is read again.
                if self.link.silent().is_none() {
                    self.surprises += 1;
                    self.known.replace(None);
                }
            }
            Err(_) => {}
        }
        written.map(|(committed, _)| committed)
    }

    fn finish(&mut self) -> Result<(), StoreError> {
        let Some(after) = self.group.take() else {
            return Err(StoreError::Database(
                "the group of transactions was rolled back".to_owned(),
            ));
        };
        // A COMMIT of a transaction that has failed is a ROLLBACK and succeeds; a SELECT in it fails.
        let done = self.run(async |sql| Ok(sql.batch_execute("SELECT 1; COMMIT").await?));
        if done.is_err() {
            // A session whose transaction cannot be ended is closed, and the server rolls back.
            let _closed = self.run(async |sql| Ok(sql.batch_execute("ROLLBACK").await?));
            return done;
        }
        self.known.replace(after);
        Ok(())
    }

    fn abandon(&mut self) {
        if self.group.take().is_some() {
            // A session whose transaction cannot be ended is closed, and the server rolls back.
            let _closed = self.run(async |sql| Ok(sql.batch_execute("ROLLBACK").await?));
        }
    }

    fn answer(&self, key: &IdempotencyKey, now: UnixMillis) -> Result<Option<StoredAnswer>, StoreError> {
        let oldest = signed(now.0.saturating_sub(ANSWER_LIFETIME));
        let sql =
            "SELECT request_hash, body::text, at FROM idempotency WHERE scope = $1 AND key = $2 AND at > $3";
        let parameters = [
            (&key.scope as _, Type::TEXT),
            (&key.key as _, Type::TEXT),
            (&oldest as _, Type::INT8),
        ];
        self.row(sql, &parameters, |row| {
            Ok(StoredAnswer {
                answer: Answer {
                    request_hash: row.try_get(0)?,
                    body: json(row.try_get(1)?)?,
                },
                at: UnixMillis(unsigned(row, 2)),
            })
        })
    }

    fn put_answer(
        &mut self,
        key: &IdempotencyKey,
        answer: &Answer,
        now: UnixMillis,
    ) -> Result<(), StoreError> {
        self.fenced(async |sql| write_answer(sql, key, answer, now).await)
    }

    fn audit(&self, after: u64, limit: usize) -> Result<Vec<AuditRecord>, StoreError> {
        let sql = "SELECT serial, body::text, hash FROM audit WHERE serial > $1 ORDER BY serial LIMIT $2";
        let (after, limit) = (signed(after), i64::try_from(limit).unwrap_or(i64::MAX));
        self.rows(sql, &[(&after, Type::INT8), (&limit, Type::INT8)], audit_record)
    }

    fn audit_before(&self, before: u64, limit: usize) -> Result<Vec<AuditRecord>, StoreError> {
        let sql =
            "SELECT serial, body::text, hash FROM audit WHERE serial < $1 ORDER BY serial DESC LIMIT $2";
        let (before, limit) = (signed(before), i64::try_from(limit).unwrap_or(i64::MAX));
        self.rows(sql, &[(&before, Type::INT8), (&limit, Type::INT8)], audit_record)
    }

    fn sign_head(&mut self, key: &SigningKey, now: UnixMillis) -> Result<Option<SignedHead>, StoreError> {
        self.fenced(async |sql| {
            let newest = "SELECT audit_serial, audit_hash, (SELECT coalesce(max(serial), 0) FROM audit_head) FROM engine";
            let row = sql.query_typed_one(newest, &[]).await?;
            let (serial, hash, signed_up_to) = (unsigned(&row, 0), row.try_get::<_, String>(1)?, unsigned(&row, 2));
            if signed_up_to == serial {
                return Ok(None);
            }
            let head = key.sign(serial, &hash, now).map_err(StoreError::from)?;
            let (number, at) = (signed(serial), signed(now.0));
            let values = [
                (&number as _, Type::INT8),
                (&head.hash as _, Type::TEXT),
                (&at as _, Type::INT8),
                (&head.public_key as _, Type::TEXT),
                (&head.signature as _, Type::TEXT),
            ];
            sql.execute_typed("INSERT INTO audit_head VALUES ($1, $2, $3, $4, $5)", &values).await?;
            Ok(Some(head))
        })
    }

    fn signed_heads(&self) -> Result<Vec<SignedHead>, StoreError> {
        self.rows(&format!("{} ORDER BY serial", read::HEAD), &[], read::head)
    }

    fn newest_head(&self) -> Result<Option<SignedHead>, StoreError> {
        let newest = format!("{} ORDER BY serial DESC LIMIT 1", read::HEAD);
        Ok(self.rows(&newest, &[], read::head)?.pop())
    }

    fn changes(&self, before: u64, limit: usize) -> Result<Vec<ChangeRecord>, StoreError> {
        let sql = format!("{} WHERE id < $1 ORDER BY id DESC LIMIT $2", read::CHANGE);
        let (before, limit) = (signed(before), i64::try_from(limit).unwrap_or(i64::MAX));
        self.rows(&sql, &[(&before, Type::INT8), (&limit, Type::INT8)], change)
    }

    fn journal(&self, change: u64) -> Result<Vec<JournalRecord>, StoreError> {
        let sql = "SELECT state, at, detail::text FROM journal WHERE change = $1 ORDER BY serial";
        let number = signed(change);
        self.rows(sql, &[(&number, Type::INT8)], |row| {
            Ok(JournalRecord {
                change,
                state: state(row.try_get(0)?)?,
                at: UnixMillis(unsigned(row, 1)),
                detail: json(row.try_get(2)?)?,
            })
        })
    }

    fn put_session(&mut self, session: &Session) -> Result<(), StoreError> {
        let (expires, body) = (signed(session.expires.0), session.body.to_string());
        self.fenced(async |sql| {
            let write =
                "INSERT INTO session VALUES ($1, $2, $3::text::json) ON CONFLICT (token_hash) DO UPDATE
                SET expires = excluded.expires, body = excluded.body";
            let values = [
                (&session.token_hash as _, Type::TEXT),
                (&expires as _, Type::INT8),
                (&body as _, Type::TEXT),
            ];
            sql.execute_typed(write, &values).await?;
            Ok(())
        })
    }

    fn session(&self, token_hash: &str, now: UnixMillis) -> Result<Option<Session>, StoreError> {
        let sql = "SELECT expires, body::text FROM session WHERE token_hash = $1 AND expires > $2";
        let now = signed(now.0);
        self.row(sql, &[(&token_hash, Type::TEXT), (&now, Type::INT8)], |row| {
            Ok(Session {
                token_hash: token_hash.to_owned(),
                expires: UnixMillis(unsigned(row, 0)),
                body: json(row.try_get(1)?)?,
            })
        })
    }

    fn delete_session(&mut self, token_hash: &str) -> Result<(), StoreError> {
        self.fenced(async |sql| {
            let delete = "DELETE FROM session WHERE token_hash = $1";
            sql.execute_typed(delete, &[(&token_hash, Type::TEXT)]).await?;
            Ok(())
        })
    }

    fn setting(&self, name: &str) -> Result<Option<Value>, StoreError> {
        let sql = "SELECT body::text FROM setting WHERE name = $1";
        self.row(sql, &[(&name, Type::TEXT)], |row| Ok(json(row.try_get(0)?)?))
    }

    fn put_setting(&mut self, name: &str, value: Option<&Value>) -> Result<(), StoreError> {
        self.fenced(async |sql| write_setting(sql, name, value).await)
    }

    fn raise_revision(&mut self, revision: Revision) -> Result<(), StoreError> {
        let number = signed(revision.0);
        self.fenced(async |sql| {
            let raise = "UPDATE engine SET revision = greatest(revision, $1)";
            sql.execute_typed(raise, &[(&number, Type::INT8)]).await?;
            Ok(())
        })?;
        if let Some(known) = self.known.borrow_mut().as_mut() {
            known.revision = known.revision.max(revision.0);
        }
        Ok(())
    }

    fn raise_epoch(&mut self, latest: u64) -> Result<u64, StoreError> {
        if latest.saturating_sub(self.epoch) > EPOCHS_AHEAD_MAX {
            return Err(StoreError::Database(format!(
                "epoch {latest} is not that of an earlier engine: expected at most {EPOCHS_AHEAD_MAX} above {}",
                self.epoch
            )));
        }
        let latest = signed(latest);
        let raised = self.fenced(async |sql| {
            let raise = "UPDATE engine SET epoch = greatest(epoch, $1) + 1 RETURNING epoch";
            let row = sql.query_typed_one(raise, &[(&latest, Type::INT8)]).await?;
            Ok(unsigned(&row, 0))
        })?;
        self.epoch = raised;
        self.lease.raised(raised);
        Ok(raised)
    }

    fn credential(&self, key: &str) -> Result<Option<Vec<u8>>, StoreError> {
        let sql = "SELECT value FROM credential WHERE key = $1";
        self.row(sql, &[(&key, Type::TEXT)], |row| Ok(row.try_get(0)?))
    }

    fn put_credential(&mut self, key: &str, value: Option<&[u8]>) -> Result<(), StoreError> {
        self.fenced(async |sql| {
            match value {
                Some(value) => {
                    let write = "INSERT INTO credential VALUES ($1, $2) ON CONFLICT (key) DO UPDATE SET value = excluded.value";
                    sql.execute_typed(write, &[(&key, Type::TEXT), (&value, Type::BYTEA)]).await?
                }
                None => {
                    let delete = "DELETE FROM credential WHERE key = $1";
                    sql.execute_typed(delete, &[(&key, Type::TEXT)]).await?
                }
            };
            Ok(())
        })
    }

    fn credential_keys(&self, prefix: &str) -> Result<Vec<String>, StoreError> {
        let sql = "SELECT key FROM credential WHERE starts_with(key, $1) ORDER BY key COLLATE \"C\"";
        self.rows(sql, &[(&prefix, Type::TEXT)], |row| Ok(row.try_get(0)?))
    }

    fn reset_time(&mut self, now: UnixMillis, entry: AuditEntry) -> Result<UnixMillis, StoreError> {
        let before = self.newest_time()?;
        let transaction = Transaction {
            audit: vec![entry],
            ..Transaction::default()
        };
        self.commit(&transaction, now)?;
        let now = signed(now.0);
        self.fenced(async |sql| {
            let now = [(&now as _, Type::INT8)];
            sql.execute_typed("DELETE FROM idempotency WHERE at > $1", &now)
                .await?;
            sql.execute_typed("DELETE FROM session", &[]).await?;
            sql.execute_typed("UPDATE engine SET newest_time = $1", &now)
                .await?;
            Ok(())
        })?;
        Ok(before)
    }

    fn prune(&mut self, now: UnixMillis) -> Result<(), StoreError> {
        let (oldest, now) = (signed(now.0.saturating_sub(ANSWER_LIFETIME)), signed(now.0));
        self.fenced(async |sql| {
            sql.execute_typed("DELETE FROM idempotency WHERE at <= $1", &[(&oldest, Type::INT8)])
                .await?;
            sql.execute_typed("DELETE FROM session WHERE expires <= $1", &[(&now, Type::INT8)])
                .await?;
            let time = "UPDATE engine SET newest_time = greatest(newest_time, $1)";
            sql.execute_typed(time, &[(&now, Type::INT8)]).await?;
            Ok(())
        })
    }
}
