//! The fuzzer of `ovs_rows`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| millrace_fuzz::target("ovs_rows")(bytes));
