//! Fuzzes HTTP/1, read by the IPS engine; `parsers::http` in fuzz/src has the form of the input and the properties.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| millrace_fuzz::target("ips_http")(bytes));
