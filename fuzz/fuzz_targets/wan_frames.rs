//! Fuzzes settings of an emulated path, and frames; `wan::frames` in fuzz/src has the form of the input and the properties.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| millrace_fuzz::target("wan_frames")(bytes));
