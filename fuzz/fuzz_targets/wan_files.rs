//! Fuzzes files that settings of an emulated path name; `wan::files` in fuzz/src has the form of the input and the properties.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| millrace_fuzz::target("wan_files")(bytes));
