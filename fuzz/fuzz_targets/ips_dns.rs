//! Fuzzes DNS over TCP, read by the IPS engine; `parsers::dns` in fuzz/src has the form of the input and the properties.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| millrace_fuzz::target("ips_dns")(bytes));
