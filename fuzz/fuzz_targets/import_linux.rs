//! Fuzzes outputs of iproute2; `import::of_linux` in fuzz/src has the form of the input and the properties.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| millrace_fuzz::target("import_linux")(bytes));
