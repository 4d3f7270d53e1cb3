//! The fuzzer of `offload_planner`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| millrace_fuzz::target("offload_planner")(bytes));
