//! Fuzzes the shared memory of the NIC and its driver; `nic::rings` in fuzz/src has the form of the input and the properties.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| millrace_fuzz::target("nic_rings")(bytes));
