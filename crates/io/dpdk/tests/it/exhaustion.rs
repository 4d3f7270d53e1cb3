//! A pool that is too large allocates all memory before it fails, so this test has a process of its own.

#![allow(clippy::unwrap_used, reason = "a test's helpers are tests too")]

use crate::eal_once::eal;
use millrace_dpdk::{Mempool, MempoolConfig, MempoolError};

#[test]
fn a_pool_larger_than_memory_is_refused_with_a_next_step_and_takes_nothing() {
    millrace_testing::own_process!();
    let huge = MempoolConfig {
        buffers: 10_000_000,
        ..MempoolConfig::new("huge", 1023)
    };
    for name in ["one", "two"] {
        let error = Mempool::new(eal(), &huge).unwrap_err();
        assert!(matches!(error, MempoolError::Memory { .. }), "{error}");
        assert!(error.to_string().contains("To fix it: "), "{error}");
        let usual = MempoolConfig::new(name, 1023);
        assert_eq!(Mempool::new(eal(), &usual).unwrap().available(), 1023);
    }
}
