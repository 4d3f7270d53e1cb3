//! Events for pages and webhooks.

use std::sync::Arc;

use millrace_ix_model::{Exchange, ObjectId, PortId, SwitchId};
use millrace_ix_store::{ChangeState, Revision, UnixMillis};
use serde::Serialize;

/// An event with its number in the sequence.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct ServiceEvent {
    /// The number; the first event after a start has 1.
    pub serial: u64,
    pub at: UnixMillis,
    /// The exchange before the transaction: it has the objects that are gone, and says whom they concern.
    #[serde(skip)]
    pub before: Arc<Exchange>,
    /// The event.
    #[serde(flatten)]
    pub kind: EventKind,
}

/// An event of the exchange, with the objects that it concerns.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[serde(rename_all = "snake_case", tag = "event")]
pub enum EventKind {
    /// An object was created, changed or deleted, or an end in quarantine sent its first good frame.
    Object {
        /// The object.
        id: ObjectId,
        /// The revision that wrote the object, or the newest revision.
        revision: Revision,
        /// True if the object was deleted.
        deleted: bool,
    },
    /// A change has entered a state.
    Change {
        change: u64,
        state: ChangeState,
        /// The objects that the change writes.
        objects: Vec<ObjectId>,
    },
    /// The connection or the synchronisation of a switch has changed.
    Switch { switch: SwitchId },
    /// A port of a connection or trunk is up or down, or its state is not known any more.
    Port {
        port: PortId,
        /// True if the port has a link and is live; `None` if its switch is not connected.
        up: Option<bool>,
    },
    /// A notice of the engine, in words.
    Notice {
        text: String,
        /// The switch concerned.
        switch: Option<SwitchId>,
        /// The change concerned.
        change: Option<u64>,
    },
    /// The engine has become read-only, or writes again: it waits for an operator, or its database cannot be written.
    Mode {
        /// True if nothing is sent to switches and no order is accepted.
        read_only: bool,
    },
}
