//! Packets forwarded by the FIB: next hops, TTL, ICMP errors, packets for the kernel.

#![forbid(unsafe_code)]
