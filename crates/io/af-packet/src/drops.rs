//! The kernel's counter of dropped packets.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use crate::sys;

/// A handle that reads the kernel's drop counter of a socket from any thread.
#[derive(Clone, Debug)]
pub struct Drops(Arc<OwnedFd>);

impl Drops {
    pub(crate) fn new(socket: Arc<OwnedFd>) -> Drops {
        Drops(socket)
    }

    /// Returns and resets the number of packets that were dropped because no slot was free
    /// (`PACKET_STATISTICS`).
    #[must_use]
    pub fn take(&self) -> u32 {
        sys::drops(&self.0).unwrap_or(0)
    }
}
