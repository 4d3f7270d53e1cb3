//! Fuzzes the window of a function in another process; `window::window` in fuzz/src has the form of the input and the properties.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| millrace_fuzz::target("nf_window")(bytes));
