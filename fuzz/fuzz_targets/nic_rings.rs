//! The fuzzer of `nic_rings`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| millrace_fuzz::target("nic_rings")(bytes));
