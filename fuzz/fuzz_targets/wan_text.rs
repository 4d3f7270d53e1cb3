//! Fuzzes settings of an emulated path, netem's grammar, and scenarios; `wan::text` in fuzz/src has the form of the input and the properties.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| millrace_fuzz::target("wan_text")(bytes));
