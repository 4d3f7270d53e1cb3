//! Fuzzes the memory of a vhost-user driver; `vhost_ring::ring` in fuzz/src has the form of the input and the properties.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| millrace_fuzz::target("vhost_ring")(bytes));
