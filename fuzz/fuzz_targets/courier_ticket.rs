//! The fuzzer of `courier_ticket`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| millrace_fuzz::target("courier_ticket")(bytes));
