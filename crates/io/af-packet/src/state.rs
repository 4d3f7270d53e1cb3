//! The state of a socket, for threads that do not receive.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use crate::sys;

/// A handle that reads the state of a socket from any thread.
#[derive(Clone, Debug)]
pub struct SocketState(Arc<OwnedFd>);

impl SocketState {
    pub(crate) fn new(socket: Arc<OwnedFd>) -> SocketState {
        SocketState(socket)
    }

    /// Returns and resets the number of packets that were dropped because no slot was free
    /// (`PACKET_STATISTICS`).
    #[must_use]
    pub fn take_drops(&self) -> u32 {
        sys::drops(&self.0).unwrap_or(0)
    }

    /// Returns true if the socket is bound to an interface. The kernel unbinds it for ever when the interface is deleted or
    /// leaves the network namespace, also if it comes back with the same index.
    #[must_use]
    pub fn is_bound(&self) -> bool {
        sys::bound_index(&self.0).is_ok_and(|index| index > 0)
    }
}
