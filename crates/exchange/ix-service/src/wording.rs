//! Orders as JSON: the parts of an order that the journal, the audit chain and retried requests keep.

use std::sync::Arc;

use millrace_ix_model::{Actor, Exchange, Operation};
use millrace_ix_store::{AuditEntry, Revision};
use serde_json::{Value, json};

use crate::order::Ordered;

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

/// Returns the answer to an earlier request, with the present exchange.
pub(crate) fn repeated(body: &Value, exchange: &Arc<Exchange>) -> Ordered {
    let read = |name: &str| body[name].clone();
    Ordered {
        change: body["change"].as_u64(),
        revision: Revision(body["revision"].as_u64().unwrap_or(0)),
        applied: serde_json::from_value(read("applied")).unwrap_or_default(),
        deletions: serde_json::from_value(read("deletions")).unwrap_or_default(),
        problems: Vec::new(),
        entries: serde_json::from_value(read("entries")).unwrap_or_default(),
        effects: Vec::new(),
        preview: None,
        repeated: true,
        after: Arc::clone(exchange),
    }
}
