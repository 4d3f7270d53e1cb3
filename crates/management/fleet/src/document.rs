//! Values that etcd holds of a node: the desired document, the node's answer, and its status.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

/// The version of these formats. A reader refuses a document of a newer one.
pub const SCHEMA: u32 = 1;
/// The size limit of a document, in bytes.
pub const DOCUMENT_SIZE_MAX: usize = 1 << 20;
/// The size limit of a status, in bytes.
pub const STATUS_SIZE_MAX: usize = 4 << 10;
/// The longest text of an error, in characters.
const DETAIL_LEN_MAX: usize = 1000;
/// The longest text of a status, in characters.
const TEXT_LEN_MAX: usize = 200;
/// The most errors of an answer.
const FAULTS_MAX: usize = 20;
/// The time for a node's own confirmation unless the document gives one, in seconds.
const CONFIRM_S: u64 = 60;
/// The longest time for a confirmation, in seconds.
const CONFIRM_MAX_S: u64 = 86_400;

/// The desired configuration of a node: `nodes/N/config`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Document {
    /// The version of the format.
    pub schema: u32,
    /// The `create_revision` of the leader key under which a master wrote it.
    pub epoch: u64,
    /// The roll-out that it is a part of, `ID` or `ID/back`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
    /// The seconds in which the node confirms itself, 1 to 86400; otherwise the switch takes the change back.
    #[serde(default = "confirm_within")]
    pub confirm_within: u64,
    /// After a restored backup, by the decision of a person: the `mod_revision` of the node that this document supersedes although
    /// its own is lower.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub supersedes: Option<u64>,
    /// The author of the change.
    #[serde(default)]
    pub author: String,
    /// The reason for the change.
    #[serde(default)]
    pub comment: String,
    /// The objects of the configuration that belong to etcd.
    pub config: Map<String, Json>,
}

fn confirm_within() -> u64 {
    CONFIRM_S
}

/// The reason why bytes are no document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DocumentError {
    /// More bytes than [`DOCUMENT_SIZE_MAX`].
    TooLarge(usize),
    /// Not the JSON that is expected.
    Unreadable(String),
    /// A format of a newer version.
    Newer(u32),
}

impl std::fmt::Display for DocumentError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            DocumentError::TooLarge(size) => {
                write!(
                    f,
                    "the document has {size} bytes: expected at most {DOCUMENT_SIZE_MAX}"
                )
            }
            DocumentError::Unreadable(reason) => write!(f, "the document is unreadable: {reason}"),
            DocumentError::Newer(schema) => write!(
                f,
                "the document has schema {schema}: this node knows {SCHEMA}; upgrade millrace-mgmt first"
            ),
        }
    }
}

impl Document {
    /// Returns the document in these bytes.
    ///
    /// # Errors
    /// [`DocumentError`].
    pub fn parse(bytes: &[u8]) -> Result<Document, DocumentError> {
        #[derive(Deserialize)]
        struct Versioned {
            schema: u32,
        }
        if bytes.len() > DOCUMENT_SIZE_MAX {
            return Err(DocumentError::TooLarge(bytes.len()));
        }
        let unreadable = |error: serde_json::Error| DocumentError::Unreadable(error.to_string());
        // The version first: a newer format may have keys that this one does not know.
        let versioned: Versioned = serde_json::from_slice(bytes).map_err(unreadable)?;
        if versioned.schema > SCHEMA {
            return Err(DocumentError::Newer(versioned.schema));
        }
        let document: Document = serde_json::from_slice(bytes).map_err(unreadable)?;
        match (1..=CONFIRM_MAX_S).contains(&document.confirm_within) {
            true => Ok(document),
            false => Err(DocumentError::Unreadable(format!(
                "confirm_within {}: expected 1 to {CONFIRM_MAX_S} seconds",
                document.confirm_within
            ))),
        }
    }
}

/// One error of a document.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    /// The place in the configuration as a JSON pointer; empty for the document as a whole.
    pub pointer: String,
    /// The error.
    pub detail: String,
}

impl Fault {
    /// Returns an error of the whole document.
    pub fn whole(detail: impl std::fmt::Display) -> Fault {
        Fault {
            pointer: String::new(),
            detail: detail.to_string().chars().take(DETAIL_LEN_MAX).collect(),
        }
    }

    /// Returns an error at a place.
    pub fn at(pointer: impl Into<String>, detail: impl std::fmt::Display) -> Fault {
        Fault {
            pointer: pointer.into(),
            ..Fault::whole(detail)
        }
    }
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.pointer.is_empty() {
            true => f.write_str(&self.detail),
            false => write!(f, "{}: {}", self.pointer, self.detail),
        }
    }
}

/// The outcome of a document on a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The switch does not take a change now: it is locked, waits for somebody's confirmation, or does not answer.
    Waiting,
    /// The switch runs it, and the node has not confirmed it.
    Trying,
    /// The switch runs it.
    Applied,
    /// The node did not try it, or the switch refused it. What ran before runs.
    Refused,
    /// The switch ran it and took it back, because the node could not confirm it in time.
    Returned,
}

impl Outcome {
    /// Returns the word.
    pub const fn name(self) -> &'static str {
        match self {
            Outcome::Waiting => "waiting",
            Outcome::Trying => "trying",
            Outcome::Applied => "applied",
            Outcome::Refused => "refused",
            Outcome::Returned => "returned",
        }
    }
}

