//! Fuzzes a script of requests and packets for a bridge; `pipeline::pipeline` in fuzz/src has the form of the input and the properties.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| millrace_fuzz::target("pipeline")(bytes));
