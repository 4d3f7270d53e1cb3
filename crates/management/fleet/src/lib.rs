//! Many switches behind one store in etcd, without IO and without a clock.
//!
//! ```text
//!  people ─▶ Rollout ─▶ plan ─▶ Document of a node ─▶ judge ─▶ the switch, unconfirmed ─▶ Trial ─▶ Ack
//!                        ▲   (each write compares the leader)   (fenced by Record)                  │
//!                        └──────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! [`judge`] decides whether a node tries a document: never one that is older than what the node has seen. [`Trial`] is a document
//! that the switch runs and takes back by itself unless the node confirms it. [`plan`] moves a roll-out from wave to wave and
//! returns it at the first node that refuses. [`Leadership`] is the right of a master to write.

#![forbid(unsafe_code)]

mod document;
mod fence;
mod keyspace;
mod leadership;
mod metrics;
mod rollout;
mod summary;
mod trial;

pub use document::{
    Ack, DOCUMENT_SIZE_MAX, Document, DocumentError, Fault, Outcome, SCHEMA, STATUS_SIZE_MAX, Status,
    to_bytes,
};
pub use fence::{Record, Verdict, foreign, judge};
pub use keyspace::{Keyspace, NameError, check_name};
pub use leadership::{LEASE_S, Leadership};
pub use metrics::{Overview, metrics};
pub use rollout::{GRACE_S, NodeView, Place, Plan, Rollout, State, Step, plan, waves};
pub use summary::{Relation, Row, row};
pub use trial::{Progress, Trial, View};
