//! The fuzzer of `kept_flows`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| millrace_fuzz::target("kept_flows")(bytes));
