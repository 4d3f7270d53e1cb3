//! Filters of an exchange: who may filter which prefix, and how RTBH and Flowspec routes become filters.
//!
//! ```text
//!   BGP peers ──► Rib ─┬─ unicast routes ──► live routes ─┐
//!                      ├─ BLACKHOLE ───────► RTBH rules ──┤
//!                      └─ flowspec ────────► translate ───┤
//!   RTR cache ──► VRPs ───────────────────────────────────┼──► ownership ──► operations on Filter objects
//!   IRR ──► AS-SET, route objects ────────────────────────┤
//!   page and API ──► Filter objects ──────────────────────┘
//! ```
//!
//! [`Authority`] holds the peers and the evidence, and compares what the peers announce with the filters of the exchange. It
//! makes both equal by ordinary orders, as people give them. [`translate`] turns a Flowspec rule into matches, exactly or not
//! at all. [`explain`] says which filter applies to a packet, and why.
//!
//! Pure: no IO, no clock, no randomness.

#![forbid(unsafe_code)]

mod authority;
mod evidence;
mod explain;
pub mod irr;
mod ownership;
mod reconcile;
mod reference;
mod rule;
mod shared;
mod tcp_flags;
mod translate;

pub use authority::{Authority, PeerInfo, SessionKind, SessionStatus, Settings};
pub use evidence::{RouteObjects, Validity, VrpState, VrpTable};
pub use explain::{Packet, Step, explain, matches};
pub use ownership::{Finding, Verdict};
pub use reconcile::Round;
pub use shared::Shared;
pub use translate::{Translated, Untranslatable, translate};

use millrace_ix_model::Prefix;

/// Returns a prefix of BGP as one of the exchange.
fn prefix(prefix: millrace_bgp::Prefix) -> Option<Prefix> {
    Prefix::new(prefix.address(), prefix.len()).ok()
}
