//! Fuzzes documents, statuses and roll-outs in etcd; `fleet::document` in fuzz/src has the form of the input and the properties.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| millrace_fuzz::target("fleet_document")(bytes));
