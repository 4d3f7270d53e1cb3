//! Huge pages are reserved for a start and released again. The tests need root and free memory; without them
//! they print a line and pass.

#![allow(clippy::unwrap_used, reason = "a test's helpers are tests too")]

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Command;

use crate::eal_once::{HUGE_PAGES, config};
use millrace_dpdk::eal::HugePages;
use millrace_dpdk::hugepages::{self, HugePagesError};
use millrace_dpdk::{Eal, EalConfig, EalError, Mempool, MempoolConfig};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Environment variable of a process that reserves this number of MiB, and dies before it drops its reservation.
const RESERVE_AND_DIE: &str = "MILLRACE_TEST_RESERVE_AND_DIE";

fn free_mib() -> u64 {
    hugepages::pools()
        .unwrap()
        .iter()
        .map(hugepages::Pool::free_mib)
        .sum()
}

fn persistent() -> u64 {
    let pools = hugepages::pools().unwrap();
    pools.iter().map(hugepages::Pool::persistent).sum()
}

/// A daemon under `ip netns exec` has another sysfs than one outside.
#[test]
fn only_one_process_of_the_machine_reserves_huge_pages_at_a_time() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("SKIPPED: a network namespace needs root");
        return;
    }
    let _held = HUGE_PAGES.lock();
    // A process takes the lock once, whatever its threads do.
    millrace_testing::own_process!();
    let is_free_elsewhere = || {
        let take = "mount -t sysfs sysfs /sys && exec flock --nonblock /dev true";
        let elsewhere = ["--net", "--mount", "sh", "-c", take];
        std::process::Command::new("unshare")
            .args(elsewhere)
            .status()
            .unwrap()
            .success()
    };
    let lock = hugepages::lock();
    assert!(!is_free_elsewhere());
    drop(lock);
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while !is_free_elsewhere() {
        assert!(
            std::time::Instant::now() < deadline,
            "the lock is not released, or another program holds it"
        );
    }
}

/// One test, since every step changes the state that the next one reads.
#[test]
fn huge_pages_are_reserved_mounted_used_and_given_back() {
    if let Ok(mib) = std::env::var(RESERVE_AND_DIE) {
        let lock = hugepages::lock();
        let _reservation = hugepages::reserve(&lock, mib.parse().unwrap()).unwrap();
        kill(Pid::this(), Signal::SIGKILL).unwrap();
    }
    let _held = HUGE_PAGES.lock();
    // EAL starts with huge pages here, and without in the other tests.
    millrace_testing::own_process!();
    let lock = hugepages::lock();
    let before = free_mib();
    let wanted = before + 64;
    let reservation = match hugepages::reserve(&lock, wanted) {
        Ok(reservation) => reservation,
        Err(error @ (HugePagesError::Permission { .. } | HugePagesError::Unsupported)) => {
            eprintln!("SKIPPED: {error}");
            return;
        }
        Err(error) => panic!("{error}"),
    };
    assert!(free_mib() >= wanted);
    let nothing = hugepages::reserve(&lock, 32).unwrap();
    drop(nothing);
    assert!(
        free_mib() >= wanted,
        "a reservation that added nothing removes nothing"
    );
    drop(reservation);
    assert_eq!(free_mib(), before);

    let too_many = hugepages::reserve(&lock, 1 << 40).unwrap_err();
    assert!(matches!(too_many, HugePagesError::NotEnough { .. }), "{too_many}");
    assert_eq!(free_mib(), before, "and nothing is taken meanwhile");

    drop(lock);
    let killed = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "huge::huge_pages_are_reserved_mounted_used_and_given_back",
        ])
        .env(RESERVE_AND_DIE, wanted.to_string())
        .status()
        .unwrap();
    assert_eq!(killed.signal(), Some(9), "{killed}");
    assert!(
        free_mib() >= wanted,
        "the pages of the killed process are still reserved"
    );
    let lock = hugepages::lock();
    drop(hugepages::reserve(&lock, before).unwrap());
    assert_eq!(free_mib(), before, "the next reservation gives them back");
    drop(lock);

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("huge");
    let mount = hugepages::private_mount(&path).unwrap();
    let is_mounted = |path: &Path| hugepages::mounts().contains(&(path.to_owned(), Some(2048)));
    assert!(is_mounted(mount.path()));
    drop(mount);
    assert!(!is_mounted(&path) && !path.exists());

    let persistent = persistent();
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
    assert_eq!(
        persistent,
        self::persistent(),
        "pages in use are surplus: the kernel gives them back when this process ends, however it ends"
    );
    let pool = Mempool::new(eal, &MempoolConfig::new("huge", 1023)).unwrap();
    let packet = pool.packet(&[7; 3000]).unwrap();
    eal.unmount_hugetlbfs();
    assert_eq!(
        packet.segments().flatten().filter(|&&byte| byte == 7).count(),
        3000,
        "memory in use stays"
    );
}
