//! Lookup of IPv4 and IPv6 routes by longest prefix, next-hop groups and next hops: one writer, many readers.
//!
//! ```text
//!  Writer (the RIB's thread)                       workers
//!  insert, replace, remove ──> tables ──────────>  Fib::lookup_v4_burst: addresses -> GroupId
//!  add_group, set_group    ──> groups, cells ───>  NextHops::live_member: GroupId, flow hash -> NextHop
//!  set_next_hop            ──> next hops (64 B)
//!  take_retired ... a grace period ... reclaim
//! ```
//!
//! There is one copy of all this, which the writer changes in place by atomic stores while workers read it: an address
//! has the old or the new group at any time, a group its old or its new members. Memory that workers can no longer reach
//! is used again after a grace period, which the caller knows: [`Writer::take_retired`], [`Writer::reclaim`].
//!
//! The structure and what it was chosen over are in `docs/adr/0046-lookup-of-routes.md`.

#![forbid(unsafe_code)]

mod arena;
mod cells;
mod chunks;
mod groups;
pub mod mix;
mod next_hop;
mod node;
mod prefix;
mod reader;
mod table;
mod writer;

pub use arena::Full;
pub use cells::MEMBERS_MAX;
pub use groups::{GroupId, NextHopId, NextHops};
pub use next_hop::{NextHop, NextHopKind, NextHopSpec};
pub use prefix::{Family, Prefix, PrefixError, PrefixTextError, bits_of};
pub use reader::Fib;
pub use writer::{FibId, Retired, Usage, Writer};
