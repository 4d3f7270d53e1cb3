//! Identifiers of connections with controllers.

use core::sync::atomic::{AtomicU64, Ordering};

/// Identifies a connection with a controller; no number is used twice in a process.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct ConnectionId(u64);

impl ConnectionId {
    pub(crate) fn next() -> ConnectionId {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        ConnectionId(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// The `auxiliary_id` of a connection (OpenFlow 1.3.5, section 7.3.1); 0 is the main connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct AuxiliaryId(pub(crate) u8);
