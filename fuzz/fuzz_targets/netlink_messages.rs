//! The fuzzer of `netlink_messages`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| millrace_fuzz::target("netlink_messages")(bytes));
