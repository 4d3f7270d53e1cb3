//! The traffic to an address, minute by minute, for the last hour.

use millrace_ix_model::Timestamp;

/// The number of minutes.
const LEN: usize = 60;

/// A ring of minutes.
#[derive(Clone, Debug)]
pub(crate) struct Minutes {
    /// The bytes of each minute: those of packets that passed, and those of packets that switches dropped.
    bytes: [[f32; 2]; LEN],
    /// The number of the newest minute since the Unix epoch.
    newest: u64,
    /// The number of the first minute whose traffic is known.
    known_since: u64,
}

impl Minutes {
    /// Returns minutes without traffic. The traffic before `known_since` is not known.
    pub(crate) fn new(at: Timestamp, known_since: Timestamp) -> Minutes {
        Minutes {
            bytes: [[0.0; 2]; LEN],
            newest: minute(at),
            known_since: minute(known_since),
        }
    }

    pub(crate) fn add(&mut self, at: Timestamp, bytes: f64, is_dropped: bool) {
        let now = minute(at);
        self.known_since = self.known_since.min(now);
        // After the clock steps back, minutes that are in the future now have no traffic.
        while self.newest > now + 1 {
            self.newest = self.newest.min(now + 1 + LEN as u64);
            self.bytes[index(self.newest)] = [0.0; 2];
            self.newest -= 1;
        }
        while self.newest < now {
            self.newest = if now - self.newest > LEN as u64 {
                now - LEN as u64
            } else {
                self.newest + 1
            };
            self.bytes[index(self.newest)] = [0.0; 2];
        }
        self.bytes[index(now)][usize::from(is_dropped)] += bytes as f32;
    }

    /// Returns the minutes up to `now`, the oldest first, each with the bytes that passed and the bytes that
    /// were dropped; `None` if they are not known.
    pub(crate) fn until(&self, now: Timestamp) -> impl Iterator<Item = (u64, Option<[f64; 2]>)> + '_ {
        let now = minute(now);
        (now.saturating_sub(LEN as u64 - 1)..=now).map(|minute| {
            let is_stored = minute <= self.newest && self.newest - minute < LEN as u64;
            let bytes = if is_stored {
                self.bytes[index(minute)]
            } else {
                [0.0; 2]
            };
            let bytes = (minute >= self.known_since).then(|| bytes.map(f64::from));
            (minute, bytes)
        })
    }
}

fn minute(at: Timestamp) -> u64 {
    at.millis() / 60_000
}

fn index(minute: u64) -> usize {
    (minute % LEN as u64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn minutes_that_nobody_wrote_are_zero_and_old_ones_are_forgotten() {
        let at = |minute: u64| Timestamp::from_secs(minute * 60);
        let written = |minutes: &Minutes, end| -> Vec<_> {
            let all = minutes.until(at(end));
            let known = all.filter_map(|(minute, bytes)| Some((minute, bytes?)));
            known.filter(|(_, bytes)| *bytes != [0.0; 2]).collect()
        };
        let mut minutes = Minutes::new(at(1_000), at(998));
        let unknown = minutes.until(at(1_000)).filter(|(_, bytes)| bytes.is_none());
        assert_eq!(
            unknown.count(),
            LEN - 3,
            "two minutes before the first packet had no traffic"
        );
        minutes.add(at(1_000), 5.0, false);
        minutes.add(at(1_003), 7.0, true);
        assert_eq!(
            written(&minutes, 1_004),
            [(1_000, [5.0, 0.0]), (1_003, [0.0, 7.0])]
        );
        // A clock that steps back by two minutes, and by a day.
        minutes.add(at(1_001), 2.0, false);
        assert_eq!(
            written(&minutes, 1_004),
            [(1_000, [5.0, 0.0]), (1_001, [2.0, 0.0])]
        );
        minutes.add(at(10), 3.0, false);
        assert_eq!(written(&minutes, 11), [(10, [3.0, 0.0])]);
        minutes.add(at(1_500), 1.0, false);
        assert_eq!(written(&minutes, 1_500), [(1_500, [1.0, 0.0])]);
    }
}
