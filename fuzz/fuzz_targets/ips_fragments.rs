//! Fuzzes fragments of a datagram, read by the IPS engine; `ips::fragments` in fuzz/src has the form of the input and the properties.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| millrace_fuzz::target("ips_fragments")(bytes));
