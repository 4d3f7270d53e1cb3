//! A process with EAL survives peers that truncate the memory which they share with it.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::os::fd::AsFd;
use std::ptr::null_mut;
use std::sync::Barrier;
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::eal_once::eal;
use millrace_shared_memory::Mapping;
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::unistd::ftruncate;

const ROUNDS: usize = 200;
const PAGE: usize = 4096;
/// The pages that the threads read, all at once.
const PAGES: [usize; 4] = [0, 0, 1, 2];

#[test]
fn threads_that_access_truncated_memory_at_once_all_read_zeros() {
    // A failure ends the process.
    millrace_testing::own_process!();
    eal();
    let (address, barrier) = (AtomicPtr::new(null_mut::<u8>()), Barrier::new(PAGES.len() + 1));
    std::thread::scope(|scope| {
        for page in PAGES {
            let (address, barrier) = (&address, &barrier);
            scope.spawn(move || {
                for _ in 0..ROUNDS {
                    barrier.wait();
                    let at = address.load(Ordering::Relaxed).wrapping_add(page * PAGE);
                    // SAFETY: the mapping has more pages, and exists until the second wait of this round.
                    let byte = unsafe { at.read_volatile() };
                    assert_eq!(byte, 0);
                    barrier.wait();
                }
            });
        }
        for _ in 0..ROUNDS {
            let file = memfd_create(c"peer", MFdFlags::MFD_CLOEXEC).unwrap();
            let size = 8 * PAGE;
            ftruncate(file.as_fd(), size as i64).unwrap();
            let mapping = Mapping::new(&file, 0, size).unwrap();
            // SAFETY: the file has not been truncated yet.
            unsafe { mapping.start().as_ptr().write_bytes(1, size) };
            ftruncate(file.as_fd(), 0).unwrap();
            address.store(mapping.start().as_ptr(), Ordering::Relaxed);
            barrier.wait();
            barrier.wait();
        }
    });
}
