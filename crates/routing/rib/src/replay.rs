//! Replays of FPM: zebra names all that it has when it connects, changes in between, and FRR 8.4.4 marks no end.

use millrace_types::{Duration, Time};

/// How long FPM must name nothing of an earlier connection again until its replay counts as complete.
pub const REPLAY_QUIET: Duration = Duration::from_secs(5);
/// How long messages that come without a pause delay the end of the first replay.
pub const FIRST_REPLAY_MAX: Duration = Duration::from_secs(60);

/// A replay that is under way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Replay {
    begun: Time,
    /// When the last message came that belongs to the replay, as far as one can tell.
    last: Time,
    /// True if an earlier connection has left routes, which are swept at the end.
    sweeps: bool,
    /// True if the message that is handled names something that only the earlier connection has named.
    has_renewed: bool,
}

impl Replay {
    pub(crate) fn new(now: Time, sweeps: bool) -> Replay {
        Replay {
            begun: now,
            last: now,
            sweeps,
            has_renewed: false,
        }
    }

    /// Notes what an earlier connection has named, and this message names again.
    pub(crate) fn renew(&mut self) {
        self.has_renewed = true;
    }

    /// Notes that a message was handled. Only what is renewed delays a sweep: steady changes of other routes do not, or a full
    /// table of the Internet would never be swept. Each route is renewed once, so that the delay has an end. The first replay
    /// renews nothing, and its end is shown only: every message may delay it, for a while.
    pub(crate) fn handled(&mut self, now: Time) {
        let may_belong = !self.sweeps && now < self.begun + FIRST_REPLAY_MAX;
        if core::mem::take(&mut self.has_renewed) || may_belong {
            self.last = now;
        }
    }

    /// Returns when the replay is complete if no message comes that belongs to it.
    pub(crate) fn ends_at(&self) -> Time {
        self.last + REPLAY_QUIET
    }
}
