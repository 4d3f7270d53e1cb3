//! The clock of one thread, and its wait for descriptors. The protocol's time counts from the thread's start;
//! QUIC uses the system's monotonic clock.

use millrace_types::Time;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::time::TimeSpec;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

/// A clock that started at zero.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock(Instant);

impl Clock {
    pub(crate) fn start() -> Clock {
        Clock(Instant::now())
    }

    /// Returns the time of the protocol.
    pub(crate) fn now(&self) -> Time {
        self.time(Instant::now())
    }

    /// Converts an instant of the system's clock to the protocol's time.
    pub(crate) fn time(&self, at: Instant) -> Time {
        let nanos = at.saturating_duration_since(self.0).as_nanos();
        Time::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// Converts a time of the protocol to an instant of the system's clock.
    pub(crate) fn instant(&self, time: Time) -> Instant {
        self.0 + Duration::from_nanos(time.nanos())
    }
}

/// Lets this thread's timers wake it exactly when they are due, not up to 50 µs later (PR_SET_TIMERSLACK,
/// prctl(2)).
pub(crate) fn precise_timers() {
    let _ = nix::sys::prctl::set_timerslack(1);
}

/// The descriptors that are readable after a wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Readable {
    /// The first descriptor is readable: the backend has a burst.
    pub(crate) io: bool,
    /// The last descriptor is readable: the user stops the session.
    pub(crate) stop: bool,
}

/// Waits until a descriptor is readable or a time has come. The descriptors are those of the backend, of the
/// waker and of the stop request.
pub(crate) fn wait(fds: &[Option<BorrowedFd<'_>>; 3], until: Instant) -> std::io::Result<Readable> {
    let timeout = until.saturating_duration_since(Instant::now());
    let has_stop = fds[2].is_some();
    let fds = fds.iter().flatten();
    let mut fds: Vec<PollFd<'_>> = fds.map(|fd| PollFd::new(*fd, PollFlags::POLLIN)).collect();
    match ppoll(&mut fds, Some(TimeSpec::from_duration(timeout)), None) {
        Ok(_) | Err(nix::errno::Errno::EINTR) => {}
        Err(error) => return Err(error.into()),
    }
    let readable = |fd: Option<&PollFd<'_>>| fd.and_then(PollFd::any).unwrap_or(false);
    Ok(Readable {
        io: readable(fds.first()),
        stop: has_stop && readable(fds.last()),
    })
}
