//! The fuzzer of `agentx_session`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| millrace_fuzz::target("agentx_session")(bytes));
