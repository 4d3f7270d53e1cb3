//! The fuzzer of `ips_http`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| millrace_fuzz::target("ips_http")(bytes));
