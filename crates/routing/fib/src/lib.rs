//! Lookup of IPv4 and IPv6 routes by longest prefix, next-hop groups and next hops: one writer, many readers.

#![forbid(unsafe_code)]
