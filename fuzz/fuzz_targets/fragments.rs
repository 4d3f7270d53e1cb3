//! The fuzzer of `fragments`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| millrace_fuzz::target("fragments")(bytes));
