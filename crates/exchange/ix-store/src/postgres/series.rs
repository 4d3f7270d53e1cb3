//! The time series that the engines of a database give to each other: intervals of the last hours, and files of columns.
//!
//! ```text
//!   leader: an interval each 10 s --> series_interval --> the others, which add it to their open hour
//!   any engine: a file --> series_file (name, hash) and series_part (1 MiB each) --> the others, which merge it into theirs
//! ```
//! Contents are opaque here. An interval is written only in the epoch of the engine that leads. A file is replaced only by an engine
//! that names the hash of the version which it has merged, so that no version is lost; this needs no fence.
//!
//! The connection is one of its own, so that the transfer of a file does not delay orders. It is made when it is needed.

use std::time::Duration;

use tokio_postgres::Client;
use tokio_postgres::types::Type;

use super::PostgresSettings;
use super::failure::{Failure, is_lost, text};
use super::link::Connector;
use super::read::{Parameter, signed, unsigned};
use crate::audit::sha256_hex;
use crate::error::StoreError;

/// The longest wait for the answer to one statement, which moves at most one part.
const ANSWER_MAX: Duration = Duration::from_secs(30);
/// The size of a part of a file, in bytes.
const PART_SIZE: usize = 1 << 20;
/// The largest file, in bytes. 100,000 series with 288 points of 3 bytes take 88 MB.
const FILE_SIZE_MAX: usize = 128 << 20;
/// The settings of the session beyond those of each one: a part may take long on a slow path.
const SESSION: &str = "SET statement_timeout = '30s'; SET idle_in_transaction_session_timeout = '60s'";

/// The shared series of a database.
pub struct SharedSeries {
    connector: Connector,
    client: Option<Client>,
    engine: String,
}

impl std::fmt::Debug for SharedSeries {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SharedSeries").finish_non_exhaustive()
    }
}

impl SharedSeries {
    /// Reads the settings. No connection is made before the first call.
    ///
    /// # Errors
    /// [`StoreError::Open`] if the settings cannot be used.
    pub fn new(settings: PostgresSettings) -> Result<SharedSeries, StoreError> {
        let engine = settings.name.clone();
        Ok(SharedSeries {
            connector: Connector::new(settings)?,
            client: None,
            engine,
        })
    }

    /// Takes the connection, or makes one. A call that is given up half-way takes it with it, and its transaction.
    async fn client(&mut self) -> Result<Client, StoreError> {
        if let Some(client) = self.client.take().filter(|client| !client.is_closed()) {
            return Ok(client);
        }
        let client = self.connector.connect().await?;
        client.batch_execute(SESSION).await.map_err(Failure::from)?;
        Ok(client)
    }

    /// Keeps the connection after work that has succeeded.
    fn settle<T>(&mut self, client: Client, done: Result<T, Failure>) -> Result<T, StoreError> {
        match done {
            Ok(value) => {
                self.client = Some(client);
                Ok(value)
            }
            Err(Failure::Sql(error)) if is_lost(&error) => Err(StoreError::Away(text(&error))),
            Err(failure) => Err(failure.into()),
        }
    }

    /// Writes an interval, if this engine still leads in `epoch`. Returns false if it does not.
    ///
    /// # Errors
    /// [`StoreError`] if the database cannot be written.
    pub async fn put_interval(&mut self, epoch: u64, start: u64, record: &[u8]) -> Result<bool, StoreError> {
        let (epoch, start) = (signed(epoch), signed(start));
        let sql = self.client().await?;
        let engine = self.engine.as_str();
        let done = async {
            let put = "INSERT INTO series_interval SELECT $1, $2, $3 FROM engine WHERE epoch = $4
                ON CONFLICT (start, engine) DO UPDATE SET record = excluded.record";
            let values = [
                (&start as _, Type::INT8),
                (&engine as _, Type::TEXT),
                (&record as _, Type::BYTEA),
                (&epoch as _, Type::INT8),
            ];
            Ok(within(sql.execute_typed(put, &values)).await? > 0)
        };
        let done = done.await;
        self.settle(sql, done)
    }

