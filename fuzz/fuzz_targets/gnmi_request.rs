//! The fuzzer of `gnmi_request`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| millrace_fuzz::target("gnmi_request")(bytes));
