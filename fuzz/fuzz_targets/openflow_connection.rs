//! The fuzzer of `openflow_connection`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| millrace_fuzz::target("openflow_connection")(bytes));
