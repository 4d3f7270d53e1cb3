//! The fuzzer of `netconf_session`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| millrace_fuzz::target("netconf_session")(bytes));
