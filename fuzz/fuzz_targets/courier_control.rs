//! Fuzzes messages of the control channel of transfers; `courier::control` in fuzz/src has the form of the input and the properties.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| millrace_fuzz::target("courier_control")(bytes));
