//! Wakes a thread that waits for descriptors, when another one has something for it.

use nix::sys::eventfd::{EfdFlags, EventFd};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};

/// An event descriptor that is written only while the other thread waits, and read only if it was written.
#[derive(Debug)]
pub(crate) struct Waker {
    event: EventFd,
    armed: AtomicBool,
    written: AtomicBool,
}

impl Waker {
    pub(crate) fn new() -> std::io::Result<Waker> {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        Ok(Waker {
            event: EventFd::from_value_and_flags(0, flags)?,
            armed: AtomicBool::new(false),
            written: AtomicBool::new(false),
        })
    }

    /// Announces that the caller is about to wait. The caller must then look for work once more, because
    /// earlier work does not wake it.
    pub(crate) fn arm(&self) {
        self.armed.store(true, Ordering::SeqCst);
    }

    /// Withdraws the announcement, and empties the descriptor.
    pub(crate) fn disarm(&self) {
        self.armed.store(false, Ordering::SeqCst);
        if self.written.swap(false, Ordering::SeqCst) {
            // The descriptor does not block.
            let _ = self.event.read();
        }
    }

    /// Lets the next wait of the thread end at once, if it does not wait now.
    pub(crate) fn wake_next(&self) {
        self.armed.store(false, Ordering::SeqCst);
        self.write();
    }

    /// Makes the descriptor readable. If [`Waker::disarm`] runs between the two steps, it leaves the
    /// descriptor readable, and the next call empties it.
    fn write(&self) {
        let _ = self.event.write(1);
        self.written.store(true, Ordering::SeqCst);
    }

    /// Wakes the thread if it waits. The caller must queue the work before the call.
    pub(crate) fn wake(&self) {
        if self.armed.swap(false, Ordering::SeqCst) {
            self.write();
        }
    }
}

impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

    fn is_readable(waker: &Waker) -> bool {
        let mut fds = [PollFd::new(waker.as_fd(), PollFlags::POLLIN)];
        poll(&mut fds, PollTimeout::ZERO).unwrap() == 1
    }

    #[test]
    fn only_a_thread_that_waits_is_woken_and_only_once() {
        let waker = Waker::new().unwrap();
        waker.wake();
        assert!(!is_readable(&waker), "nobody waits");
        waker.arm();
        waker.wake();
        waker.wake();
        assert!(is_readable(&waker));
        waker.disarm();
        assert!(!is_readable(&waker));
        waker.arm();
        waker.disarm();
        waker.wake();
        assert!(!is_readable(&waker));
        waker.wake_next();
        assert!(is_readable(&waker), "the thread would have waited next");
        waker.disarm();
        assert!(!is_readable(&waker));
    }
}
