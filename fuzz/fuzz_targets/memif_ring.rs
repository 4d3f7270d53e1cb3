//! The fuzzer of `memif_ring`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| millrace_fuzz::target("memif_ring")(bytes));
