//! The keys in etcd.
//!
//! | key | holds | written by |
//! | --- | --- | --- |
//! | `nodes/N/config` | [`Document`](crate::Document) | masters |
//! | `nodes/N/ack` | [`Ack`](crate::Ack) | the node |
//! | `nodes/N/status` | [`Status`](crate::Status), under the node's lease | the node |
//! | `rollouts/ID` | [`Rollout`](crate::Rollout) | people, then masters |
//! | `documents/ID/next/N`, `documents/ID/before/N` | the documents of a roll-out, and those that it replaced | people, masters |
//! | `leader` | the name of the master, under its lease | masters |

use std::fmt;

use millrace_etcd::Keys;

/// The keys below a prefix that ends with `/`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Keyspace {
    prefix: String,
}

/// A text that is no name of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NameError(String);

impl fmt::Display for NameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown: String = self.0.escape_debug().take(64).collect();
        write!(
            f,
            "`{shown}` is not a name of a node: expected 1 to 64 letters, digits, dots, hyphens and underscores"
        )
    }
}

impl std::error::Error for NameError {}

/// Checks the name of a node or a roll-out.
///
/// # Errors
/// [`NameError`].
pub fn check_name(name: &str) -> Result<(), NameError> {
    let is_inner = |c: char| c.is_ascii_alphanumeric() || ".-_".contains(c);
    match (1..=64).contains(&name.len()) && name.chars().all(is_inner) {
        true => Ok(()),
        false => Err(NameError(name.to_owned())),
    }
}

impl Keyspace {
    /// Returns the keys below `prefix`.
    pub fn new(prefix: &str) -> Keyspace {
        Keyspace {
            prefix: prefix.to_owned(),
        }
    }

    fn of(&self, rest: fmt::Arguments<'_>) -> String {
        format!("{}{rest}", self.prefix)
    }

    /// Returns the key of a node's document.
    pub fn config(&self, node: &str) -> String {
        self.of(format_args!("nodes/{node}/config"))
    }

    /// Returns the key of a node's answer.
    pub fn ack(&self, node: &str) -> String {
        self.of(format_args!("nodes/{node}/ack"))
    }

    /// Returns the key of a node's status.
    pub fn status(&self, node: &str) -> String {
        self.of(format_args!("nodes/{node}/status"))
    }

    /// Returns all keys of all nodes.
    pub fn nodes(&self) -> Keys {
        Keys::Prefix(self.of(format_args!("nodes/")))
    }

    /// Returns the node of a key of [`Keyspace::nodes`].
    pub fn node_of<'a>(&self, key: &'a str) -> Option<&'a str> {
        let rest = key.strip_prefix(&self.prefix)?.strip_prefix("nodes/")?;
        rest.split_once('/').map(|(node, _)| node)
    }

    /// Returns the key of a roll-out.
    pub fn rollout(&self, id: &str) -> String {
        self.of(format_args!("rollouts/{id}"))
    }

    /// Returns the keys of all roll-outs.
    pub fn rollouts(&self) -> Keys {
        Keys::Prefix(self.of(format_args!("rollouts/")))
    }

    /// Returns the key of the document that a roll-out brings to a node.
    pub fn next(&self, id: &str, node: &str) -> String {
        self.of(format_args!("documents/{id}/next/{node}"))
    }

    /// Returns the key of the document that a roll-out replaced.
    pub fn before(&self, id: &str, node: &str) -> String {
        self.of(format_args!("documents/{id}/before/{node}"))
    }

    /// Returns the documents that a roll-out brings.
    pub fn all_next(&self, id: &str) -> Keys {
        Keys::Prefix(self.of(format_args!("documents/{id}/next/")))
    }

    /// Returns all documents of a roll-out.
    pub fn documents(&self, id: &str) -> Keys {
        Keys::Prefix(self.of(format_args!("documents/{id}/")))
    }

    /// Returns the key of the leader.
    pub fn leader(&self) -> String {
        self.of(format_args!("leader"))
    }

    /// Returns everything.
    pub fn all(&self) -> Keys {
        Keys::Prefix(self.prefix.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_no_slash_and_the_node_of_a_key_is_found() {
        for good in ["sw1", "rack-3.example.org", "A_b"] {
            assert_eq!(check_name(good), Ok(()));
        }
        for bad in ["", "a/b", "a b", "ä", &"a".repeat(65)] {
            assert!(check_name(bad).is_err(), "{bad}");
        }
        let keys = Keyspace::new("/millrace/");
        assert_eq!(keys.node_of(&keys.ack("sw1")), Some("sw1"));
        assert_eq!(keys.node_of(&keys.rollout("sw1")), None);
        assert_eq!(keys.node_of("/other/nodes/sw1/ack"), None);
    }
}
