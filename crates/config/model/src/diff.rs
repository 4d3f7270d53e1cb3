//! What differs between two configurations, by the names of bridges and ports and not by their places
//! in a list, so that a reordered file is no change and a removed port is one.

use std::fmt;

use serde::Serialize;
use serde_json::Value as Json;

use crate::config::Config;
use crate::decode::Field as _;
use crate::schema::Applies;
use crate::text::inline_json;

/// What happened to a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum ChangeKind {
    /// A bridge, port, controller or listener is new.
    Added,
    /// It is gone.
    Removed,
    /// A key has another value; unset values are absent.
    Changed,
}

/// One difference between two configurations.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Change {
    /// What changed, by names: `/bridge/br0/port/p1/mtu`.
    pub path: String,
    /// How.
    pub kind: ChangeKind,
    /// The value before, without the keys that were at their defaults.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub old: Option<Json>,
    /// The value after, without the keys that are at their defaults.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub new: Option<Json>,
    /// Whether the change waits for the next start of the daemon.
    pub restart: bool,
}

impl Change {
    pub(crate) fn new(
        path: &str,
        kind: ChangeKind,
        old: Option<Json>,
        new: Option<Json>,
        applies: Applies,
    ) -> Change {
        Change {
            path: path.to_owned(),
            kind,
            old,
            new,
            restart: applies == Applies::Restart,
        }
    }

    /// What changed, in words: `bridge br0 port p1 mtu`.
    pub fn subject(&self) -> String {
        self.path
            .trim_start_matches('/')
            .replace('/', " ")
            .replace("~1", "/")
            .replace("~0", "~")
    }
}

impl fmt::Display for Change {
    /// One line: `~ bridge br0 port p1 mtu: 1500 -> 9000`, `+ bridge br0 port p2 { … }`.
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

/// What changed from `old` to `new`, in the order of the schema; empty if they mean the same.
pub fn diff(old: &Config, new: &Config) -> Vec<Change> {
    let mut changes = Vec::new();
    new.diff(old, "", Applies::Live, &mut changes);
    changes
}
