//! The fuzzer of `manifest`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| millrace_fuzz::target("manifest")(bytes));
