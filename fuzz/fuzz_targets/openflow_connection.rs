//! Fuzzes a connection of OpenFlow; `openflow::connection` in fuzz/src has the form of the input and the properties.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| millrace_fuzz::target("openflow_connection")(bytes));
