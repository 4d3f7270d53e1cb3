//! Fuzzes rows of Open vSwitch's database; `ovsdb::rows` in fuzz/src has the form of the input and the properties.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| millrace_fuzz::target("ovs_rows")(bytes));
