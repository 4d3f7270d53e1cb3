//! The fuzzer of `text`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| millrace_fuzz::target("text")(bytes));
