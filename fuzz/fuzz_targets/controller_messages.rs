//! Fuzzes OpenFlow messages of a switch, read by a controller; `controller::messages` in fuzz/src has the form of the input and the properties.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| millrace_fuzz::target("controller_messages")(bytes));
