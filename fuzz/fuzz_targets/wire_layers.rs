//! Fuzzes frames, read by the header parser; `wire::layers` in fuzz/src has the form of the input and the properties.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| millrace_fuzz::target("wire_layers")(bytes));
