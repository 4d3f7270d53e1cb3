//! One EAL for the test program: the first test starts it, small and without huge pages.

#![allow(
    dead_code,
    clippy::unwrap_used,
    reason = "not every test program uses all of it, and all of it is for tests"
)]

use std::sync::OnceLock;

use millrace_dpdk::eal::HugePages;
use millrace_dpdk::{Eal, EalConfig};
use parking_lot::Mutex;

/// Serialises tests that reserve the machine's huge pages, or start EAL with those that are free.
pub(crate) static HUGE_PAGES: Mutex<()> = Mutex::new(());

pub(crate) fn eal() -> Eal {
    static EAL: OnceLock<Eal> = OnceLock::new();
    *EAL.get_or_init(|| Eal::init(&config()).unwrap())
}

pub(crate) fn config() -> EalConfig {
    EalConfig {
        memory_mib: 512,
        huge_pages: HugePages::Off,
        file_prefix: format!("millrace-test-{}", std::process::id()),
        ..EalConfig::default()
    }
}
