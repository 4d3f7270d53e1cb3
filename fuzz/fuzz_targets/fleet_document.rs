//! The fuzzer of `fleet_document`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| millrace_fuzz::target("fleet_document")(bytes));
