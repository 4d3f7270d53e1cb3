//! The fuzzer of `nf_attach`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| millrace_fuzz::target("nf_attach")(bytes));
