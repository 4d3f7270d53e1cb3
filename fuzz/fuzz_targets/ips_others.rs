//! The fuzzer of `ips_others`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| millrace_fuzz::target("ips_others")(bytes));
