//! Replays of FPM: zebra names all that it has when it connects, changes in between, and FRR 8.4.4 marks no end.

use millrace_types::{Duration, Time};

/// How long FPM must name nothing, or little, of an earlier connection again until its replay counts as complete.
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
    /// The number of routes and objects that were renewed since `counted_since`, for [`REPLAY_QUIET`] at most.
    count: u32,
    counted_since: Time,
    /// The most that was renewed in such a time before.
    most: u32,
}

impl Replay {
    pub(crate) fn new(now: Time, sweeps: bool) -> Replay {
        Replay {
            begun: now,
            last: now,
            sweeps,
            has_renewed: false,
            count: 0,
            counted_since: now,
            most: 0,
        }
    }

    /// Notes what an earlier connection has named, and this message names again.
    pub(crate) fn renew(&mut self) {
        self.has_renewed = true;
    }

    /// Notes that a message was handled.
    ///
    /// Only what is renewed delays a sweep: changes of other routes never end where a full table of the Internet is. Changes
    /// renew stale routes, too, but few: what is less than a tenth of the densest part of the replay delays nothing. The first
    /// replay renews nothing, and its end is shown only: every message may delay it, for a while.
    pub(crate) fn handled(&mut self, now: Time) {
        let is_of_replay = if core::mem::take(&mut self.has_renewed) {
            if now >= self.counted_since + REPLAY_QUIET {
                self.most = self.most.max(self.count);
                self.count = 0;
                self.counted_since = now;
            }
            self.count = self.count.saturating_add(1);
            self.count >= self.most / 10
        } else {
            !self.sweeps && now < self.begun + FIRST_REPLAY_MAX
        };
        if is_of_replay {
            self.last = now;
        }
    }

    /// Returns when the replay is complete if no message comes that belongs to it.
    pub(crate) fn ends_at(&self) -> Time {
        self.last + REPLAY_QUIET
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Renews a number of routes in each of the seconds, evenly, until the end; returns the time until then.
    fn renewed(replay: &mut Replay, begun: Time, per_second: impl Fn(u64) -> u32) -> Duration {
        let mut now = begun;
        while now < replay.ends_at() {
            let count = per_second(now.since(begun).as_secs());
            for _ in 0..count / 10 {
                replay.renew();
                replay.handled(now);
            }
            // Other routes change all the time.
            replay.handled(now);
            now = now + Duration::from_millis(100);
        }
        now.since(begun)
    }

    #[test]
    fn a_replay_lasts_as_long_as_it_renews_densely() {
        let begun = Time::from_secs(100);
        let cases: [(&str, &dyn Fn(u64) -> u32, u64); 4] = [
            ("nothing", &|_| 0, 5),
            (
                "40 seconds at one rate",
                &|second| if second < 40 { 5000 } else { 0 },
                45,
            ),
            (
                "at half the rate in the end",
                &|second| match second {
                    0..20 => 5000,
                    20..40 => 2500,
                    _ => 0,
                },
                45,
            ),
            (
                "then changes for ever",
                &|second| if second < 20 { 5000 } else { 200 },
                25,
            ),
        ];
        for (name, per_second, seconds) in cases {
            let passed = renewed(&mut Replay::new(begun, true), begun, per_second);
            let expected = Duration::from_secs(seconds);
            assert!(
                (expected - Duration::from_secs(1)..=expected + Duration::from_secs(5)).contains(&passed),
                "{name}: {passed:?}"
            );
        }
    }
}
