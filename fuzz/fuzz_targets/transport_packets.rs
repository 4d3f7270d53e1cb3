//! The fuzzer of `transport_packets`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| millrace_fuzz::target("transport_packets")(bytes));
