//! The fuzzer of `openflow_message`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| millrace_fuzz::target("openflow_message")(bytes));
