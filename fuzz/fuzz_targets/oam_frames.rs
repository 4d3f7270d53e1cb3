//! Fuzzes packets of BFD and continuity checks; `liveness::oam` in fuzz/src has the form of the input and the properties.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| millrace_fuzz::target("oam_frames")(bytes));
