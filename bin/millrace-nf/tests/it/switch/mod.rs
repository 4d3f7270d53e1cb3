//! The environment of functions in processes, for tests.

#![allow(dead_code, reason = "each test file uses a part")]

use std::sync::Arc;

use millrace_chain::Environment;
use millrace_datapath::io::dpdk::DpdkBackend;
use millrace_dpdk::eal::HugePages;
use millrace_dpdk::{Eal, EalConfig};
use millrace_nf::Catalogue;

/// Returns an environment with these functions, and the program that runs them.
pub(crate) fn environment(catalogue: Catalogue, workers: u16) -> Environment {
    Environment {
        catalogue,
        workers: usize::from(workers),
        seed: 1,
        zero_unix_millis: 0,
        program: env!("CARGO_BIN_EXE_millrace-nf").into(),
    }
}

/// Returns a backend whose packets are in memory that processes can share. Without root, prints a message and returns `None`.
/// It may be called only once in a process, because EAL starts only once.
pub(crate) fn shared_memory(name: &str) -> Option<Arc<DpdkBackend>> {
    if !nix::unistd::Uid::effective().is_root() {
        eprintln!("not run: it needs root");
        return None;
    }
    let eal = Eal::init(&EalConfig {
        file_prefix: format!("{name}-{}", std::process::id()),
        memory_mib: 128,
        huge_pages: HugePages::Off,
        ..EalConfig::default()
    })
    .unwrap();
    Some(Arc::new(DpdkBackend::new(eal, 8191).unwrap()))
}
