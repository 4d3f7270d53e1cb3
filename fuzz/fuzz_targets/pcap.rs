//! The fuzzer of `pcap`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| millrace_fuzz::target("pcap")(bytes));
