//! The fuzzer of `vhost_ring`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| millrace_fuzz::target("vhost_ring")(bytes));
