//! Fuzzes files of flow entries that are kept over a restart; `kept::flows` in fuzz/src has the form of the input and the properties.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| millrace_fuzz::target("kept_flows")(bytes));
