//! Wakes a peer that sleeps until its eventfd is written to.
//!
//! The eventfd is the peer's, too: it may fill the counter and have the write wait for ever. So a thread of its own writes,
//! made when a peer asks for it first; polling peers, as those with DPDK are, never do. A peer that holds it up holds up
//! its own bell.

use core::sync::atomic::{AtomicBool, Ordering};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::Thread;

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

/// Of one interface.
#[derive(Default)]
pub(super) struct Bell {
    rung: AtomicBool,
    is_closed: AtomicBool,
    thread: OnceLock<Thread>,
    eventfd: Mutex<Option<Arc<File>>>,
}

impl Bell {
    /// A worker's: has the peer woken. Returns whether there is a thread to do it.
    pub(super) fn ring(&self) -> bool {
        self.rung.store(true, Ordering::Release);
        match self.thread.get() {
            Some(thread) => {
                thread.unpark();
                true
            }
            None => false,
        }
    }

    /// Whom to wake from now on.
    pub(super) fn set(&self, eventfd: Option<OwnedFd>) {
        let eventfd = eventfd.filter(is_eventfd).map(|file| Arc::new(File::from(file)));
        let mut held = self.eventfd.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(old) = core::mem::replace(&mut *held, eventfd) {
            release(&old);
        }
    }

    /// Makes the thread, if it was asked for and is not there.
    pub(super) fn attend(self: &Arc<Self>, name: &str) {
        if !self.rung.load(Ordering::Acquire) || self.thread.get().is_some() {
            return;
        }
        let bell = Arc::clone(self);
        let made = std::thread::Builder::new()
            .name(format!("bell-{name}"))
            .spawn(move || bell.run());
        match made {
            // It may wait for the peer when we end, and so nobody waits for it.
            Ok(thread) => drop(self.thread.set(thread.thread().clone())),
            Err(error) => tracing::warn!(%error, bell = name, "no thread to wake a peer"),
        }
    }

    fn run(&self) {
        while !self.is_closed.load(Ordering::Acquire) {
            if !self.rung.swap(false, Ordering::AcqRel) {
                std::thread::park();
                continue;
            }
            let held = self.eventfd.lock().unwrap_or_else(PoisonError::into_inner);
            let eventfd = held.clone();
            drop(held);
            if let Some(eventfd) = eventfd {
                // A counter that is full has woken it already.
                let _full = (&*eventfd).write(&1_u64.to_ne_bytes());
            }
        }
    }

    /// The interface goes.
    pub(super) fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
        self.set(None);
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }
}

/// Nothing else is written to: whoever sends a file must not have us change it.
fn is_eventfd(file: &OwnedFd) -> bool {
    std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()))
        .is_ok_and(|kind| kind.as_os_str() == "anon_inode:[eventfd]")
}

/// Lets a write go on that waits because the peer has filled the counter.
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
        let bell = Arc::new(Bell::default());
        let theirs = eventfd(0, EventfdFlags::NONBLOCK).unwrap();
        bell.set(Some(theirs.try_clone().unwrap()));
        bell.attend("t");
        assert!(bell.thread.get().is_none(), "nobody has rung");
        assert!(!bell.ring());
        bell.attend("t");
        let mut file = File::from(theirs);
        for _ in 0..2 {
            wait_for(|| file.read(&mut [0; 8]).is_ok());
            assert!(bell.ring());
        }
        bell.close();
    }

    #[test]
    fn a_peer_that_fills_its_counter_holds_up_its_own_bell_until_it_goes() {
        let bell = Arc::new(Bell::default());
        let theirs = eventfd(0, EventfdFlags::empty()).unwrap();
        File::from(theirs.try_clone().unwrap())
            .write_all(&(u64::MAX - 1).to_ne_bytes())
            .unwrap();
        bell.set(Some(theirs));
        bell.ring();
        bell.attend("t");
        wait_for(|| !bell.rung.load(Ordering::Acquire));
        bell.set(None);
        bell.close();
        // Its thread ends: nobody else has it.
        wait_for(|| Arc::strong_count(&bell) == 1);
    }

    #[test]
    fn what_is_no_eventfd_is_not_written_to() {
        let bell = Bell::default();
        bell.set(Some(File::open("/dev/null").unwrap().into()));
        assert!(bell.eventfd.lock().unwrap().is_none());
    }
}
