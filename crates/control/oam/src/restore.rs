//! Wait-to-restore: after a failure, a path is used again only when it has worked for a configured time.

use millrace_types::{Duration, Time};

/// The state of a path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// The path has not worked yet.
    Never,
    Live,
    Failed,
    /// The path has worked since this time.
    Waiting(Time),
}

/// Derives the state "live" from "works" and "fails". A path that works for the first time is live at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WaitToRestore {
    time: Duration,
    state: State,
}

impl WaitToRestore {
    /// Returns a path that has not worked yet, with this wait-to-restore time.
    pub const fn new(time: Duration) -> WaitToRestore {
        WaitToRestore {
            time,
            state: State::Never,
        }
    }

    /// Sets the wait-to-restore time.
    pub fn set_time(&mut self, time: Duration) {
        self.time = time;
    }

    /// Records whether the path works at `now`. Returns true if the path is live.
    pub fn update(&mut self, works: bool, now: Time) -> bool {
        self.state = match (self.state, works) {
            (State::Never, false) => State::Never,
            (_, false) => State::Failed,
            (State::Never | State::Live, true) => State::Live,
            (State::Failed, true) if self.time.is_zero() => State::Live,
            (State::Failed, true) => State::Waiting(now),
            (State::Waiting(since), true) if now >= since + self.time => State::Live,
            (State::Waiting(since), true) => State::Waiting(since),
        };
        self.is_live()
    }

    /// Returns true if the path is live.
    pub fn is_live(&self) -> bool {
        self.state == State::Live
    }

    /// Returns the time at which the path becomes live if it does not fail before.
    pub fn deadline(&self) -> Option<Time> {
        match self.state {
            State::Waiting(since) => Some(since + self.time),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_live_at_once_at_first_and_after_a_failure_only_when_it_worked_for_the_whole_time() {
        let mut path = WaitToRestore::new(Duration::from_secs(60));
        let at = Time::from_secs;
        assert!(!path.update(false, at(1)));
        assert!(path.update(true, at(2)));
        assert!(!path.update(false, at(3)));
        assert!(!path.update(true, at(4)));
        assert_eq!(path.deadline(), Some(at(64)));
        assert!(!path.update(false, at(50)), "a second failure begins again");
        assert!(!path.update(true, at(51)));
        assert!(!path.update(true, at(110)));
        assert!(path.update(true, at(111)));
        assert_eq!(path.deadline(), None);
    }
}
