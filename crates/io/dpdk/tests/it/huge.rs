//! Huge pages are reserved for a start and released again. Needs root and free memory; otherwise says so and passes.

#![allow(clippy::unwrap_used, reason = "a test's helpers are tests too")]

use std::path::Path;
use std::sync::PoisonError;

use crate::eal_once::{HUGE_PAGES, config};
use millrace_dpdk::eal::HugePages;
use millrace_dpdk::hugepages::{self, HugePagesError};
use millrace_dpdk::{Eal, EalConfig, EalError, Mempool, MempoolConfig};

fn free_mib() -> u64 {
    hugepages::pools()
        .unwrap()
        .iter()
        .map(hugepages::Pool::free_mib)
        .sum()
}

/// One test, since every step changes the state that the next one reads.
#[test]
fn huge_pages_are_reserved_mounted_used_and_given_back() {
    let _held = HUGE_PAGES.lock().unwrap_or_else(PoisonError::into_inner);
    // EAL starts with huge pages here, and without in the other tests.
    millrace_testing::own_process!();
    let before = free_mib();
    let wanted = before + 64;
    let reservation = match hugepages::reserve(wanted) {
        Ok(reservation) => reservation,
        Err(error @ (HugePagesError::Permission { .. } | HugePagesError::Unsupported)) => {
            eprintln!("SKIPPED: {error}");
            return;
        }
        Err(error) => panic!("{error}"),
    };
    assert!(free_mib() >= wanted);
    let nothing = hugepages::reserve(32).unwrap();
    drop(nothing);
    assert!(
        free_mib() >= wanted,
        "a reservation that added nothing takes nothing away"
    );
    drop(reservation);
    assert_eq!(free_mib(), before);

    let too_many = hugepages::reserve(1 << 40).unwrap_err();
    assert!(matches!(too_many, HugePagesError::TooFew { .. }), "{too_many}");
    assert_eq!(free_mib(), before, "and nothing is taken meanwhile");

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("huge");
    let mount = hugepages::private_mount(&path).unwrap();
    let is_mounted = |path: &Path| hugepages::mounts().contains(&(path.to_owned(), Some(2048)));
    assert!(is_mounted(mount.path()));
    drop(mount);
    assert!(!is_mounted(&path) && !path.exists());

    let impossible = EalConfig {
        memory_mib: u32::MAX,
        huge_pages: HugePages::Require,
        ..config()
    };
    let error = Eal::init(&impossible).unwrap_err();
    assert!(matches!(error, EalError::HugePages(_)), "{error}");
    assert!(Eal::current().is_none());

    let eal = Eal::init(&EalConfig {
        memory_mib: 64,
        huge_pages: HugePages::Require,
        ..config()
    })
    .unwrap();
    assert!(eal.has_huge_pages());
    let pool = Mempool::new(eal, &MempoolConfig::new("huge", 1023)).unwrap();
    let packet = pool.packet(&[7; 3000]).unwrap();
    eal.give_back();
    assert_eq!(
        packet.segments().flatten().filter(|&&byte| byte == 7).count(),
        3000,
        "memory in use stays"
    );
}
