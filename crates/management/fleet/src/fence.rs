//! Which documents a node takes: never one that is older than what it has taken.

use std::collections::BTreeSet;

use millrace_etcd::KeyValue;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

use crate::document::{Document, Fault, Outcome};

/// The document that a node has taken. It is on the medium before the switch sees the document, so that no restart forgets it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// The cluster in which the document was read.
    pub cluster: String,
    /// The `mod_revision` of the document.
    pub mod_revision: u64,
    /// The epoch of the document.
    pub epoch: u64,
    /// The tag of the document.
    pub tag: Option<String>,
    /// The outcome of the document on this node.
    pub outcome: Outcome,
    /// The revision of the switch.
    pub revision: Option<u64>,
    /// The reasons.
    pub errors: Vec<Fault>,
    /// Problems that the switch had before the switch got the document.
    pub problems: BTreeSet<String>,
}

/// The decision about a document.
#[derive(Debug, Clone, PartialEq)]
pub enum Verdict {
    /// There is no document, which means nothing: the node keeps what it has.
    Nothing,
    /// It is the one of the record.
    Known,
    /// It is not for this node, which keeps what it has.
    Refused {
        /// The tag of the document, if it is readable.
        tag: Option<String>,
        fault: Fault,
    },
    /// The switch is to run it.
    Try(Box<Document>),
}

/// Decides about the document that a node read in `cluster`.
pub fn judge(record: Option<&Record>, cluster: &str, found: Option<&KeyValue>) -> Verdict {
    let Some(found) = found else {
        return Verdict::Nothing;
    };
    if record.is_some_and(|record| record.cluster == cluster && record.mod_revision == found.mod_revision) {
        return Verdict::Known;
    }
    let document = match Document::parse(&found.value) {
        Ok(document) => document,
        Err(error) => {
            let fault = Fault::whole(error);
            return Verdict::Refused { tag: None, fault };
        }
    };
    let refused = |why: String| Verdict::Refused {
        tag: document.tag.clone(),
        fault: Fault::whole(why),
    };
    match record {
        Some(record) if document.supersedes == Some(record.mod_revision) => Verdict::Try(Box::new(document)),
        Some(record) if record.cluster != cluster => refused(format!(
            "this is another cluster ({cluster}) than before ({}): if it was restored or replaced on purpose, `millrace fleet \
             adopt` makes its documents count",
            record.cluster
        )),
        Some(record) if found.mod_revision < record.mod_revision => refused(format!(
            "document {} is older than {}, which this node has seen: if the store was restored from a backup, `millrace fleet \
             adopt` makes its documents count",
            found.mod_revision, record.mod_revision
        )),
        Some(record) if document.epoch < record.epoch => refused(format!(
            "the document is of epoch {}, and this node has seen epoch {}: a master that lost its lease wrote it",
            document.epoch, record.epoch
        )),
        _ => Verdict::Try(Box::new(document)),
    }
}

