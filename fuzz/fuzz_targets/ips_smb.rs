//! Fuzzes SMB and DCE/RPC, read by the IPS engine; `parsers::smb` in fuzz/src has the form of the input and the properties.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| millrace_fuzz::target("ips_smb")(bytes));
