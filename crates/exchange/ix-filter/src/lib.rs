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
//! [`FilterController`] holds the peers and the evidence, and compares what the peers announce with the filters of
//! the exchange. It makes the filters equal to the announcements, by the same orders that people give.
//! [`translate`] converts a Flowspec rule to matches that are exactly equivalent, or refuses it. [`explain`]
//! says which filter applies to a packet, and why.
//!
//! The crate is pure: it has no IO, no clock and no randomness.

#![forbid(unsafe_code)]

mod controller;
mod evidence;
mod explain;
pub mod irr;
mod lookup;
mod ownership;
mod reconcile;
mod reference;
mod rule;
mod shared;
mod tcp_flags;
mod translate;

pub use controller::{FilterController, PeerInfo, SessionKind, SessionStatus, Settings};
pub use evidence::{RouteObjects, Validity, VrpState, VrpTable};
pub use explain::{Packet, Step, explain, matches};
pub use lookup::FoundRoute;
pub use ownership::{Finding, Verdict};
pub use reconcile::Round;
pub use shared::Shared;
pub use translate::{Translated, Untranslatable, translate};

use millrace_ix_model::Prefix;

/// Converts a BGP prefix to the prefix type of the exchange.
fn prefix(prefix: millrace_bgp::Prefix) -> Option<Prefix> {
    Prefix::new(prefix.address(), prefix.len()).ok()
}
