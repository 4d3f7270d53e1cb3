//! The database of an exchange on disk: transactions, constraints, the audit chain, kill -9, a full disk.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod audit_chain;
mod constraints;
mod kill;
mod transactions;

use millrace_ix_store::{AuditEntry, ObjectRow, Revision, Transaction, UnixMillis};
use serde_json::Value;

const NOW: UnixMillis = UnixMillis(1_700_000_000_000);

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
