//! Fuzzes frames, read by the IPS engine; `ips::packets` in fuzz/src has the form of the input and the properties.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| millrace_fuzz::target("ips_packets")(bytes));
