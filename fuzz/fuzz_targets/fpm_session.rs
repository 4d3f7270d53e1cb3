//! Fuzzes a session of zebra by FPM; `routing::fpm` in fuzz/src has the form of the input and the properties.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| millrace_fuzz::target("fpm_session")(bytes));
