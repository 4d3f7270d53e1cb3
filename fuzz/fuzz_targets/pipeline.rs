//! The fuzzer of `pipeline`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| millrace_fuzz::target("pipeline")(bytes));
