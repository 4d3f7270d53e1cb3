//! The fuzzer of `vhost_messages`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| millrace_fuzz::target("vhost_messages")(bytes));
