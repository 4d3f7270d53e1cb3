//! Deletions that need two people: of a LAN, of a trunk in use, and of another account's lock.

use serde::{Deserialize, Serialize};

use crate::id::UserId;
use crate::operation::Operation;
use crate::time::Timestamp;

/// An order that waits for a second person.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Approval {
    /// The order.
    pub operation: Box<Operation>,
    /// The user who asked for the deletion; `None` for the command line on the exchange's host.
    pub requested_by: Option<UserId>,
    /// The time at which the first person gave the order.
    pub requested_at: Timestamp,
}
