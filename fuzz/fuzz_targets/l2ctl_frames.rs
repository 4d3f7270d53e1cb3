//! Fuzzes frames of LACP, RSTP and LLDP; `l2ctl::frames` in fuzz/src has the form of the input and the properties.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| millrace_fuzz::target("l2ctl_frames")(bytes));
