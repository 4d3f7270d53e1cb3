//! Fuzzes TLS in both directions, read by the IPS engine; `parsers::tls` in fuzz/src has the form of the input and the properties.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| millrace_fuzz::target("ips_tls")(bytes));
