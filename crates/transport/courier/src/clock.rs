//! The clock of one thread, and how it waits: the protocol counts from the thread's start, QUIC takes the system's monotonic time.

use millrace_types::Time;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::time::TimeSpec;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

/// A wait this short is spent in a loop: the kernel wakes later than asked.
const SPIN: Duration = Duration::from_micros(60);

/// A clock that started at zero.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock(Instant);

impl Clock {
    pub(crate) fn start() -> Clock {
        Clock(Instant::now())
    }

    /// Returns the time of the protocol.
    pub(crate) fn now(&self) -> Time {
        Time::from_nanos(u64::try_from(self.0.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    /// Returns the system's time of a time of the protocol.
    pub(crate) fn instant(&self, time: Time) -> Instant {
        self.0 + Duration::from_nanos(time.nanos())
    }
}

/// Returns a descriptor that is readable when the user or the system asks this process to end (SIGINT, SIGTERM). To be called
/// before other threads start: they inherit the signal mask.
///
/// # Errors
/// If the kernel gives no descriptor.
pub fn interrupts() -> std::io::Result<SignalFd> {
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGINT);
    signals.add(Signal::SIGTERM);
    signals.thread_block()?;
    Ok(SignalFd::with_flags(&signals, SfdFlags::SFD_CLOEXEC)?)
}

/// Waits until a descriptor is readable or the time has come; returns true if the second one, the stop, is readable.
pub(crate) fn wait(
    socket: BorrowedFd<'_>,
    stop: Option<BorrowedFd<'_>>,
    until: Instant,
) -> std::io::Result<bool> {
    let left = until.saturating_duration_since(Instant::now());
    let timeout = left.checked_sub(SPIN).unwrap_or(Duration::ZERO);
    let mut fds = vec![PollFd::new(socket, PollFlags::POLLIN)];
    fds.extend(stop.map(|stop| PollFd::new(stop, PollFlags::POLLIN)));
    match ppoll(&mut fds, Some(TimeSpec::from_duration(timeout)), None) {
        Ok(_) | Err(nix::errno::Errno::EINTR) => {}
        Err(error) => return Err(error.into()),
    }
    Ok(fds.get(1).and_then(PollFd::any).unwrap_or(false))
}
