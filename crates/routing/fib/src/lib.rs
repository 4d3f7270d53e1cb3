//! Lookup of IPv4 and IPv6 routes by longest prefix, next-hop groups and next hops: one writer, many readers.

#![forbid(unsafe_code)]

mod next_hop;
mod prefix;
mod reader;

pub use next_hop::{NextHop, NextHopKind, NextHopSpec};
pub use prefix::{Family, Prefix, PrefixError, bits_of};
pub use reader::{Fib, GroupId, NextHops};