/// The answer of a node to a document: `nodes/N/ack`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ack {
    /// The version of the format.
    pub schema: u32,
    /// The cluster in which the node read the document.
    pub cluster: String,
    /// The `mod_revision` of the document.
    pub mod_revision: u64,
    /// The newest `mod_revision` and epoch that the node has taken. A document must not be older.
    pub seen: u64,
    #[serde(default)]
    pub seen_epoch: u64,
    /// The tag of the document.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
    /// The revision of the switch that the document became.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<u64>,
    pub outcome: Outcome,
    /// The reasons of `refused`, `returned` and `waiting`.
    #[serde(default)]
    pub errors: Vec<Fault>,
}

impl Ack {
    /// Returns the errors in one line.
    pub fn reason(&self) -> String {
        let texts: Vec<String> = self.errors.iter().map(ToString::to_string).collect();
        texts.join("; ")
    }

    /// Returns the bytes, with at most [`FAULTS_MAX`] errors.
    pub fn bytes(&self) -> Vec<u8> {
        let mut ack = self.clone();
        ack.errors.truncate(FAULTS_MAX);
        to_bytes(&ack)
    }
}

/// The state of a node, which goes with its lease: `nodes/N/status`. It is information: no node acts on that of another.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Status {
    /// The newest version of the formats that the node knows.
    pub schema: u32,
    /// The version of the switch.
    #[serde(default)]
    pub version: String,
    /// True if every part of the configuration runs.
    pub healthy: bool,
    /// The newest revision of the switch.
    #[serde(default)]
    pub revision: u64,
    /// True if people took the objects of etcd over (`millrace fleet detach`).
    #[serde(default)]
    pub detached: bool,
    /// Ports without link that should have one: `br0/p1`.
    #[serde(default)]
    pub links_down: Vec<String>,
    /// Parts that do not run as configured.
    #[serde(default)]
    pub shortfalls: Vec<String>,
}

impl Status {
    /// Returns the bytes, at most [`STATUS_SIZE_MAX`]: the ends of long lists are left out, and the last item says how many.
    pub fn bytes(&self) -> Vec<u8> {
        let mut limit = self.links_down.len().max(self.shortfalls.len());
        loop {
            let mut status = self.clone();
            status.version = status.version.chars().take(TEXT_LEN_MAX).collect();
            for list in [&mut status.links_down, &mut status.shortfalls] {
                shorten(list, limit);
            }
            let bytes = to_bytes(&status);
            if bytes.len() <= STATUS_SIZE_MAX || limit == 0 {
                return bytes;
            }
            limit /= 2;
        }
    }
}

/// Leaves the first `limit` items, each with a bound, and an item that says how many are missing.
fn shorten(list: &mut Vec<String>, limit: usize) {
    let missing = list.len().saturating_sub(limit);
    list.truncate(limit);
    for text in &mut *list {
        *text = text.chars().take(TEXT_LEN_MAX).collect();
    }
    if missing > 0 {
        list.push(format!("and {missing} more"));
    }
}

/// Returns a value as JSON.
pub fn to_bytes(value: &impl Serialize) -> Vec<u8> {
    // The types of this crate have no map with keys that are no text, which alone can fail.
    serde_json::to_vec(value).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_of_a_newer_schema_is_named_so_although_it_has_unknown_keys() {
        let text = br#"{"schema": 2, "epoch": 1, "config": {}, "colour": "red"}"#;
        assert_eq!(Document::parse(text), Err(DocumentError::Newer(2)));
        let text = br#"{"schema": 1, "epoch": 1, "config": {}, "colour": "red"}"#;
        assert!(matches!(Document::parse(text), Err(DocumentError::Unreadable(_))));
    }

    #[test]
    fn a_document_has_bounds() {
        assert_eq!(
            Document::parse(&vec![b' '; DOCUMENT_SIZE_MAX + 1]),
            Err(DocumentError::TooLarge(DOCUMENT_SIZE_MAX + 1))
        );
        for bad in [
            "",
            "7",
            "{}",
            r#"{"schema":1,"epoch":-1,"config":{}}"#,
            r#"{"schema":1,"epoch":1,"config":[]}"#,
            r#"{"schema":1,"epoch":1,"config":{},"confirm_within":0}"#,
        ] {
            assert!(
                matches!(Document::parse(bad.as_bytes()), Err(DocumentError::Unreadable(_))),
                "{bad}"
            );
        }
        let least = Document::parse(br#"{"schema":1,"epoch":1,"config":{}}"#).unwrap();
        assert_eq!(least.confirm_within, 60);
        assert_eq!(Document::parse(&to_bytes(&least)), Ok(least));
    }

    #[test]
    fn a_status_of_a_thousand_dead_links_has_four_kibibytes_and_says_how_many_are_missing() {
        let status = Status {
            links_down: (0..1000).map(|number| format!("br0/port-{number:05}")).collect(),
            shortfalls: vec!["x".repeat(5000); 3],
            ..Status::default()
        };
        let bytes = status.bytes();
        assert!(bytes.len() <= STATUS_SIZE_MAX, "{}", bytes.len());
        let read: Status = serde_json::from_slice(&bytes).unwrap();
        let kept = read.links_down.len() - 1;
        assert_eq!(read.links_down.last(), Some(&format!("and {} more", 1000 - kept)));
    }
}
