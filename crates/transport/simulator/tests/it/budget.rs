//! The budget of packets of all tests of this program: a packet costs about a microsecond.

use std::sync::atomic::{AtomicU64, Ordering};

/// Packets that all tests together may move.
const PACKETS: u64 = 24_000_000;

static SPENT: AtomicU64 = AtomicU64::new(0);

/// Counts packets, and fails if all tests together have moved too many.
pub(crate) fn spend(packets: u64) {
    let spent = SPENT.fetch_add(packets, Ordering::Relaxed) + packets;
    assert!(
        spent <= PACKETS,
        "the tests have moved {spent} packets; {PACKETS} are the budget"
    );
}
