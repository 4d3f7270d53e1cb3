//! Sockets that `net_af_xdp` leaves open when it is closed.
//!
//! The driver of 22.11 does not close the AF_XDP socket of each queue; the driver of 24.11 does. With 22.11,
//! the kernel keeps the interface's queue bound until the process ends, and attaching the interface again
//! fails. This module records the sockets that a start opened, and closes those that are still open after the
//! device is removed. The 2,048 buffers that the driver put into the fill ring of each queue remain lost to
//! the pool: no reference to them exists.
//!
//! The kernel frees the interface's queue shortly after its socket is closed, so [`settle`] waits before the next
//! start.

use std::fs;
use std::os::fd::RawFd;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use millrace_dpdk_sys as sys;
use parking_lot::Mutex;

/// Waiting time after a socket is closed. The kernel frees the interface's queue in a work queue, after an RCU grace
/// period; 20 ms sufficed on Linux 6.18.
const SETTLING: Duration = Duration::from_millis(100);

static LAST_CLOSED: Mutex<Option<Instant>> = Mutex::new(None);

/// Waits until the kernel has had time to release the sockets that were closed, here or by the driver.
pub(super) fn settle() {
    let last = *LAST_CLOSED.lock();
    if let Some(remaining) = last.and_then(|last| SETTLING.checked_sub(last.elapsed())) {
        std::thread::sleep(remaining);
    }
}

/// AF_XDP sockets of this process: the descriptor, and the target of its link in `/proc/self/fd`.
#[derive(Debug, Default)]
pub(super) struct DriverResources {
    sockets: Vec<(RawFd, PathBuf)>,
}

impl DriverResources {
    /// Returns the AF_XDP sockets that are open now.
    pub(super) fn now() -> Self {
        let Ok(entries) = fs::read_dir("/proc/self/fd") else {
            return Self::default();
        };
        let socket = |entry: fs::DirEntry| {
            let fd = entry.file_name().to_str()?.parse().ok()?;
            // SAFETY: the function asks the kernel about a descriptor, which may be of any kind, open or closed.
            let is_af_xdp = unsafe { sys::shim_is_af_xdp(fd) != 0 };
            // "socket:[inode]" distinguishes the socket from a later socket with the same descriptor.
            is_af_xdp.then_some((fd, fs::read_link(entry.path()).ok()?))
        };
        Self {
            sockets: entries.flatten().filter_map(socket).collect(),
        }
    }

    /// Returns the AF_XDP sockets that are open now and are not in `before`.
    pub(super) fn since(before: &Self) -> Self {
        let mut new = Self::now();
        new.sockets.retain(|socket| !before.sockets.contains(socket));
        new
    }

    pub(super) fn extend(&mut self, other: Self) {
        self.sockets.extend(other.sockets);
    }

    /// Closes the sockets that are still open, and records the time.
    pub(super) fn close(&mut self) {
        if self.sockets.is_empty() {
            return;
        }
        let open = Self::now();
        for socket in self
            .sockets
            .drain(..)
            .filter(|socket| open.sockets.contains(socket))
        {
            // The driver does not use this descriptor again, and its target is unchanged, so it has no other owner.
            if let Err(error) = nix::unistd::close(socket.0) {
                tracing::warn!(%error, "an AF_XDP socket stays open");
            }
        }
        *LAST_CLOSED.lock() = Some(Instant::now());
    }
}
