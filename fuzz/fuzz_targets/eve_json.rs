//! Fuzzes frames whose events are written as EVE JSON; `ips::eve` in fuzz/src has the form of the input and the properties.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| millrace_fuzz::target("eve_json")(bytes));
