//! Fuzzes a session of NETCONF; `front_ends::netconf` in fuzz/src has the form of the input and the properties.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| millrace_fuzz::target("netconf_session")(bytes));
