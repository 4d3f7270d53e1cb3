//! Edits of a document with the operations of RFC 6241, section 7.2.
//!
//! An edit is a tree like the data. It comes from the XML of `edit-config`, or from the paths and values of gNMI. It applies to
//! a trimmed document, in which a value that equals its default does not exist (RFC 6243, section 2.2.2).

mod apply;
mod read;

use serde_json::Value as Json;

pub use apply::{Editor, keys_of};
pub use read::{from_json, from_xml};

/// The XML namespace of `operation` (RFC 6241, section 7.2).
pub const NETCONF: &str = "urn:ietf:params:xml:ns:netconf:base:1.0";
/// The XML namespace of `insert`, `key` and `value` (RFC 7950, section 7.8.6).
pub const YANG: &str = "urn:ietf:params:xml:ns:yang:1";

/// The operation of an edit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Operation {
    /// Set what is given.
    #[default]
    Merge,
    /// Set what is given, and remove the rest of the node.
    Replace,
    /// As merge; the node must not exist.
    Create,
    /// Remove the node, which must exist.
    Delete,
    /// Remove the node if it exists.
    Remove,
    /// Only lead to nodes with an operation of their own, as a default operation.
    None,
}

impl Operation {
    /// Returns the operation with this word; `none` is no operation of an element.
    pub fn from_word(word: &str) -> Option<Operation> {
        match word {
            "merge" => Some(Operation::Merge),
            "replace" => Some(Operation::Replace),
            "create" => Some(Operation::Create),
            "delete" => Some(Operation::Delete),
            "remove" => Some(Operation::Remove),
            _ => None,
        }
    }
}

/// The place of an entry among the others (RFC 7950, section 7.8.6).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Insert {
    /// Before all others.
    First,
    /// After all others.
    Last,
    /// Before the entry with this key or value.
    Before(String),
    /// After the entry with this key or value.
    After(String),
}

/// An edit of one node.
#[derive(Debug, Clone, PartialEq)]
pub struct Edit {
    /// The name of the node.
    pub name: String,
    /// The operation; `None` for that of the edit around this one.
    pub operation: Option<Operation>,
    /// The place of an entry.
    pub insert: Option<Insert>,
    pub content: Content,
}

impl Edit {
    fn removes(&self) -> bool {
        matches!(self.operation, Some(Operation::Delete | Operation::Remove))
    }
}

/// The content of an edit.
#[derive(Debug, Clone, PartialEq)]
pub enum Content {
    /// The text of a leaf, or of one entry of a leaf-list.
    Text(String),
    /// The value of a leaf, or all of a leaf-list.
    Value(Json),
    /// The nodes inside.
    Nodes(Vec<Edit>),
}

/// The reason why an edit cannot be applied.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// The node exists already.
    #[error("exists already: expected operation merge or replace, or another key")]
    DataExists,
    /// The node does not exist.
    #[error("does not exist")]
    DataMissing,
    /// The schema has no such node.
    #[error("`{0}` is no node here: expected one of {1}")]
    UnknownElement(String, String),
    /// The element belongs to a namespace without data.
    #[error("the namespace `{0}` has no nodes here: expected `{ns}`, or that of a standard view (docs/netconf.md)", ns = crate::NAMESPACE)]
    UnknownNamespace(String),
    /// An entry of a list lacks a key.
    #[error("the key `{0}` is missing: expected it in each entry")]
    MissingKey(String),
    /// A value is not one of its type.
    #[error("{0}")]
    InvalidValue(String),
    /// An attribute has no valid value.
    #[error("the attribute `{0}`: expected {1}")]
    BadAttribute(String, &'static str),
    /// The content of an element is not that of its node.
    #[error("{0}")]
    BadElement(&'static str),
    /// The node is state.
    #[error("is state of the switch, which cannot be set")]
    State,
}

/// An error at a node.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {problem}")]
pub struct EditError {
    /// The instance: `/bridge[name='br0']/mtu`.
    pub path: String,
    pub problem: Problem,
}
