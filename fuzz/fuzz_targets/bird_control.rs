//! The fuzzer of `bird_control`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| millrace_fuzz::target("bird_control")(bytes));
