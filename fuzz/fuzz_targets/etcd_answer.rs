//! Fuzzes answers of etcd's gateway; `fleet::answer` in fuzz/src has the form of the input and the properties.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| millrace_fuzz::target("etcd_answer")(bytes));
