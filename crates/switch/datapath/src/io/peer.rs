//! Common parts of ports whose other end is a process that need not be trusted: memif and vhost-user.

use core::sync::atomic::{AtomicU64, Ordering};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use millrace_types::Mac;
use parking_lot::Mutex;
use rustix::event::{EventfdFlags, eventfd};

use super::vnic::VnicSpec;
use super::{DeviceStats, OpenError};

/// Wakes a control thread. Only this process has the eventfd, so a write never blocks.
pub(super) struct WakeEvent(OwnedFd);

impl WakeEvent {
    pub(super) fn new() -> rustix::io::Result<WakeEvent> {
        eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map(WakeEvent)
    }

    pub(super) fn wake(&self) {
        // A full counter has woken the thread already.
        let _full = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }

    pub(super) fn clear(&self) {
        let _empty = rustix::io::read(&self.0, &mut [0_u8; 8]);
    }
}

impl AsFd for WakeEvent {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Counters of a port other than those of packets.
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

/// Logs the ends of a port's connections, at most one in each [`LOG_INTERVAL`], so that peers that reconnect all the
/// time do not fill the log.
#[derive(Default)]
pub(super) struct CloseLog(Mutex<CloseLogState>);

#[derive(Default)]
struct CloseLogState {
    last: Option<Instant>,
    suppressed: u64,
}

/// Minimum interval between two log lines of a port.
const LOG_INTERVAL: Duration = Duration::from_secs(1);

impl CloseLog {
    /// Logs why a connection was closed, with the number of closes that were not logged since the last one.
    pub(super) fn log(&self, device: &str, reason: &dyn core::fmt::Display) {
        let mut state = self.0.lock();
        let now = Instant::now();
        if state.last.is_some_and(|last| now - last < LOG_INTERVAL) {
            state.suppressed += 1;
            return;
        }
        state.last = Some(now);
        let suppressed = core::mem::take(&mut state.suppressed);
        tracing::warn!(device, %reason, suppressed, "peer connection closed");
    }
}

/// Returns the MAC address of a port: locally administered, and derived from the name, so that it is the same at each
/// start.
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
        next_step: "raise the limits of file descriptors and threads (ulimit -n -u)".to_owned(),
    }
}
