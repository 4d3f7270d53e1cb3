//! One difference between two configurations.

use std::fmt;

use serde::Serialize;
use serde_json::Value as Json;

use crate::schema::TakesEffect;
use crate::toml_writer::inline_json;

/// The kind of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum ChangeKind {
    /// A bridge, port, controller or listener was added.
    Added,
    /// A bridge, port, controller or listener was removed.
    Removed,
    /// A key has another value; unset values are absent.
    Changed,
}

/// One difference between two configurations.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Change {
    /// The path of the changed value, by names: `/bridge/br0/port/p1/mtu`.
    pub path: String,
    /// The kind of the change.
    pub kind: ChangeKind,
    /// The value before, without keys at their defaults.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub old: Option<Json>,
    /// The value after, without keys at their defaults.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub new: Option<Json>,
    /// True if the change takes effect at the next start of the daemon.
    pub restart: bool,
}

impl Change {
    pub(crate) fn new(
        path: &str,
        kind: ChangeKind,
        old: Option<Json>,
        new: Option<Json>,
        applies: TakesEffect,
    ) -> Change {
        Change {
            path: path.to_owned(),
            kind,
            old,
            new,
            restart: applies == TakesEffect::Restart,
        }
    }

    /// Returns the path in words: `bridge br0 port p1 mtu`.
    pub fn subject(&self) -> String {
        self.path
            .trim_start_matches('/')
            .replace('/', " ")
            .replace("~1", "/")
            .replace("~0", "~")
    }
}

impl fmt::Display for Change {
    /// Writes one line: `~ bridge br0 port p1 mtu: 1500 -> 9000`, `+ bridge br0 port p2 { … }`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.subject();
        let text = |value: &Option<Json>| value.as_ref().map_or_else(|| "(unset)".to_owned(), inline_json);
        match self.kind {
            ChangeKind::Added => write!(f, "+ {path} {}", text(&self.new))?,
            ChangeKind::Removed => write!(f, "- {path} {}", text(&self.old))?,
            ChangeKind::Changed => write!(f, "~ {path}: {} -> {}", text(&self.old), text(&self.new))?,
        }
        if self.restart {
            f.write_str(" (at the next start)")
        } else {
            Ok(())
        }
    }
}
