//! The fuzzer of `bgp_peer`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| millrace_fuzz::target("bgp_peer")(bytes));
