//! Fuzzes PDUs of an AgentX master agent; `agentx::session` in fuzz/src has the form of the input and the properties.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| millrace_fuzz::target("agentx_session")(bytes));
