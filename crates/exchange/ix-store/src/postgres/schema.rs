//! The schema on PostgreSQL: the tables, indexes and triggers of the SQLite file in PostgreSQL's words, and the lease of the leader.

use tokio_postgres::Client;

use super::failure::Failure;
use crate::error::StoreError;

/// The migrations, oldest first; the schema version is the number of migrations that a database has seen.
const MIGRATIONS: [&str; 2] = [FIRST, SERIES];

/// The lock that orders the starts of several engines: an arbitrary number that means this schema.
const MIGRATION_LOCK: i64 = 0x6d69_6c6c_7261_6365;

const FIRST: &str = "
CREATE TABLE engine (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    epoch BIGINT NOT NULL,
    revision BIGINT NOT NULL,
    audit_serial BIGINT NOT NULL,
    audit_hash TEXT NOT NULL,
    newest_time BIGINT NOT NULL
);
INSERT INTO engine VALUES (1, 0, 0, 0, repeat('0', 64), 0);

-- The engine that leads. beat grows while it lives; released is true after it has ended in order.
CREATE TABLE lease (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    holder TEXT NOT NULL,
    name TEXT NOT NULL,
    address TEXT NOT NULL,
    beat BIGINT NOT NULL,
    released BOOLEAN NOT NULL
);
INSERT INTO lease VALUES (1, '', '', '', 0, true);

CREATE TABLE object (
    kind TEXT NOT NULL,
    id BIGINT NOT NULL,
    revision BIGINT NOT NULL,
    body JSONB NOT NULL,
    PRIMARY KEY (kind, id)
);

