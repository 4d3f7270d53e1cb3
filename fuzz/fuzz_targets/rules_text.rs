//! The fuzzer of `rules_text`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| millrace_fuzz::target("rules_text")(bytes));
