//! The modules of `millrace-datapath` and `millrace-wan-emulator` in which threads share memory without a
//! lock. This package compiles them with loom's atomics and cells. Their tests run under every interleaving
//! with at most three preemptions (`LOOM_MAX_PREEMPTIONS` in `.cargo/config.toml`).
//!
//! The package exists because `cfg(loom)` in `RUSTFLAGS` would compile every dependency of the datapath a second time.

#[path = "../../datapath/src/publish.rs"]
pub mod publish;
#[path = "../../../wan/emulator/src/ring/records.rs"]
pub mod records;
#[path = "../../datapath/src/spread/ring.rs"]
pub mod ring;
