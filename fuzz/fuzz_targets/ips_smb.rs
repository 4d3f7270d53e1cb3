//! The fuzzer of `ips_smb`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| millrace_fuzz::target("ips_smb")(bytes));
