//! Fuzzes slots of an AF_PACKET ring with their virtio-net headers; `af_packet::slot` in fuzz/src has the form of the input and the properties.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| millrace_fuzz::target("af_packet")(bytes));
