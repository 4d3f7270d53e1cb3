//! Fuzzes programs of classic BPF, and a packet; `bpf::bpf` in fuzz/src has the form of the input and the properties.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| millrace_fuzz::target("bpf")(bytes));
