//! The fuzzer of `import_lagopus`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| millrace_fuzz::target("import_lagopus")(bytes));
