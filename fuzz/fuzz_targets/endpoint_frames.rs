//! The fuzzer of `endpoint_frames`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| millrace_fuzz::target("endpoint_frames")(bytes));
