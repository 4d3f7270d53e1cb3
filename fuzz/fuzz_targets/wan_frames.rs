//! The fuzzer of `wan_frames`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| millrace_fuzz::target("wan_frames")(bytes));
