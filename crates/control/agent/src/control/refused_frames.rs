//! The frames that the device of a port refused, between two looks at its counter.

use millrace_types::{Duration, Time};

/// The minimum interval between two log lines about a port.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// The refused frames of a port.
#[derive(Default, Debug)]
pub(super) struct RefusedFrames {
    counted: u64,
    logged: u64,
    next_log: Time,
}

impl RefusedFrames {
    /// Returns the number of frames since the last call, and remembers the counter.
    pub(super) fn advance(&mut self, total: u64) -> u64 {
        // The device of a port is opened again with a counter of zero.
        if total < self.counted {
            *self = RefusedFrames {
                next_log: self.next_log,
                ..RefusedFrames::default()
            };
        }
        let new = total - self.counted;
        self.counted = total;
        new
    }

    /// Returns the number of frames to log now; `None` if the last line is too recent.
    pub(super) fn admit_log(&mut self, now: Time) -> Option<u64> {
        if now < self.next_log {
            return None;
        }
        self.next_log = now + LOG_INTERVAL;
        let frames = self.counted - self.logged;
        self.logged = self.counted;
        Some(frames)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_refused_frame_counts_once_and_a_line_tells_all_since_the_last_line() {
        let (mut frames, second) = (RefusedFrames::default(), Duration::from_secs(1));
        let now = Time::ZERO + second;
        assert_eq!((frames.advance(3), frames.admit_log(now)), (3, Some(3)));
        assert_eq!((frames.advance(5), frames.admit_log(now + second)), (2, None));
        assert_eq!(
            (frames.advance(6), frames.admit_log(now + LOG_INTERVAL)),
            (1, Some(3))
        );
        assert_eq!(frames.advance(6), 0);
        assert_eq!(frames.advance(2), 2, "the device was opened again");
    }
}
