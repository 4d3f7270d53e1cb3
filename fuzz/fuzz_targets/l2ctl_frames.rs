//! The fuzzer of `l2ctl_frames`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| millrace_fuzz::target("l2ctl_frames")(bytes));
