//! Fuzzes a rule and the bytes that it is evaluated on; `detection::matching` in fuzz/src has the form of the input and the properties.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| millrace_fuzz::target("ips_match")(bytes));
