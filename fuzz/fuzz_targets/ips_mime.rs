//! The fuzzer of `ips_mime`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| millrace_fuzz::target("ips_mime")(bytes));
