//! The fuzzer of `sflow_datagram`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| millrace_fuzz::target("sflow_datagram")(bytes));
