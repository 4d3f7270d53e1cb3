//! What ports have in common whose other end is a process that need not be trusted: memif, and vhost-user.

use core::sync::atomic::{AtomicU64, Ordering};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use millrace_types::Mac;
use rustix::event::{EventfdFlags, eventfd};

use super::vnic::VnicSpec;
use super::{DeviceStats, OpenError};

/// Has a thread look around. Ours alone, so that a write never waits.
pub(super) struct Wake(OwnedFd);

impl Wake {
    pub(super) fn new() -> rustix::io::Result<Wake> {
        eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map(Wake)
    }

    pub(super) fn wake(&self) {
        // Full: it was woken often enough.
        let _full = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }

    pub(super) fn clear(&self) {
        let _empty = rustix::io::read(&self.0, &mut [0_u8; 8]);
    }
}

impl AsFd for Wake {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// What is counted beside packets.
#[derive(Default)]
pub(super) struct Counters {
    pub(super) rx_errors: AtomicU64,
    pub(super) no_buffer: AtomicU64,
    pub(super) tx_errors: AtomicU64,
}

impl Counters {
    pub(super) fn read(&self) -> DeviceStats {
        DeviceStats {
            rx_missed: 0,
            rx_errors: self.rx_errors.load(Ordering::Relaxed),
            rx_no_buffer: self.no_buffer.load(Ordering::Relaxed),
            tx_errors: self.tx_errors.load(Ordering::Relaxed),
        }
    }
}

/// Adds to a counter.
pub(super) fn count(counter: &AtomicU64, by: usize) {
    counter.fetch_add(by as u64, Ordering::Relaxed);
}

/// When the log was told of a port's peers, so that those who come again and again do not fill it.
#[derive(Default)]
pub(super) struct Told(Mutex<Telling>);

#[derive(Default)]
struct Telling {
    last: Option<Instant>,
    untold: u64,
}

/// How often the log is told of a port's peers, at most.
const TELL_EVERY: Duration = Duration::from_secs(1);

impl Told {
    /// Tells the log why a peer was sent away, with how often that was not told.
    pub(super) fn tell(&self, device: &str, reason: &dyn core::fmt::Display) {
        let mut telling = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        if telling.last.is_some_and(|last| now - last < TELL_EVERY) {
            telling.untold += 1;
            return;
        }
        telling.last = Some(now);
        let untold = core::mem::take(&mut telling.untold);
        tracing::warn!(device, %reason, untold, "a peer was sent away");
    }
}

/// One that is the same each time: locally administered, by the name of the interface.
pub(super) fn mac_of(spec: &VnicSpec) -> Mac {
    let mut hasher = DefaultHasher::new();
    spec.hash(&mut hasher);
    let [a, b, c, d, e, ..] = hasher.finish().to_be_bytes();
    Mac([0x02, a, b, c, d, e])
}

/// Returns the error of a device for which the kernel provides no file descriptor or no thread.
pub(super) fn failed(device: &dyn core::fmt::Display, error: &dyn core::fmt::Display) -> OpenError {
    OpenError::Failed {
        device: device.to_string(),
        reason: error.to_string(),
        remedy: "see the limits of this process: ulimit -n -u".to_owned(),
    }
}
