//! Fuzzes the shared memory of a memif peer; `memif::ring` in fuzz/src has the form of the input and the properties.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| millrace_fuzz::target("memif_ring")(bytes));
