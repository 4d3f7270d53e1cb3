//! The fuzzer of `scan`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| millrace_fuzz::target("scan")(bytes));