-- Kinds are the prefixes of identifiers: nc is an end of a service, cn a connection, mc and ip are addresses of ends.
-- An end has its VLAN of the connection alone; -1 stands for a part that is absent.
CREATE UNIQUE INDEX end_vlan ON object (
    (body ->> 'connection'),
    coalesce(body #>> '{vlan,outer}', body #>> '{vlan,vlan}', '-1'),
    coalesce(body #>> '{vlan,inner}', '-1')
) WHERE kind = 'nc';
CREATE UNIQUE INDEX external_ref ON object (
    kind, (body ->> 'account'), (body ->> 'external_ref')
) WHERE (body ->> 'external_ref') IS NOT NULL;

-- An address is registered once in a service, which is that of its end.
CREATE TABLE service_address (
    service TEXT NOT NULL,
    kind TEXT NOT NULL,
    address TEXT NOT NULL,
    object BIGINT NOT NULL,
    PRIMARY KEY (service, kind, address)
);
CREATE INDEX service_address_object ON service_address (object);
CREATE TABLE connection_port (
    port TEXT PRIMARY KEY,
    connection BIGINT NOT NULL
);
CREATE INDEX connection_port_connection ON connection_port (connection);
CREATE FUNCTION object_inserted() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.kind IN ('mc', 'ip') THEN
        INSERT INTO service_address
            SELECT ends.body ->> 'service', NEW.kind, NEW.body ->> 'address', NEW.id
            FROM object AS ends
            WHERE ends.kind = 'nc' AND ends.id = substr(NEW.body ->> 'config', 4)::bigint;
    ELSIF NEW.kind = 'cn' THEN
        INSERT INTO connection_port SELECT jsonb_array_elements_text(NEW.body -> 'ports'), NEW.id;
    END IF;
    RETURN NULL;
END $$;
CREATE FUNCTION object_deleted() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.kind IN ('mc', 'ip') THEN
        DELETE FROM service_address WHERE kind = OLD.kind AND object = OLD.id;
    ELSIF OLD.kind = 'cn' THEN
        DELETE FROM connection_port WHERE connection = OLD.id;
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER object_insert AFTER INSERT ON object FOR EACH ROW EXECUTE FUNCTION object_inserted();
CREATE TRIGGER object_delete AFTER DELETE ON object FOR EACH ROW EXECUTE FUNCTION object_deleted();
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '%', TG_ARGV[0] USING ERRCODE = 'integrity_constraint_violation';
END $$;
-- Objects are replaced by deletion and insertion, so that the triggers see them.
CREATE TRIGGER object_update BEFORE UPDATE ON object FOR EACH ROW EXECUTE FUNCTION refuse('objects are replaced');

CREATE TABLE change (
    id BIGINT PRIMARY KEY,
    state TEXT NOT NULL,
    accepted_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    detail JSON NOT NULL
);
CREATE INDEX open_change ON change (id) WHERE state NOT IN ('cleaned', 'rolled_back');
CREATE TABLE journal (
    serial BIGINT PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    change BIGINT NOT NULL REFERENCES change (id),
    state TEXT NOT NULL,
    at BIGINT NOT NULL,
    detail JSON NOT NULL
);
CREATE INDEX journal_of_change ON journal (change, serial);
CREATE TRIGGER journal_change BEFORE UPDATE OR DELETE ON journal
    FOR EACH ROW EXECUTE FUNCTION refuse('journal is append-only');
CREATE TRIGGER journal_truncate BEFORE TRUNCATE ON journal
    FOR EACH STATEMENT EXECUTE FUNCTION refuse('journal is append-only');

CREATE TABLE audit (
    serial BIGINT PRIMARY KEY,
    body JSON NOT NULL,
    hash TEXT NOT NULL
);
CREATE TRIGGER audit_change BEFORE UPDATE OR DELETE ON audit
    FOR EACH ROW EXECUTE FUNCTION refuse('audit is append-only');
CREATE TRIGGER audit_truncate BEFORE TRUNCATE ON audit
    FOR EACH STATEMENT EXECUTE FUNCTION refuse('audit is append-only');
CREATE TABLE audit_head (
    serial BIGINT PRIMARY KEY,
    hash TEXT NOT NULL,
    at BIGINT NOT NULL,
    public_key TEXT NOT NULL,
    signature TEXT NOT NULL
);

CREATE TABLE idempotency (
    scope TEXT NOT NULL,
    key TEXT NOT NULL,
    request_hash TEXT NOT NULL,
    body JSON NOT NULL,
    at BIGINT NOT NULL,
    PRIMARY KEY (scope, key)
);
CREATE INDEX idempotency_age ON idempotency (at);

CREATE TABLE setting (
    name TEXT PRIMARY KEY,
    body JSON NOT NULL
);
CREATE TABLE credential (
    key TEXT PRIMARY KEY,
    value BYTEA NOT NULL
);
CREATE TABLE session (
    token_hash TEXT PRIMARY KEY,
    expires BIGINT NOT NULL,
    body JSON NOT NULL
);
CREATE INDEX session_end ON session (expires);

CREATE TABLE schema_version (version INTEGER NOT NULL);
INSERT INTO schema_version VALUES (0);
";

/// The time series that engines give to each other. Their contents do not get smaller by compression.
const SERIES: &str = "
CREATE TABLE series_interval (
    start BIGINT NOT NULL,
    engine TEXT NOT NULL,
    record BYTEA NOT NULL,
    PRIMARY KEY (start, engine)
);
ALTER TABLE series_interval ALTER COLUMN record SET STORAGE EXTERNAL;
CREATE TABLE series_file (
    name TEXT PRIMARY KEY,
    hash TEXT NOT NULL,
    size BIGINT NOT NULL
);
CREATE TABLE series_part (
    name TEXT NOT NULL REFERENCES series_file ON DELETE CASCADE,
    part INTEGER NOT NULL,
    bytes BYTEA NOT NULL,
    PRIMARY KEY (name, part)
);
ALTER TABLE series_part ALTER COLUMN bytes SET STORAGE EXTERNAL;
";

/// Brings the database to the newest schema. Engines that start at the same time wait for each other.
///
/// # Errors
/// [`StoreError::Newer`] if a newer program wrote it; [`StoreError`] if a migration fails, which then changes nothing.
pub(super) async fn migrate(client: &mut Client) -> Result<(), StoreError> {
    let known = u32::try_from(MIGRATIONS.len()).unwrap_or(u32::MAX);
    let sql = client.transaction().await.map_err(Failure::from)?;
    let lock = "SELECT pg_advisory_xact_lock($1)";
    sql.execute(lock, &[&MIGRATION_LOCK])
        .await
        .map_err(Failure::from)?;
    let exists = "SELECT to_regclass('schema_version') IS NOT NULL";
    let exists: bool = sql.query_one(exists, &[]).await.map_err(Failure::from)?.get(0);
    let mut found = 0;
    if exists {
        let version = sql.query_one("SELECT version FROM schema_version", &[]).await;
        let version: i32 = version.map_err(Failure::from)?.get(0);
        found = u32::try_from(version).unwrap_or(u32::MAX);
    }
    if found > known {
        return Err(StoreError::Newer { found, known });
    }
    let done = usize::try_from(found).unwrap_or(usize::MAX);
    for migration in MIGRATIONS.iter().skip(done) {
        sql.batch_execute(migration).await.map_err(Failure::from)?;
    }
    if found < known {
        let known = i32::try_from(known).unwrap_or(i32::MAX);
        let note = sql
            .execute("UPDATE schema_version SET version = $1", &[&known])
            .await;
        note.map_err(Failure::from)?;
    }
    sql.commit().await.map_err(Failure::from)?;
    Ok(())
}
