//! Fuzzes patterns and the bytes that are searched for them; `detection::scan` in fuzz/src has the form of the input and the properties.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| millrace_fuzz::target("scan")(bytes));
