//! The fuzzer of `wire_tunnels`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| millrace_fuzz::target("wire_tunnels")(bytes));