/// Returns the objects of a document that others than etcd own. `owners` are pairs of an object (`bridge/br0`, `system`) and its
/// owner.
pub fn foreign<'a>(
    config: &Map<String, Json>,
    owners: impl IntoIterator<Item = (&'a str, &'a str)>,
) -> Vec<(&'a str, &'a str)> {
    let has = |object: &str| match object.split_once('/') {
        None => config.contains_key(object),
        Some((list, name)) => config.get(list).and_then(Json::as_array).is_some_and(|items| {
            items
                .iter()
                .filter_map(Json::as_object)
                .any(|item| item.get("name").and_then(Json::as_str) == Some(name))
        }),
    };
    owners
        .into_iter()
        .filter(|(object, owner)| *owner != "etcd" && has(object))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::to_bytes;
    use proptest::prelude::*;
    use serde_json::json;

    fn document(epoch: u64, supersedes: Option<u64>) -> Document {
        Document {
            schema: 1,
            epoch,
            tag: None,
            confirm_within: 60,
            supersedes,
            author: String::new(),
            comment: String::new(),
            config: Map::new(),
        }
    }

    fn stored(mod_revision: u64, document: &Document) -> KeyValue {
        KeyValue {
            key: "k".to_owned(),
            value: to_bytes(document),
            create_revision: 1,
            mod_revision,
        }
    }

    fn record(mod_revision: u64, epoch: u64) -> Record {
        Record {
            cluster: "a".to_owned(),
            mod_revision,
            epoch,
            tag: None,
            outcome: Outcome::Applied,
            revision: None,
            errors: Vec::new(),
            problems: BTreeSet::new(),
        }
    }

    fn refusal(verdict: &Verdict) -> &str {
        match verdict {
            Verdict::Refused { fault, .. } => &fault.detail,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn an_older_document_an_older_epoch_and_another_cluster_are_refused_by_name() {
        let seen = record(40, 30);
        let judged = |cluster: &str, mod_revision, epoch, supersedes| {
            judge(
                Some(&seen),
                cluster,
                Some(&stored(mod_revision, &document(epoch, supersedes))),
            )
        };
        assert!(matches!(judged("a", 41, 30, None), Verdict::Try(_)));
        assert_eq!(judged("a", 40, 1, None), Verdict::Known);
        assert!(refusal(&judged("a", 39, 30, None)).contains("document 39 is older than 40"));
        assert!(refusal(&judged("a", 41, 29, None)).contains("epoch 29, and this node has seen epoch 30"));
        assert!(refusal(&judged("b", 41, 30, None)).contains("another cluster (b) than before (a)"));
        // A person decided: only for what this node has seen last.
        for (cluster, mod_revision, epoch) in [("a", 7, 3), ("b", 7, 3), ("b", 900, 3)] {
            assert!(matches!(
                judged(cluster, mod_revision, epoch, Some(40)),
                Verdict::Try(_)
            ));
            assert!(matches!(
                judged(cluster, mod_revision, epoch, Some(39)),
                Verdict::Refused { .. }
            ));
        }
    }

    #[test]
    fn a_document_that_is_gone_or_unreadable_changes_nothing() {
        assert_eq!(judge(Some(&record(40, 30)), "a", None), Verdict::Nothing);
        assert_eq!(judge(None, "a", None), Verdict::Nothing);
        let junk = KeyValue {
            value: b"{".to_vec(),
            ..stored(41, &document(30, None))
        };
        assert!(refusal(&judge(Some(&record(40, 30)), "a", Some(&junk))).contains("unreadable"));
        assert!(refusal(&judge(None, "a", Some(&junk))).contains("unreadable"));
        assert!(matches!(
            judge(None, "a", Some(&stored(3, &document(1, None)))),
            Verdict::Try(_)
        ));
    }

    #[test]
    fn objects_of_others_in_a_document_are_named() {
        let config = json!({"bridge": [{"name": "br0"}, {"name": "br1"}], "system": {}});
        let owners = [
            ("bridge/br0", "etcd"),
            ("bridge/br1", "local"),
            ("bridge/br2", "ovsdb"),
            ("system", "local"),
            ("wan/x", "local"),
        ];
        let found = foreign(config.as_object().unwrap(), owners);
        assert_eq!(found, [("bridge/br1", "local"), ("system", "local")]);
    }

    proptest! {
        // Whatever documents appear in whatever order, in one cluster and without a person's decision: what is tried never goes back.
        #[test]
        fn what_a_node_tries_never_goes_back(documents in prop::collection::vec((0_u64..50, 0_u64..10), 1..60)) {
            let mut seen: Option<Record> = None;
            for (mod_revision, epoch) in documents {
                let found = stored(mod_revision, &document(epoch, None));
                if let Verdict::Try(_) = judge(seen.as_ref(), "a", Some(&found)) {
                    if let Some(seen) = &seen {
                        prop_assert!(mod_revision > seen.mod_revision && epoch >= seen.epoch);
                    }
                    seen = Some(record(mod_revision, epoch));
                }
            }
        }
    }
}
