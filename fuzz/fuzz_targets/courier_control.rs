//! The fuzzer of `courier_control`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| millrace_fuzz::target("courier_control")(bytes));
