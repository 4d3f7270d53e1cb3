//! The schema, as forward migrations. Plain SQL, so that a second back end can hold the same tables.
//!
//! `object` holds the exchange; the constraints on objects are unique indexes over their JSON, and `connection_port`, which
//! triggers keep. Entries of `audit` and `journal` cannot be updated or deleted.

use rusqlite::Connection;

use crate::error::StoreError;

/// The migrations, oldest first; the schema version is the number of migrations that a database has seen.
const MIGRATIONS: [&str; 2] = [FIRST, NEWEST_TIME];

const FIRST: &str = "
CREATE TABLE engine (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    epoch INTEGER NOT NULL,
    revision INTEGER NOT NULL,
    audit_serial INTEGER NOT NULL,
    audit_hash TEXT NOT NULL
) STRICT;
INSERT INTO engine VALUES (1, 0, 0, 0, '0000000000000000000000000000000000000000000000000000000000000000');

CREATE TABLE object (
    kind TEXT NOT NULL,
    id INTEGER NOT NULL,
    revision INTEGER NOT NULL,
    body TEXT NOT NULL CHECK (json_valid(body)),
    PRIMARY KEY (kind, id)
) STRICT, WITHOUT ROWID;

-- Kinds are the prefixes of identifiers: nc is an end of a service, cn a connection, mc and ip are addresses of ends.
-- An end has its VLAN of the connection alone; -1 stands for a part that is absent.
CREATE UNIQUE INDEX end_vlan ON object (
    json_extract(body, '$.connection'),
    coalesce(json_extract(body, '$.vlan.outer'), json_extract(body, '$.vlan.vlan'), -1),
    coalesce(json_extract(body, '$.vlan.inner'), -1)
) WHERE kind = 'nc';

-- An address is registered once in a service, which is that of its end.
CREATE TABLE service_address (
    service TEXT NOT NULL,
    kind TEXT NOT NULL,
    address TEXT NOT NULL,
    object INTEGER NOT NULL,
    PRIMARY KEY (service, kind, address)
) STRICT, WITHOUT ROWID;
CREATE INDEX service_address_object ON service_address (object);
CREATE TRIGGER service_address_insert AFTER INSERT ON object WHEN NEW.kind IN ('mc', 'ip') BEGIN
    INSERT INTO service_address
        SELECT json_extract(body, '$.service'), NEW.kind, json_extract(NEW.body, '$.address'), NEW.id
        FROM object
        WHERE kind = 'nc' AND id = CAST(substr(json_extract(NEW.body, '$.config'), 4) AS INTEGER);
END;
CREATE TRIGGER service_address_delete AFTER DELETE ON object WHEN OLD.kind IN ('mc', 'ip') BEGIN
    DELETE FROM service_address WHERE kind = OLD.kind AND object = OLD.id;
END;
CREATE UNIQUE INDEX external_ref ON object (
    kind, json_extract(body, '$.account'), json_extract(body, '$.external_ref')
) WHERE json_extract(body, '$.external_ref') IS NOT NULL;

CREATE TABLE connection_port (
    port TEXT PRIMARY KEY,
    connection INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX connection_port_connection ON connection_port (connection);
CREATE TRIGGER connection_port_insert AFTER INSERT ON object WHEN NEW.kind = 'cn' BEGIN
    INSERT INTO connection_port SELECT value, NEW.id FROM json_each(NEW.body, '$.ports');
END;
CREATE TRIGGER connection_port_delete AFTER DELETE ON object WHEN OLD.kind = 'cn' BEGIN
    DELETE FROM connection_port WHERE connection = OLD.id;
END;
-- Objects are replaced by deletion and insertion, so that the triggers see them.
CREATE TRIGGER object_update BEFORE UPDATE ON object BEGIN SELECT RAISE(ABORT, 'objects are replaced'); END;

CREATE TABLE change (
    id INTEGER PRIMARY KEY,
    state TEXT NOT NULL,
    accepted_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    detail TEXT NOT NULL CHECK (json_valid(detail))
) STRICT;
CREATE INDEX open_change ON change (id) WHERE state NOT IN ('cleaned', 'rolled_back');
CREATE TABLE journal (
    serial INTEGER PRIMARY KEY,
    change INTEGER NOT NULL REFERENCES change (id),
    state TEXT NOT NULL,
    at INTEGER NOT NULL,
    detail TEXT NOT NULL CHECK (json_valid(detail))
) STRICT;
CREATE INDEX journal_of_change ON journal (change, serial);
CREATE TRIGGER journal_update BEFORE UPDATE ON journal BEGIN SELECT RAISE(ABORT, 'journal is append-only'); END;
CREATE TRIGGER journal_delete BEFORE DELETE ON journal BEGIN SELECT RAISE(ABORT, 'journal is append-only'); END;

CREATE TABLE audit (
    serial INTEGER PRIMARY KEY,
    body TEXT NOT NULL CHECK (json_valid(body)),
    hash TEXT NOT NULL
) STRICT;
CREATE TRIGGER audit_update BEFORE UPDATE ON audit BEGIN SELECT RAISE(ABORT, 'audit is append-only'); END;
CREATE TRIGGER audit_delete BEFORE DELETE ON audit BEGIN SELECT RAISE(ABORT, 'audit is append-only'); END;
CREATE TABLE audit_head (
    serial INTEGER PRIMARY KEY,
    hash TEXT NOT NULL,
    at INTEGER NOT NULL,
    public_key TEXT NOT NULL,
    signature TEXT NOT NULL
) STRICT;

CREATE TABLE idempotency (
    scope TEXT NOT NULL,
    key TEXT NOT NULL,
    request_hash TEXT NOT NULL,
    body TEXT NOT NULL CHECK (json_valid(body)),
    at INTEGER NOT NULL,
    PRIMARY KEY (scope, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX idempotency_age ON idempotency (at);

CREATE TABLE setting (
    name TEXT PRIMARY KEY,
    body TEXT NOT NULL CHECK (json_valid(body))
) STRICT, WITHOUT ROWID;
CREATE TABLE credential (
    key TEXT PRIMARY KEY,
    value BLOB NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE session (
    token_hash TEXT PRIMARY KEY,
    expires INTEGER NOT NULL,
    body TEXT NOT NULL CHECK (json_valid(body))
) STRICT, WITHOUT ROWID;
CREATE INDEX session_end ON session (expires);
";

/// The newest time of the engine's clock that a write has seen, in milliseconds since the Unix epoch.
const NEWEST_TIME: &str = "
ALTER TABLE engine ADD COLUMN newest_time INTEGER NOT NULL DEFAULT 0;
UPDATE engine SET newest_time = max(
    coalesce((SELECT max(at) FROM journal), 0),
    coalesce((SELECT max(at) FROM audit_head), 0)
);
";

/// Brings the database to the newest schema.
///
/// # Errors
/// [`StoreError::Newer`] if a newer program wrote it; [`StoreError`] if a migration fails, which then changes nothing.
pub(crate) fn migrate(connection: &mut Connection) -> Result<(), StoreError> {
    let known = u32::try_from(MIGRATIONS.len()).unwrap_or(u32::MAX);
    let transaction = connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
    let found: u32 = transaction.pragma_query_value(None, "user_version", |row| row.get(0))?;
    if found > known {
        return Err(StoreError::Newer { found, known });
    }
    for migration in MIGRATIONS
        .iter()
        .skip(usize::try_from(found).unwrap_or(usize::MAX))
    {
        transaction.execute_batch(migration)?;
    }
    transaction.pragma_update(None, "user_version", known)?;
    transaction.commit()?;
    Ok(())
}
