//! Notifies a peer that sleeps until its eventfd is written to: the interrupt of memif, the call of vhost-user.
//!
//! The peer also has the eventfd, and may fill its counter, so that a write would block for ever. A separate
//! thread therefore writes. It is created when a peer asks for a notification for the first time; peers that
//! poll, such as those with DPDK, never ask. A peer that fills the counter delays only its own notifications.
//!
//! ```text
//!   worker: notify() -> is_pending -> unpark thread -> write(eventfd)
//!   control thread: ensure_thread() creates the thread once is_pending was set
//! ```

use core::sync::atomic::{AtomicBool, Ordering};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, OnceLock};
use std::thread::Thread;

use parking_lot::Mutex;
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

/// The notifier of one ring or interface.
#[derive(Default)]
pub(super) struct Notifier {
    is_pending: AtomicBool,
    is_closed: AtomicBool,
    thread: OnceLock<Thread>,
    eventfd: Mutex<Option<Arc<File>>>,
}

impl Notifier {
    /// Requests a notification; called by a worker. Returns false if the thread that sends it does not exist
    /// yet.
    pub(super) fn notify(&self) -> bool {
        self.is_pending.store(true, Ordering::Release);
        match self.thread.get() {
            Some(thread) => {
                thread.unpark();
                true
            }
            None => false,
        }
    }

    /// Sets the eventfd for later notifications.
    pub(super) fn set_eventfd(&self, eventfd: Option<OwnedFd>) {
        let eventfd = eventfd.filter(is_eventfd).map(|file| Arc::new(File::from(file)));
        let mut current = self.eventfd.lock();
        if let Some(old) = core::mem::replace(&mut *current, eventfd) {
            release(&old);
        }
        drop(current);
        // The notification is repeated, because the peer may not have read the last one from the former
        // eventfd. One notification too many does no harm. A peer that polls has no thread, and gets none
        // here.
        if self.thread.get().is_some() {
            self.notify();
        }
    }

    /// Creates the thread if a notification was requested and there is none yet. Wakes an existing thread: a worker
    /// whose request found none may have made it after the new thread began to sleep.
    pub(super) fn ensure_thread(self: &Arc<Self>, name: &str) {
        if !self.is_pending.load(Ordering::Acquire) {
            return;
        }
        if let Some(thread) = self.thread.get() {
            return thread.unpark();
        }
        let notifier = Arc::clone(self);
        let spawned = std::thread::Builder::new()
            .name(format!("notify-{name}"))
            .spawn(move || notifier.run());
        match spawned {
            // The thread may block in a write to the peer's eventfd, so it is never joined.
            Ok(thread) => drop(self.thread.set(thread.thread().clone())),
            Err(error) => {
                tracing::warn!(%error, ring = name, "the thread that notifies a peer cannot be started; the peer must poll");
            }
        }
    }

    fn run(&self) {
        while !self.is_closed.load(Ordering::Acquire) {
            if !self.is_pending.swap(false, Ordering::AcqRel) {
                std::thread::park();
                continue;
            }
            let current = self.eventfd.lock();
            let eventfd = current.clone();
            drop(current);
            if let Some(eventfd) = eventfd {
                // A full counter has woken the peer already.
                let _full = (&*eventfd).write(&1_u64.to_ne_bytes());
            }
        }
    }

    /// Ends the thread; called when the port is removed.
    pub(super) fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
        self.set_eventfd(None);
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }
}

/// Returns true if the file is an eventfd. No other file is written to: a peer must not make the switch
/// change it.
fn is_eventfd(file: &OwnedFd) -> bool {
    std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()))
        .is_ok_and(|kind| kind.as_os_str() == "anon_inode:[eventfd]")
}

/// Unblocks a write that waits because the peer has filled the counter.
fn release(eventfd: &File) {
    let flags = fcntl_getfl(eventfd).unwrap_or(OFlags::empty());
    if fcntl_setfl(eventfd, flags | OFlags::NONBLOCK).is_ok() {
        let mut count = [0; 8];
        let _empty = (&*eventfd).read(&mut count);
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use rustix::event::{EventfdFlags, eventfd};

    use super::*;

    fn wait_for(mut condition: impl FnMut() -> bool) {
        let deadline = Instant::now() + Duration::from_secs(20);
        while !condition() {
            assert!(Instant::now() < deadline);
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    #[test]
    fn a_peer_is_woken_by_a_thread_that_is_made_when_it_is_needed() {
        let notifier = Arc::new(Notifier::default());
        let theirs = eventfd(0, EventfdFlags::NONBLOCK).unwrap();
        notifier.set_eventfd(Some(theirs.try_clone().unwrap()));
        notifier.ensure_thread("t");
        assert!(notifier.thread.get().is_none(), "nothing was requested");
        assert!(!notifier.notify());
        notifier.ensure_thread("t");
        let mut file = File::from(theirs);
        for _ in 0..2 {
            wait_for(|| file.read(&mut [0; 8]).is_ok());
            assert!(notifier.notify());
        }
        notifier.close();
    }

    #[test]
    fn a_peer_that_fills_its_counter_holds_up_its_own_bell_until_it_goes() {
        let notifier = Arc::new(Notifier::default());
        let theirs = eventfd(0, EventfdFlags::empty()).unwrap();
        File::from(theirs.try_clone().unwrap())
            .write_all(&(u64::MAX - 1).to_ne_bytes())
            .unwrap();
        notifier.set_eventfd(Some(theirs));
        notifier.notify();
        notifier.ensure_thread("t");
        wait_for(|| !notifier.is_pending.load(Ordering::Acquire));
        notifier.set_eventfd(None);
        notifier.close();
        // The thread has ended: it holds no reference.
        wait_for(|| Arc::strong_count(&notifier) == 1);
    }

    #[test]
    fn a_notification_in_an_eventfd_that_is_replaced_comes_by_the_new_one() {
        let notifier = Arc::new(Notifier::default());
        let flags = EventfdFlags::NONBLOCK;
        let (first, second) = (eventfd(0, flags).unwrap(), eventfd(0, flags).unwrap());
        notifier.set_eventfd(Some(first.try_clone().unwrap()));
        notifier.notify();
        notifier.ensure_thread("t");
        // The peer does not read it.
        wait_for(|| !notifier.is_pending.load(Ordering::Acquire));
        notifier.set_eventfd(Some(second.try_clone().unwrap()));
        let mut second = File::from(second);
        wait_for(|| second.read(&mut [0; 8]).is_ok());
        notifier.close();
    }

    #[test]
    fn a_request_that_came_before_the_thread_was_known_wakes_it() {
        let notifier = Arc::new(Notifier::default());
        let (parked, woken) = (Arc::clone(&notifier), Arc::new(AtomicBool::new(false)));
        let seen = Arc::clone(&woken);
        // The new thread finds no request and sleeps.
        let thread = std::thread::spawn(move || {
            while !seen.load(Ordering::Acquire) {
                std::thread::park();
                seen.store(parked.is_pending.load(Ordering::Acquire), Ordering::Release);
            }
        });
        assert!(!notifier.notify());
        notifier.thread.set(thread.thread().clone()).unwrap();
        notifier.ensure_thread("t");
        wait_for(|| woken.load(Ordering::Acquire));
        thread.join().unwrap();
    }

    #[test]
    fn what_is_no_eventfd_is_not_written_to() {
        let notifier = Notifier::default();
        notifier.set_eventfd(Some(File::open("/dev/null").unwrap().into()));
        assert!(notifier.eventfd.lock().is_none());
    }
}
