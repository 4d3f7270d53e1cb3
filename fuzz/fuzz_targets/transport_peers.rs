//! Fuzzes sender and receiver of the transport with peers that send anything; `transport::peers` in fuzz/src has the form of the input and the properties.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| millrace_fuzz::target("transport_peers")(bytes));
