//! Requests to the verifier: the content of switches, changes before their flip, dry runs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use millrace_ix_engine::{Content, Delta};
use millrace_ix_model::{AccountId, Exchange, ObjectId, Timestamp};
use millrace_ix_verify::Finding;
use tokio::sync::oneshot;

use crate::fabric::{Entry, Fabric, FabricKey};

/// The modifications of some switches, by switch.
pub type Deltas = BTreeMap<u32, Delta<Fabric>>;

/// A request to the verifier.
#[derive(Debug)]
pub enum VerifyRequest {
    /// A switch has reported all of its entries.
    Reported { switch: u32, content: Content<Fabric> },
    /// A switch does not return: nothing is concluded from what it has reported.
    Gone { switch: u32 },
    /// A switch has confirmed modifications.
    Confirmed {
        switch: u32,
        modifications: Vec<(FabricKey, Option<Entry>)>,
    },
    /// A change may flip if its properties hold.
    Change(Box<ChangeToVerify>),
    /// A dry run: the effect of an order in words.
    Effects(Box<Preview>, oneshot::Sender<Vec<String>>),
    /// A check of everything that the switches report against an exchange.
    All(Arc<Exchange>, Timestamp, oneshot::Sender<Vec<Finding>>),
}

/// An order whose effect is asked for.
#[derive(Clone, PartialEq, Debug)]
pub struct Preview {
    pub before: Arc<Exchange>,
    pub after: Arc<Exchange>,
    /// The time for which the switches are planned.
    pub at: Timestamp,
    /// The objects that the order writes.
    pub objects: BTreeSet<ObjectId>,
    /// The entries that it changes, in the order of the phases.
    pub phases: [Deltas; 3],
    /// The accounts that the reader of the effects acts for; `None` for the exchange's staff.
    pub reader: Option<BTreeSet<AccountId>>,
}

/// A change whose new entries all switches have confirmed.
#[derive(Debug)]
pub struct ChangeToVerify {
    pub change: u64,
    /// The exchange after the change.
    pub exchange: Arc<Exchange>,
    /// The time for which the switches are planned.
    pub at: Timestamp,
    /// The objects that the change writes.
    pub objects: BTreeSet<ObjectId>,
    /// The entries that the flip changes.
    pub flip: Deltas,
    /// The entries that are removed afterwards.
    pub clean: Deltas,
}
