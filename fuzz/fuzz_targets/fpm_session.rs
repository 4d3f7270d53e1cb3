//! The fuzzer of `fpm_session`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| millrace_fuzz::target("fpm_session")(bytes));
