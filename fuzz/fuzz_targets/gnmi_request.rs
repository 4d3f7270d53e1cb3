//! Fuzzes requests of gNMI; `front_ends::gnmi` in fuzz/src has the form of the input and the properties.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| millrace_fuzz::target("gnmi_request")(bytes));
