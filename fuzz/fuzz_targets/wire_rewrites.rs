//! The fuzzer of `wire_rewrites`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| millrace_fuzz::target("wire_rewrites")(bytes));
