//! Writes values as TOML.

use serde_json::Value as Json;

use crate::node::{Node, Table, Value};

/// Returns a value on one line of TOML.
pub(crate) fn inline(node: &Node) -> String {
    match &node.value {
        Value::Null => String::new(),
        Value::Bool(value) => value.to_string(),
        Value::Integer(value) => value.to_string(),
        Value::Text(text) | Value::Alien(_, text) => toml::Value::String(text.clone()).to_string(),
        Value::List(items) => format!("[{}]", items.iter().map(inline).collect::<Vec<_>>().join(", ")),
        Value::Table(table) if table.entries.is_empty() => "{}".to_owned(),
        Value::Table(table) => {
            let pairs: Vec<String> = table
                .entries
                .iter()
                .map(|e| format!("{} = {}", e.key, inline(&e.node)))
                .collect();
            format!("{{ {} }}", pairs.join(", "))
        }
    }
}

/// Returns a JSON value on one line of TOML.
pub(crate) fn inline_json(json: &Json) -> String {
    inline(&Node::from_json(json))
}

/// Returns a complete TOML document.
pub(crate) fn document(root: &Node) -> String {
    let mut out = String::new();
    if let Value::Table(table) = &root.value {
        write_table(table, "", &mut out);
    }
    out
}

/// Writes simple values first, then tables under their headers, the order that TOML requires.
fn write_table(table: &Table, path: &str, out: &mut String) {
    let join = |key: &str| {
        if path.is_empty() {
            key.to_owned()
        } else {
            format!("{path}.{key}")
        }
    };
    for entry in table.entries.iter().filter(|entry| !has_header(&entry.node)) {
        out.push_str(&format!("{} = {}\n", entry.key, inline(&entry.node)));
    }
    for entry in table.entries.iter().filter(|entry| has_header(&entry.node)) {
        let path = join(&entry.key);
        let mut header = |left: &str, right: &str, table: &Table| {
            if !out.is_empty() {
                out.push('\n');
            }
            out.push_str(&format!("{left}{path}{right}\n"));
            write_table(table, &path, out);
        };
        match &entry.node.value {
            Value::Table(table) => header("[", "]", table),
            Value::List(items) => {
                for item in items {
                    if let Value::Table(table) = &item.value {
                        header("[[", "]]", table);
                    }
                }
            }
            _ => {}
        }
    }
}

fn has_header(node: &Node) -> bool {
    match &node.value {
        Value::Table(table) => !table.inline,
        Value::List(items) => {
            !items.is_empty()
                && items
                    .iter()
                    .all(|item| matches!(&item.value, Value::Table(table) if !table.inline))
        }
        _ => false,
    }
}
