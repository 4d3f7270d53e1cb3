//! The fuzzer of `bgp_messages`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| millrace_fuzz::target("bgp_messages")(bytes));
