//! Fuzzes PDUs of an RPKI cache (RTR); `bgp::rtr` in fuzz/src has the form of the input and the properties.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| millrace_fuzz::target("rtr_client")(bytes));
