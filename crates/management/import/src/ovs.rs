//! Open vSwitch: its database, or the commands that people have in scripts.

mod columns;
mod commands;
mod database;
mod log;
mod rows;
mod schema;
mod script;
mod unsaid;
mod value;
mod vsctl;
mod words;

use millrace_model::Config;
use millrace_ovs::{Context, Numbers, Severity, settle, translate};

use crate::finding::{Findings, Weight};
use crate::{ImportError, Imported};
use database::Database;
use log::STANDALONE;

/// The first bytes of a database of a cluster (ovsdb(5)).
const CLUSTERED: &[u8] = b"OVSDB CLUSTER ";

/// Reads a file of Open vSwitch: a standalone database, or a script of `ovs-vsctl` commands. `name` is the name of the file
/// for findings.
///
/// # Errors
/// The file is neither, or a damaged database, or one of another schema or of a cluster.
pub fn read(name: &str, bytes: &[u8]) -> Result<Imported, ImportError> {
    if bytes.starts_with(CLUSTERED) {
        return Err(ImportError::new(
            name,
            "a database of a cluster holds a log of elections and not only rows: expected a standalone one; to make it: \
             ovsdb-tool cluster-to-standalone conf.db THIS-FILE",
        ));
    }
    if bytes.starts_with(b"OVSDB ") {
        if !bytes.starts_with(STANDALONE) {
            return Err(ImportError::new(
                name,
                "a database of a format that is not known here: expected `OVSDB JSON` (ovsdb(5))",
            ));
        }
        let (database, findings) = log::read(name, bytes)?;
        return Ok(imported(name, &database, findings));
    }
    let text = std::str::from_utf8(bytes).map_err(|_| {
        ImportError::new(
            name,
            "expected a conf.db, or a script of ovs-vsctl commands as UTF-8",
        )
    })?;
    let (database, findings) = script::run(name, text);
    if database.is_empty() && findings.0.is_empty() {
        return Err(ImportError::new(
            name,
            "no ovs-vsctl command and no database: expected a conf.db, or a script with lines such as `ovs-vsctl add-br br0`",
        ));
    }
    Ok(imported(name, &database, findings))
}

/// Translates the rows, and adds what the translation finds.
fn imported(name: &str, database: &Database, mut findings: Findings) -> Imported {
    let mut numbers = Numbers::default();
    let mut context = Context {
        run_dir: None,
        numbers: &mut numbers,
    };
    let mut translation = translate(&database.replica, &mut context);
    let settled = settle(&Config::new(), &mut translation, |_| {
        "the name is taken".to_owned()
    });
    let config = settled.unwrap_or_else(|errors| {
        findings.difference(name, format!("nothing of it is a valid configuration: {errors}"));
        Config::new()
    });
    for fault in &translation.faults {
        let weight = match fault.severity {
            Severity::Ignored => Weight::Note,
            Severity::Refused => Weight::Difference,
        };
        findings.add(weight, database.place(name, fault.row.uuid), fault.to_string());
    }
    unsaid::add(name, database, &mut findings);
    Imported {
        config,
        findings: findings.0,
    }
}
