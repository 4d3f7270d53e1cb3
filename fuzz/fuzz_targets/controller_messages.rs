//! The fuzzer of `controller_messages`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| millrace_fuzz::target("controller_messages")(bytes));
