//! Fuzzes messages of a vhost-user driver and device; `vhost_messages::messages` in fuzz/src has the form of the input and the properties.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| millrace_fuzz::target("vhost_messages")(bytes));
