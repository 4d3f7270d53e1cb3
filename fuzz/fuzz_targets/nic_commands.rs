//! Fuzzes commands of a driver to the NIC; `nic::commands` in fuzz/src has the form of the input and the properties.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| millrace_fuzz::target("nic_commands")(bytes));
