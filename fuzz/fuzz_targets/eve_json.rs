//! The fuzzer of `eve_json`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| millrace_fuzz::target("eve_json")(bytes));
