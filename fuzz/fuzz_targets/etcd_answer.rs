//! The fuzzer of `etcd_answer`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| millrace_fuzz::target("etcd_answer")(bytes));
