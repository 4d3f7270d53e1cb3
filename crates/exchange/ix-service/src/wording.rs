//! Orders as JSON: the identifiers of objects that the same order creates, and the parts of an order that the
//! journal, the audit chain and retried requests keep.

use millrace_ix_model::{Actor, ObjectId, Operation, Refusal};
use millrace_ix_store::{AuditEntry, Revision};
use serde_json::{Value, json};

use crate::error::OrderError;
use crate::order::Ordered;

/// Replaces identifiers with the number 0 by those of the newest objects that the order created.
pub(crate) fn resolve(operation: Operation, created: &[ObjectId]) -> Result<Operation, OrderError> {
    if created.is_empty() {
        return Ok(operation);
    }
    let invalid =
        |error: serde_json::Error| OrderError::Refused(Refusal::invalid("operation", error.to_string()));
    let mut value = serde_json::to_value(&operation).map_err(invalid)?;
    if substitute(&mut value, created) {
        return serde_json::from_value(value).map_err(invalid);
    }
    Ok(operation)
}

/// Replaces texts such as `sv-0`, and ports such as `sw-0:9`, in a value; returns true if there was one.
fn substitute(value: &mut Value, created: &[ObjectId]) -> bool {
    match value {
        Value::String(text) => {
            let (object, port) = match text.split_once(':') {
                Some((switch @ "sw-0", port)) => (switch, Some(port)),
                _ => (text.as_str(), None),
            };
            let Some(prefix) = object.strip_suffix("-0") else {
                return false;
            };
            let named = created.iter().rev().map(ToString::to_string);
            let found = named.into_iter().find(|id| id.split('-').next() == Some(prefix));
            let is_found = found.is_some();
            if let Some(id) = found {
                *text = port.map_or_else(|| id.clone(), |port| format!("{id}:{port}"));
            }
            is_found
        }
        Value::Array(items) => items
            .iter_mut()
            .map(|item| substitute(item, created))
            .max()
            .unwrap_or(false),
        Value::Object(members) => members
            .values_mut()
            .map(|item| substitute(item, created))
            .max()
            .unwrap_or(false),
        _ => false,
    }
}

/// Returns operations as JSON without secrets.
pub(crate) fn describe(operations: &[Operation]) -> Value {
    let mut value = serde_json::to_value(operations).unwrap_or(Value::Null);
    for operation in value.as_array_mut().into_iter().flatten() {
        if let Some(secret) = operation.get_mut("secret") {
            *secret = json!("(secret)");
        }
    }
    value
}

pub(crate) fn actor_name(actor: &Actor) -> String {
    match (actor.user, actor.account) {
        (Some(user), _) => user.to_string(),
        (None, Some(account)) => account.to_string(),
        (None, None) => "system".to_owned(),
    }
}

pub(crate) fn audit(actor: &str, operations: &Value, ordered: &Ordered) -> AuditEntry {
    let names: Vec<&str> = operations
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|operation| operation["operation"].as_str())
        .collect();
    let applied = &ordered.applied;
    let object = applied
        .created
        .first()
        .or(applied.changed.first())
        .or(applied.deleted.first());
    AuditEntry {
        actor: actor.to_owned(),
        action: names.join("+"),
        object: object.map(ToString::to_string).unwrap_or_default(),
        detail: json!({"operations": operations, "change": ordered.change, "applied": applied}),
    }
}

pub(crate) fn answer(ordered: &Ordered) -> Value {
    json!({
        "change": ordered.change,
        "revision": ordered.revision,
        "applied": ordered.applied,
        "deletions": ordered.deletions,
        "entries": ordered.entries,
    })
}

/// Returns the answer to an earlier request.
pub(crate) fn repeated(body: &Value) -> Ordered {
    let read = |name: &str| body[name].clone();
    Ordered {
        change: body["change"].as_u64(),
        revision: Revision(body["revision"].as_u64().unwrap_or(0)),
        applied: serde_json::from_value(read("applied")).unwrap_or_default(),
        deletions: serde_json::from_value(read("deletions")).unwrap_or_default(),
        problems: Vec::new(),
        entries: serde_json::from_value(read("entries")).unwrap_or_default(),
        repeated: true,
    }
}
