//! Fuzzes a field to rewrite, and a frame; `wire::rewrites` in fuzz/src has the form of the input and the properties.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| millrace_fuzz::target("wire_rewrites")(bytes));
