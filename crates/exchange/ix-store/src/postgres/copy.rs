//! The contents of a SQLite file, copied as they are into an empty database: objects, changes, audit chain, users.

use rusqlite::types::ValueRef;
use tokio_postgres::types::{ToSql, Type};

use super::Postgres;
use super::failure::{Failure, refused};
use crate::Store as _;
use crate::error::StoreError;
use crate::sqlite::Sqlite;

/// The rows of a table: what SQLite selects, and what PostgreSQL inserts. Each value travels as text.
struct Table {
    name: &'static str,
    /// The columns, in an order in which rows may be inserted.
    select: &'static str,
    insert: &'static str,
}

/// The tables, in an order in which their rows may be inserted. Triggers make the tables that follow from `object`.
const TABLES: [Table; 9] = [
    Table {
        name: "object",
        // An address belongs to the service of its end, which must be written before.
        select: "SELECT kind, id, revision, body FROM object ORDER BY kind IN ('mc', 'ip'), kind, id",
        insert: "INSERT INTO object VALUES ($1, $2::text::bigint, $3::text::bigint, $4::text::jsonb)",
    },
    Table {
        name: "change",
        select: "SELECT id, state, accepted_at, updated_at, detail FROM change",
        insert: "INSERT INTO change VALUES ($1::text::bigint, $2, $3::text::bigint, $4::text::bigint, $5::text::json)",
    },
    Table {
        name: "journal",
        select: "SELECT change, state, at, detail FROM journal ORDER BY serial",
        insert: "INSERT INTO journal (change, state, at, detail)
            VALUES ($1::text::bigint, $2, $3::text::bigint, $4::text::json)",
    },
    Table {
        name: "audit",
        select: "SELECT serial, body, hash FROM audit",
        insert: "INSERT INTO audit VALUES ($1::text::bigint, $2::text::json, $3)",
    },
    Table {
        name: "audit_head",
        select: "SELECT serial, hash, at, public_key, signature FROM audit_head",
        insert: "INSERT INTO audit_head VALUES ($1::text::bigint, $2, $3::text::bigint, $4, $5)",
    },
    Table {
        name: "idempotency",
        select: "SELECT scope, key, request_hash, body, at FROM idempotency",
        insert: "INSERT INTO idempotency VALUES ($1, $2, $3, $4::text::json, $5::text::bigint)",
    },
    Table {
        name: "setting",
        select: "SELECT name, body FROM setting",
        insert: "INSERT INTO setting VALUES ($1, $2::text::json)",
    },
    Table {
        name: "credential",
        select: "SELECT key, hex(value) FROM credential",
        insert: "INSERT INTO credential VALUES ($1, decode($2, 'hex'))",
    },
    Table {
        name: "session",
        select: "SELECT token_hash, expires, body FROM session",
        insert: "INSERT INTO session VALUES ($1, $2::text::bigint, $3::text::json)",
    },
];

/// Returns the rows of a table, each value as text.
fn rows(file: &Sqlite, select: &str) -> Result<Vec<Vec<String>>, StoreError> {
    let mut statement = file.connection.prepare(select)?;
    let len = statement.column_count();
    let mut rows = statement.query([])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let values = (0..len).map(|index| {
            Ok(match row.get_ref(index)? {
                ValueRef::Integer(number) => number.to_string(),
                ValueRef::Text(text) => String::from_utf8_lossy(text).into_owned(),
                other => return Err(StoreError::Damaged(format!("{select}: {:?}", other.data_type()))),
            })
        });
        found.push(values.collect::<Result<_, StoreError>>()?);
    }
    Ok(found)
}

impl Postgres {
    /// Copies the contents of a file, in one transaction. The epoch becomes greater than that of the file, so that switches
    /// that the file's engine has led accept this one.
    ///
    /// # Errors
    /// [`StoreError`] if another engine leads, or this database is not empty; nothing is written then.
    pub fn copy_from(&mut self, file: &Sqlite) -> Result<(), StoreError> {
        let contents = self.load()?;
        if contents.revision.0 > 0 || !contents.objects.is_empty() {
            return Err(refused(
                "the database has contents already: expected an empty one".to_owned(),
            ));
        }
        let tables = TABLES.iter().map(|table| Ok((table, rows(file, table.select)?)));
        let tables = tables.collect::<Result<Vec<_>, StoreError>>()?;
        let engine = "SELECT epoch, revision, audit_serial, audit_hash, newest_time FROM engine";
        let engine = rows(file, engine)?.pop().unwrap_or_default();
        self.begin()?;
        let copied = self.copy_tables(&tables, &engine);
        match copied {
            Ok(()) => self.finish()?,
            Err(error) => {
                self.abandon();
                return Err(error);
            }
        }
        self.known.replace(None);
        let latest = engine.first().and_then(|epoch| epoch.parse().ok());
        self.raise_epoch(latest.unwrap_or_default())?;
        self.load().map(drop)
    }

    /// Inserts the rows, each in its turn: an answer is awaited for each row, and not for all.
    fn copy_tables(
        &self,
        tables: &[(&Table, Vec<Vec<String>>)],
        engine: &[String],
    ) -> Result<(), StoreError> {
        for (table, rows) in tables {
            for row in rows {
                let values: Vec<_> = row
                    .iter()
                    .map(|value| (value as &(dyn ToSql + Sync), Type::TEXT))
                    .collect();
                self.run(async |sql| Ok(sql.execute_typed(table.insert, &values).await?))?;
            }
            tracing::info!(table = table.name, rows = rows.len(), "copied");
        }
        let update =
            "UPDATE engine SET revision = $1::text::bigint, audit_serial = $2::text::bigint, audit_hash = $3,
            newest_time = $4::text::bigint";
        let values: Vec<_> = engine
            .iter()
            .skip(1)
            .map(|value| (value as &(dyn ToSql + Sync), Type::TEXT))
            .collect();
        self.run(async |sql| Ok::<_, Failure>(sql.execute_typed(update, &values).await?))
            .map(drop)
    }
}
