//! The probes that are under way, and what they have measured.

use std::collections::{BTreeMap, VecDeque};
use std::hash::RandomState;

use millrace_ix_model::TrunkId;
use millrace_types::{Duration, Time};

/// The probes of one direction of a trunk.
#[derive(Clone, Debug, Default)]
pub(super) struct Direction {
    pub(super) nonce: u64,
    pub(super) sent: Time,
    pub(super) is_answered: bool,
    pub(super) lost: u32,
    /// True while the trunk is known to lead to another port.
    pub(super) is_miswired: bool,
    pub(super) delays: VecDeque<Duration>,
}

/// The probes of all trunks: by trunk, and by the end that sends.
#[derive(Debug, Default)]
pub(crate) struct Probes {
    pub(super) directions: BTreeMap<(TrunkId, u8), Direction>,
    pub(super) key: RandomState,
    pub(super) count: u64,
    pub(super) next: Time,
}
