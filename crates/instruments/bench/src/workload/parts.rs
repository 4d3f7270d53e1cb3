//! The parts of a workload whose entries are no list of rules.

use super::header::Header;

/// Entries, and the packets for them.
pub(super) struct Parts {
    /// Lines for `ovs-ofctl add-flows`.
    pub(super) lines: String,
    /// The packets, one for each flow.
    pub(super) headers: Vec<Header>,
    /// The share of the packets that each sink receives.
    pub(super) shares: [f64; 2],
}
