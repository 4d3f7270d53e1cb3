//! The fuzzer of `af_packet`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| millrace_fuzz::target("af_packet")(bytes));
