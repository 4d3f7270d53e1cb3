//! Syntax tree between text and types. TOML and JSON are converted to a [`Node`] before decoding, so that one decoder
//! serves the file and the REST body, continues after an error, and knows the location of every key and value in the
//! file. Encoding (types to text) uses the same tree, because it keeps the key order of the schema and a JSON object
//! does not.
//!
//! ```text
//!  TOML ──┐                    ┌── TOML
//!         ├─▶ Node ─▶ types ─▶ Node
//!  JSON ──┘  decode    encode  └── JSON
//! ```

use std::ops::Range;

use serde::ser::{Serialize, SerializeMap as _, SerializeSeq as _, Serializer};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// A value and its byte range in the text (`0..0` without text).
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Node {
    pub(crate) value: Value,
    pub(crate) span: Range<usize>,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value {
    /// JSON null: the key keeps its default.
    Null,
    Bool(bool),
    Integer(i128),
    Text(String),
    List(Vec<Node>),
    Table(Table),
    /// A value of a type that no key takes (a float, a date): the type's name and the text.
    Alien(&'static str, String),
}

#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Table {
    pub(crate) entries: Vec<Entry>,
    /// True if TOML writes this table in braces instead of under a header.
    pub(crate) inline: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Entry {
    pub(crate) key: String,
    pub(crate) key_span: Range<usize>,
    pub(crate) node: Node,
}

impl Table {
    pub(crate) fn find(&self, key: &str) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.key == key)
    }

    pub(crate) fn push(&mut self, key: &str, node: Node) {
        self.entries.push(Entry {
            key: key.to_owned(),
            key_span: 0..0,
            node,
        });
    }
}

impl From<Value> for Node {
    fn from(value: Value) -> Node {
        Node { value, span: 0..0 }
    }
}

impl Node {
    /// Returns the description of the value in an error: the type and, if short, the value.
    pub(crate) fn describe(&self) -> String {
        match &self.value {
            Value::Null => "null".to_owned(),
            Value::Bool(value) => format!("the boolean {value}"),
            Value::Integer(value) => format!("the integer {value}"),
            Value::Text(text) => format!("the text \"{}\"", shorten(text)),
            Value::List(items) => format!("a list of {}", items.len()),
            Value::Table(_) => "a table".to_owned(),
            Value::Alien(kind, text) => format!("the {kind} {text}"),
        }
    }

    pub(crate) fn from_json(json: &serde_json::Value) -> Node {
        use serde_json::Value as Json;
        Node::from(match json {
            Json::Null => Value::Null,
            Json::Bool(value) => Value::Bool(*value),
            Json::Number(number) => match (number.as_u64(), number.as_i64()) {
                (Some(value), _) => Value::Integer(value.into()),
                (None, Some(value)) => Value::Integer(value.into()),
                (None, None) => Value::Alien("number", number.to_string()),
            },
            Json::String(text) => Value::Text(text.clone()),
            Json::Array(items) => Value::List(items.iter().map(Node::from_json).collect()),
            Json::Object(object) => {
                let mut table = Table::default();
                for (key, value) in object {
                    table.push(key, Node::from_json(value));
                }
                Value::Table(table)
            }
        })
    }

    pub(crate) fn to_json(&self) -> serde_json::Value {
        use serde_json::Value as Json;
        match &self.value {
            Value::Null => Json::Null,
            Value::Bool(value) => Json::Bool(*value),
            // Integers of the model fit in 64 bits; a larger one comes only from input.
            Value::Integer(value) => u64::try_from(*value)
                .map(Json::from)
                .or_else(|_| i64::try_from(*value).map(Json::from))
                .unwrap_or(Json::Null),
            Value::Text(text) | Value::Alien(_, text) => Json::String(text.clone()),
            Value::List(items) => items.iter().map(Node::to_json).collect(),
            Value::Table(table) => Json::Object(
                table
                    .entries
                    .iter()
                    .map(|e| (e.key.clone(), e.node.to_json()))
                    .collect(),
            ),
        }
    }

    pub(crate) fn from_toml(document: &Spanned<DeTable<'_>>) -> Node {
        Node {
            value: Value::Table(table_from_toml(document.get_ref())),
            span: document.span(),
        }
    }
}

fn table_from_toml(table: &DeTable<'_>) -> Table {
    let mut entries: Vec<Entry> = table
        .iter()
        .map(|(key, value)| Entry {
            key: key.get_ref().to_string(),
            key_span: key.span(),
            node: value_from_toml(value),
        })
        .collect();
    // Errors are reported in the order of the file.
    entries.sort_by_key(|entry| entry.key_span.start);
    Table {
        entries,
        inline: false,
    }
}

fn value_from_toml(value: &Spanned<DeValue<'_>>) -> Node {
    let kind = match value.get_ref() {
        DeValue::String(text) => Value::Text(text.to_string()),
        DeValue::Boolean(value) => Value::Bool(*value),
        DeValue::Integer(integer) => match i128::from_str_radix(integer.as_str(), integer.radix()) {
            Ok(value) => Value::Integer(value),
            Err(_) => Value::Alien("integer", integer.as_str().to_owned()),
        },
        DeValue::Float(float) => Value::Alien("number", float.as_str().to_owned()),
        DeValue::Datetime(date) => Value::Alien("date", date.to_string()),
        DeValue::Array(items) => Value::List(items.iter().map(value_from_toml).collect()),
        DeValue::Table(table) => Value::Table(table_from_toml(table)),
    };
    Node {
        value: kind,
        span: value.span(),
    }
}

/// Returns the first 60 characters, so that an error stays on one line whatever the input.
pub(crate) fn shorten(text: &str) -> String {
    let mut short: String = text.chars().take(60).flat_map(char::escape_debug).collect();
    if text.chars().nth(60).is_some() {
        short.push('…');
    }
    short
}

impl Serialize for Node {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.value {
            Value::Null => serializer.serialize_none(),
            Value::Bool(value) => serializer.serialize_bool(*value),
            Value::Integer(value) => match (u64::try_from(*value), i64::try_from(*value)) {
                (Ok(value), _) => serializer.serialize_u64(value),
                (_, Ok(value)) => serializer.serialize_i64(value),
                _ => serializer.serialize_i128(*value),
            },
            Value::Text(text) | Value::Alien(_, text) => serializer.serialize_str(text),
            Value::List(items) => {
                let mut list = serializer.serialize_seq(Some(items.len()))?;
                for item in items {
                    list.serialize_element(item)?;
                }
                list.end()
            }
            Value::Table(table) => {
                let mut map = serializer.serialize_map(Some(table.entries.len()))?;
                for entry in &table.entries {
                    map.serialize_entry(&entry.key, &entry.node)?;
                }
                map.end()
            }
        }
    }
}
