//! The fuzzer of `rtr_client`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| millrace_fuzz::target("rtr_client")(bytes));
