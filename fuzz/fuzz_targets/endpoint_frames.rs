//! Fuzzes frames to an endpoint of the transport; `endpoint::frames` in fuzz/src has the form of the input and the properties.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| millrace_fuzz::target("endpoint_frames")(bytes));
