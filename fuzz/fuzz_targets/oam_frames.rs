//! The fuzzer of `oam_frames`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| millrace_fuzz::target("oam_frames")(bytes));