    /// Returns the name of this engine.
    pub fn engine(&self) -> &str {
        &self.engine
    }

    /// Returns the starts of the intervals, each with the name of the engine that has written it, oldest first.
    ///
    /// # Errors
    /// [`StoreError`] if the database cannot be read.
    pub async fn intervals(&mut self) -> Result<Vec<(u64, String)>, StoreError> {
        let sql = self.client().await?;
        let done = async {
            let list = "SELECT start, engine FROM series_interval ORDER BY start, engine";
            let rows = within(sql.query_typed(list, &[])).await?;
            rows.iter()
                .map(|row| Ok((unsigned(row, 0), row.try_get(1)?)))
                .collect()
        };
        let done = done.await;
        self.settle(sql, done)
    }

    /// Returns the record of an interval; `None` if it is gone.
    ///
    /// # Errors
    /// [`StoreError`] if the database cannot be read.
    pub async fn interval(&mut self, start: u64, engine: &str) -> Result<Option<Vec<u8>>, StoreError> {
        let start = signed(start);
        let sql = self.client().await?;
        let done = async {
            let read = "SELECT record FROM series_interval WHERE start = $1 AND engine = $2";
            let values = [(&start as _, Type::INT8), (&engine as _, Type::TEXT)];
            let row = within(sql.query_typed_opt(read, &values)).await?;
            Ok(row.map(|row| row.try_get(0)).transpose()?)
        };
        let done = done.await;
        self.settle(sql, done)
    }

    /// Removes the intervals outside of a time, if this engine still leads in `epoch`: those that engines have in their files.
    ///
    /// # Errors
    /// [`StoreError`] if the database cannot be written.
    pub async fn keep_intervals(&mut self, epoch: u64, from: u64, to: u64) -> Result<(), StoreError> {
        let (epoch, from, to) = (signed(epoch), signed(from), signed(to));
        let sql = self.client().await?;
        let done = async {
            let remove =
                "DELETE FROM series_interval USING engine WHERE epoch = $1 AND (start < $2 OR start > $3)";
            let values = [
                (&epoch as _, Type::INT8),
                (&from as _, Type::INT8),
                (&to as _, Type::INT8),
            ];
            within(sql.execute_typed(remove, &values)).await?;
            Ok(())
        };
        let done = done.await;
        self.settle(sql, done)
    }

    /// Returns the names of the files, each with the SHA-256 of its content in hexadecimal digits, in the order of names.
    ///
    /// # Errors
    /// [`StoreError`] if the database cannot be read.
    pub async fn files(&mut self) -> Result<Vec<(String, String)>, StoreError> {
        let sql = self.client().await?;
        let done = async {
            let list = "SELECT name, hash FROM series_file ORDER BY name COLLATE \"C\"";
            let rows = within(sql.query_typed(list, &[])).await?;
            rows.iter()
                .map(|row| Ok((row.try_get(0)?, row.try_get(1)?)))
                .collect()
        };
        let done = done.await;
        self.settle(sql, done)
    }

