//! Options and results of orders.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use millrace_ix_model::{Actor, Applied, Exchange, ObjectId, Operation, SwitchId};
use millrace_ix_store::{IdempotencyKey, Revision};
use serde::{Deserialize, Serialize};

use crate::text::DELETIONS_MAX;
use crate::verify::Preview;

/// The conditions of an order.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct OrderOptions {
    /// The order is refused if this object no longer has this revision.
    pub if_match: Option<(ObjectId, Revision)>,
    /// The key by which a client may repeat the request, and the hash of the request.
    pub idempotency: Option<(IdempotencyKey, String)>,
    /// True to check and plan the order without executing it.
    pub dry_run: bool,
    /// The time after which the change is undone unless somebody confirms it.
    pub confirm_within: Option<Duration>,
    /// The operations that the engine itself executes first, in the same change: what permits those of the actor.
    pub granted: Vec<Operation>,
}

/// The conditions under which a text is applied.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ApplyOptions {
    /// True to apply a text although the exchange has changed since its export.
    pub overwrite: bool,
    /// The largest number of services, ends and connections that the text may delete.
    pub deletions_max: usize,
}

impl Default for ApplyOptions {
    fn default() -> ApplyOptions {
        ApplyOptions {
            overwrite: false,
            deletions_max: DELETIONS_MAX,
        }
    }
}

/// An order: operations that are executed as one change, all or nothing.
#[derive(Clone, PartialEq, Debug)]
pub struct OrderRequest {
    /// The operations. An identifier with the number 0 in a later one stands for the newest object of that type that the
    /// order created.
    pub operations: Vec<Operation>,
    /// The person or program that orders.
    pub actor: Actor,
    /// The conditions.
    pub options: OrderOptions,
}

impl OrderRequest {
    /// Returns an order of the engine itself, without conditions.
    pub fn of_system(operations: Vec<Operation>) -> OrderRequest {
        OrderRequest {
            operations,
            actor: Actor::system(),
            options: OrderOptions::default(),
        }
    }
}

/// The number of entries of a switch that an order concerns.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct EntryCounts {
    /// New entries.
    pub added: usize,
    /// Entries with other actions.
    pub changed: usize,
    /// Removed entries.
    pub removed: usize,
}

/// An accepted order.
#[derive(Clone, PartialEq, Debug)]
pub struct Ordered {
    /// The change in the journal; `None` for a dry run, and for an order that writes nothing.
    pub change: Option<u64>,
    /// The revision of the objects after the order; of a dry run, the present one.
    pub revision: Revision,
    /// The objects concerned.
    pub applied: Applied,
    /// The services, ends and connections that the order deletes, by name. A service is also among the changed objects
    /// until the switches have removed its entries.
    pub deletions: Vec<String>,
    /// The reasons why a text that was only checked would be refused.
    pub problems: Vec<String>,
    /// The entries concerned, by switch.
    pub entries: BTreeMap<SwitchId, EntryCounts>,
    /// The frames that a dry run would make take other ways, each in a sentence; empty for orders, and without a verifier.
    pub effects: Vec<String>,
    /// The input for the effects; `None` once they are known.
    pub preview: Option<Box<Preview>>,
    /// True if this is the answer to an earlier request with the same key.
    pub repeated: bool,
    /// The exchange after the order. A dry run has it, too; a repeated answer has the present one.
    pub after: Arc<Exchange>,
}
