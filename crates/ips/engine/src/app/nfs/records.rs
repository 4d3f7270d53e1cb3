//! Records of calls and of files, and the numbers that rules ask for.

use millrace_ips_rules::options::number::NumberField;

use super::procedures;
use crate::app::record::{Fields, Record, Value};
use crate::app::transaction::{Transaction, Transactions};
use crate::flow::Direction;

/// Returns the record of a call, or of a file.
pub(super) fn record(
    (version, procedure): (u64, &str),
    names: &[&[u8]],
    handle: Option<&str>,
    is_file: bool,
    rpc: &Fields,
) -> Fields {
    let mut out = Fields::default();
    out.number("version", version)
        .text("procedure", procedure.as_bytes())
        .text("filename", names.first().copied().unwrap_or_default());
    if let [from, to] = names {
        out.object("rename", |out| {
            out.text("from", from).text("to", to);
        });
    }
    if let Some(handle) = handle {
        out.text("hhash", handle.as_bytes());
    }
    out.flag("file_tx", is_file);
    out.list.push(("rpc", Value::Object(rpc.clone())));
    out
}

/// Adds version and procedure, by its number and by its name, to a transaction, unless it has them.
pub(super) fn numbers(transaction: &mut Transaction, (version, procedure): (u64, u64), direction: Direction) {
    transaction.number_once(NumberField::NfsVersion, direction, version);
    transaction.number_once(NumberField::NfsProcedure, direction, procedure);
    if let Some(named) = procedures::named(version, procedure) {
        transaction.number_once(NumberField::NfsProcedure, direction, named);
    }
}

/// Returns the record of RPC in that of a transaction.
pub(super) fn rpc_of(transaction: Option<u64>, out: &mut Transactions) -> Fields {
    match transaction
        .and_then(|id| out.by_id(id))
        .map(|found| &mut found.record)
    {
        Some(Record::Fields(fields)) => match fields.value("rpc") {
            Some(Value::Object(rpc)) => rpc.clone(),
            _ => Fields::default(),
        },
        _ => Fields::default(),
    }
}
