//! Fuzzes rule files of Suricata and Snort, and suricata.yaml; `rules::text` in fuzz/src has the form of the input and the properties.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| millrace_fuzz::target("rules_text")(bytes));
