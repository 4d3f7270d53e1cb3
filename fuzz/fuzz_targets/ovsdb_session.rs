//! The fuzzer of `ovsdb_session`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| millrace_fuzz::target("ovsdb_session")(bytes));