    /// Returns a file; `None` if it is not there, or was replaced while it was read.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] if its content does not have its hash, [`StoreError`] if the database cannot be read.
    pub async fn file(&mut self, name: &str) -> Result<Option<Vec<u8>>, StoreError> {
        let sql = self.client().await?;
        let done = async {
            let named = [(&name as _, Type::TEXT)];
            let head = "SELECT hash, size FROM series_file WHERE name = $1";
            let Some(row) = within(sql.query_typed_opt(head, &named)).await? else {
                return Ok(None);
            };
            let (hash, size): (String, u64) = (row.try_get(0)?, unsigned(&row, 1));
            let size = usize::try_from(size).ok().filter(|size| *size <= FILE_SIZE_MAX);
            let size = size.ok_or_else(|| damaged(name, "it is too large"))?;
            let mut bytes = Vec::with_capacity(size);
            for part in 0.. {
                let read = "SELECT bytes FROM series_part WHERE name = $1 AND part = $2 AND octet_length(bytes) <= $3";
                let most = i32::try_from(size - bytes.len()).unwrap_or(i32::MAX);
                let values: [Parameter<'_>; 3] =
                    [(&name, Type::TEXT), (&part, Type::INT4), (&most, Type::INT4)];
                let Some(row) = within(sql.query_typed_opt(read, &values)).await? else {
                    break;
                };
                bytes.extend(row.try_get::<_, &[u8]>(0)?);
                if bytes.len() == size {
                    break;
                }
            }
            if sha256_hex(&bytes) == hash {
                return Ok(Some(bytes));
            }
            // Another engine may have replaced it between two parts.
            let again = within(sql.query_typed_opt(head, &named)).await?;
            if again.is_some_and(|row| row.try_get::<_, String>(0).is_ok_and(|found| found == hash)) {
                return Err(damaged(name, "its content does not have its hash").into());
            }
            Ok(None)
        };
        let done = done.await;
        self.settle(sql, done)
    }

    /// Writes a file in the place of the version with the hash `expected`, or as a new one. Returns its hash; `None` if the database
    /// has another version.
    ///
    /// # Errors
    /// [`StoreError`] if the database cannot be written; it has the earlier version then.
    pub async fn put_file(
        &mut self,
        name: &str,
        expected: Option<&str>,
        bytes: &[u8],
    ) -> Result<Option<String>, StoreError> {
        if bytes.len() > FILE_SIZE_MAX {
            return Err(damaged(name, "it is too large"));
        }
        let (hash, size) = (sha256_hex(bytes), signed(bytes.len() as u64));
        let sql = self.client().await?;
        let done = async {
            sql.batch_execute("BEGIN").await?;
            let values: [Parameter<'_>; 4] = [
                (&name, Type::TEXT),
                (&hash, Type::TEXT),
                (&size, Type::INT8),
                (&expected, Type::TEXT),
            ];
            let put = "INSERT INTO series_file VALUES ($1, $2, $3) ON CONFLICT (name) DO UPDATE
                SET hash = excluded.hash, size = excluded.size WHERE series_file.hash = $4";
            let is_new = within(sql.execute_typed(put, &values)).await? > 0;
            if !is_new {
                sql.batch_execute("ROLLBACK").await?;
                return Ok(None);
            }
            let named = [(&name as _, Type::TEXT)];
            within(sql.execute_typed("DELETE FROM series_part WHERE name = $1", &named)).await?;
            for (part, bytes) in (0_i32..).zip(bytes.chunks(PART_SIZE)) {
                let values: [Parameter<'_>; 3] =
                    [(&name, Type::TEXT), (&part, Type::INT4), (&bytes, Type::BYTEA)];
                within(sql.execute_typed("INSERT INTO series_part VALUES ($1, $2, $3)", &values)).await?;
            }
            within(sql.batch_execute("COMMIT")).await?;
            Ok(Some(hash.clone()))
        };
        let done = done.await;
        self.settle(sql, done)
    }

    /// Removes the version of a file with this hash.
    ///
    /// # Errors
    /// [`StoreError`] if the database cannot be written.
    pub async fn remove_file(&mut self, name: &str, hash: &str) -> Result<(), StoreError> {
        let sql = self.client().await?;
        let done = async {
            let values = [(&name as _, Type::TEXT), (&hash as _, Type::TEXT)];
            let remove = "DELETE FROM series_file WHERE name = $1 AND hash = $2";
            within(sql.execute_typed(remove, &values)).await?;
            Ok(())
        };
        let done = done.await;
        self.settle(sql, done)
    }
}

fn damaged(name: &str, reason: &str) -> StoreError {
    StoreError::Damaged(format!("the file {name} of the series: {reason}"))
}

/// Waits for the answer to a statement, at most [`ANSWER_MAX`].
async fn within<T>(answer: impl Future<Output = Result<T, tokio_postgres::Error>>) -> Result<T, Failure> {
    match tokio::time::timeout(ANSWER_MAX, answer).await {
        Ok(answer) => Ok(answer?),
        Err(_) => Err(StoreError::Away(format!("no answer within {} s", ANSWER_MAX.as_secs())).into()),
    }
}
