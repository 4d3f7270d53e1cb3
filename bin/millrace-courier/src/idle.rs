//! A timer file descriptor for devices that have no descriptor to poll. It is readable at once while frames
//! arrive, and after a short sleep otherwise.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use nix::sys::time::TimeSpec;
use nix::sys::timer::{Expiration, TimerSetTimeFlags};
use nix::sys::timerfd::{ClockId, TimerFd, TimerFlags};

/// The number of consecutive polls without a frame before the first sleep.
const BUSY_POLLS: u32 = 64;
/// The first sleep; it doubles with each poll without a frame.
const FIRST: Duration = Duration::from_micros(10);
/// The longest sleep. It is the largest additional delay of a frame at an idle receiver.
const LONGEST: Duration = Duration::from_micros(160);
/// The time that makes the descriptor readable at once; zero would disarm it.
const NOW: Duration = Duration::from_nanos(1);

/// The timer, with the number of consecutive polls without a frame.
#[derive(Debug)]
pub(crate) struct IdleTimer {
    timer: TimerFd,
    polls: u32,
    /// The duration of the last call of [`IdleTimer::arm`].
    set: Option<Duration>,
}

impl IdleTimer {
    pub(crate) fn new() -> nix::Result<IdleTimer> {
        let flags = TimerFlags::TFD_CLOEXEC | TimerFlags::TFD_NONBLOCK;
        let mut idle = IdleTimer {
            timer: TimerFd::new(ClockId::CLOCK_MONOTONIC, flags)?,
            polls: 0,
            set: None,
        };
        idle.arm(NOW)?;
        Ok(idle)
    }

    /// Records that a poll found frames, and makes the descriptor readable at once.
    pub(crate) fn found(&mut self) -> nix::Result<()> {
        self.polls = 0;
        if self.set == Some(NOW) {
            return Ok(());
        }
        self.arm(NOW)
    }

    /// Records that a poll found no frame. After [`BUSY_POLLS`] such polls, sets the next sleep.
    pub(crate) fn missed(&mut self) -> nix::Result<()> {
        self.polls = self.polls.saturating_add(1);
        let Some(sleeps) = self.polls.checked_sub(BUSY_POLLS) else {
            return Ok(());
        };
        self.arm((FIRST * 2_u32.saturating_pow(sleeps.min(8))).min(LONGEST))
    }

    /// Makes the descriptor readable after this time.
    fn arm(&mut self, after: Duration) -> nix::Result<()> {
        self.set = Some(after);
        let expiration = Expiration::OneShot(TimeSpec::from_duration(after));
        self.timer.set(expiration, TimerSetTimeFlags::empty())
    }
}

impl AsFd for IdleTimer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.timer.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

    /// Returns true if the descriptor becomes readable within a time.
    fn is_readable(idle: &IdleTimer, within: u16) -> bool {
        let mut fds = [PollFd::new(idle.as_fd(), PollFlags::POLLIN)];
        poll(&mut fds, PollTimeout::from(within)).unwrap() == 1
    }

    #[test]
    fn the_descriptor_is_readable_at_once_while_frames_come_and_soon_when_they_do_not() {
        let mut idle = IdleTimer::new().unwrap();
        for _ in 0..1_000 {
            idle.missed().unwrap();
            assert!(is_readable(&idle, 10_000));
        }
        assert_eq!(idle.set, Some(LONGEST));
        idle.found().unwrap();
        assert!(is_readable(&idle, 10_000) && is_readable(&idle, 10_000));
        assert_eq!(idle.set, Some(NOW));
    }
}
