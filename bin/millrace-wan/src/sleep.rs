//! The sleep of a thread without work, which ends when a frame arrives or is due.
//!
//! ```text
//!  interface readable ─┐
//!  event of another ───┼─► awake
//!  thread              │
//!  next frame due ─────┘
//! ```
//!
//! A thread that puts a frame into the path wakes the others: the frame may be due at their end before they would look.
//! A sleeper announces its sleep and then looks once more for due frames; the other thread puts its frame and then looks
//! for the announcement. Both orders are sequentially consistent, so one of them sees the other's step.

use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::time::Duration;

use anyhow::{Context, Result};
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::socket::{getsockopt, sockopt};
use nix::sys::time::TimeSpec;

/// The longest sleep: the time within which a thread sees the end of the program, and an interface that came back.
const SLEEP_MAX: Duration = Duration::from_millis(100);

/// The sleep of one thread.
#[derive(Debug)]
pub(crate) struct Sleeper {
    event: EventFd,
    is_asleep: AtomicBool,
}

impl Sleeper {
    fn new() -> Result<Sleeper> {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        Ok(Sleeper {
            event: EventFd::from_value_and_flags(0, flags).context("an event to wake a thread")?,
            is_asleep: AtomicBool::new(false),
        })
    }
}

/// The sleep of a thread, and the other threads, which it wakes.
#[derive(Debug, Clone)]
pub(crate) struct Sleepers {
    own: Arc<Sleeper>,
    others: Vec<Arc<Sleeper>>,
}

impl Sleepers {
    /// Returns the sleepers of each of `count` threads.
    pub(crate) fn of_threads(count: usize) -> Result<Vec<Sleepers>> {
        let all: Vec<Arc<Sleeper>> = (0..count)
            .map(|_| Sleeper::new().map(Arc::new))
            .collect::<Result<_>>()?;
        let of_thread = |own: &Arc<Sleeper>| Sleepers {
            own: Arc::clone(own),
            others: all
                .iter()
                .filter(|other| !Arc::ptr_eq(own, other))
                .cloned()
                .collect(),
        };
        Ok(all.iter().map(of_thread).collect())
    }

    /// Wakes the other threads that sleep. Call it after a frame was put into the path.
    pub(crate) fn wake_others(&self) {
        if self.others.is_empty() {
            return;
        }
        fence(Ordering::SeqCst);
        for other in &self.others {
            if other.is_asleep.load(Ordering::SeqCst) {
                // A full counter wakes the thread, too.
                let _full = other.event.write(1);
            }
        }
    }

    /// Sleeps until one of the descriptors is readable, another thread wakes this one, or the time has passed that `due_in`
    /// returns, which is called after the sleep was announced.
    pub(crate) fn sleep(&self, inputs: &[OwnedFd], due_in: impl FnOnce() -> Duration) {
        self.own.is_asleep.store(true, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        let time = due_in().min(SLEEP_MAX);
        if !time.is_zero() {
            let files = inputs.iter().map(OwnedFd::as_fd).chain([self.own.event.as_fd()]);
            let mut files: Vec<PollFd<'_>> = files.map(|file| PollFd::new(file, PollFlags::POLLIN)).collect();
            // An interrupted sleep only ends early.
            let _interrupted = ppoll(&mut files, Some(TimeSpec::from_duration(time)), None);
            for (input, file) in inputs.iter().zip(&files) {
                // The error of an interface that went down would end each sleep until it is read.
                if file
                    .revents()
                    .is_some_and(|events| events.contains(PollFlags::POLLERR))
                {
                    let _read = getsockopt(input, sockopt::SocketError);
                }
            }
        }
        self.own.is_asleep.store(false, Ordering::SeqCst);
        // Fails if no thread has written.
        let _empty = self.own.event.read();
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::time::Instant;

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn a_sleep_ends_with_input_with_a_wake_up_of_another_thread_and_at_the_due_time() {
        let [own, other] = Sleepers::of_threads(2).unwrap().try_into().unwrap();
        let (near, mut far) = std::os::unix::net::UnixStream::pair().unwrap();
        let inputs = [OwnedFd::from(near)];
        let begun = Instant::now();
        own.sleep(&inputs, || Duration::from_millis(2));
        assert!(begun.elapsed() >= Duration::from_millis(2));
        // The other thread puts its frame after this one looked, and before it sleeps.
        own.sleep(&inputs, || {
            other.wake_others();
            LONG
        });
        assert!(own.own.event.read().is_err(), "the wake-up was taken");
        far.write_all(b"x").unwrap();
        own.sleep(&inputs, || LONG);
        // A busy machine may not run this thread for as long as a sleep lasts, but not each time.
        let is_short = (0..100).any(|_| {
            let begun = Instant::now();
            own.sleep(&inputs, || LONG);
            begun.elapsed() < SLEEP_MAX
        });
        assert!(is_short, "the input is still there");
    }

    #[test]
    fn a_thread_that_is_awake_is_not_woken() {
        let [own, other] = Sleepers::of_threads(2).unwrap().try_into().unwrap();
        other.wake_others();
        assert!(own.own.event.read().is_err());
    }
}
