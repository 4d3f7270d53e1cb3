//! Answers of etcd's gateway, and what others wrote into the store.

use std::collections::BTreeMap;

use millrace_etcd::KeyValue;
use millrace_fleet::{
    Ack, Document, NodeView, Rollout, Status, Verdict, foreign, judge, plan, row, to_bytes,
};

/// Reads the bytes as answers of a member.
///
/// Properties: any bytes are an answer or an error.
pub(crate) fn answer(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    if let Ok(read) = millrace_etcd::message::read_answer(&text) {
        assert_eq!(read.cluster.len(), 16);
    }
    let _ = millrace_etcd::message::txn_answer(&text);
}

/// Reads the bytes as a document, an answer, a status and a roll-out.
///
/// Properties: a document that is taken can be written and read again; a status has its bound; a roll-out has a next step.
pub(crate) fn document(bytes: &[u8]) {
    let found = KeyValue {
        key: "k".to_owned(),
        value: bytes.to_vec(),
        create_revision: 1,
        mod_revision: 1,
    };
    if let Verdict::Try(document) = judge(None, "a", Some(&found)) {
        let again = Document::parse(&to_bytes(&document)).unwrap();
        assert_eq!(
            (again.epoch, &again.tag, again.config.len()),
            (document.epoch, &document.tag, document.config.len())
        );
        let _ = foreign(&document.config, [("bridge/br0", "local"), ("system", "local")]);
    }
    let view = NodeView {
        ack: serde_json::from_slice::<Ack>(bytes).ok(),
        status: serde_json::from_slice::<Status>(bytes).ok(),
    };
    if let Some(status) = &view.status {
        assert!(status.bytes().len() <= millrace_fleet::STATUS_SIZE_MAX);
    }
    let _ = row("sw1", Some(1), &view);
    if let Ok(rollout) = serde_json::from_slice::<Rollout>(bytes) {
        let views = BTreeMap::from([("sw1".to_owned(), view)]);
        let _ = plan(&rollout, &views, u64::MAX);
    }
}
