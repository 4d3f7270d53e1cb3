//! Reassembly of IPv4 and IPv6 fragments, in bounded memory.
