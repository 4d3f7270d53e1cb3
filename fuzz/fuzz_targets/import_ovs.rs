//! Fuzzes databases of Open vSwitch and scripts of ovs-vsctl; `import::of_ovs` in fuzz/src has the form of the input and the properties.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| millrace_fuzz::target("import_ovs")(bytes));
