//! The fuzzer of `wan_text`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| millrace_fuzz::target("wan_text")(bytes));
