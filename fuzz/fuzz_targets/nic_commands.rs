//! The fuzzer of `nic_commands`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| millrace_fuzz::target("nic_commands")(bytes));
