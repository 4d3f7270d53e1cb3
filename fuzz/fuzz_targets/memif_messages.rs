//! The fuzzer of `memif_messages`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| millrace_fuzz::target("memif_messages")(bytes));
