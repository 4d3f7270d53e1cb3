//! `firewall` as a WebAssembly module: `cargo xtask wasm` builds it.

millrace_nf::export!(millrace_builtin::FIREWALL);
