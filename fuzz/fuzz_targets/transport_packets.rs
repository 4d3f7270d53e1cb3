//! Fuzzes packets of the transport; `transport::packets` in fuzz/src has the form of the input and the properties.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| millrace_fuzz::target("transport_packets")(bytes));
