//! Fuzzes capture files that a port replays; `files::pcap` in fuzz/src has the form of the input and the properties.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| millrace_fuzz::target("pcap")(bytes));
