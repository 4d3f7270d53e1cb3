//! The database of an exchange: transactions, constraints and the audit chain over both back ends; kill -9 and a full disk of a file;
//! several engines on a PostgreSQL server.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod audit_chain;
mod constraints;
mod engines;
mod kill;
mod transactions;

use millrace_ix_store::{
    AuditEntry, ObjectRow, Postgres, PostgresSettings, Revision, Sqlite, Store, Transaction, UnixMillis,
};
use millrace_testing::postgres_database;
use serde_json::Value;

const NOW: UnixMillis = UnixMillis(1_700_000_000_000);

/// Returns an empty database of each back end that is installed.
fn stores() -> Vec<Box<dyn Store>> {
    let file: Box<dyn Store> = Box::new(Sqlite::in_memory().unwrap());
    let server =
        postgres_database().map(|connection| Box::new(engine(&connection, "ix-1")) as Box<dyn Store>);
    [file].into_iter().chain(server).collect()
}

/// Opens a database on a server, as the engine with this name.
fn engine(connection: &str, name: &str) -> Postgres {
    let settings = PostgresSettings {
        connection: connection.to_owned(),
        password: None,
        ca_certificate: None,
        name: name.to_owned(),
        address: format!("https://{name}.example"),
    };
    let mut store = Postgres::open(settings).unwrap();
    if store.standing().epoch().is_some() {
        store.load().unwrap();
    }
    store
}

fn object(kind: &str, id: u32, body: Value) -> ObjectRow {
    ObjectRow {
        kind: kind.to_owned(),
        id,
        revision: Revision(0),
        body,
    }
}

fn entry(action: &str, detail: Value) -> AuditEntry {
    AuditEntry {
        actor: "us-1".to_owned(),
        action: action.to_owned(),
        object: "sv-1".to_owned(),
        detail,
    }
}

fn puts(rows: Vec<ObjectRow>) -> Transaction {
    Transaction {
        puts: rows,
        ..Transaction::default()
    }
}
