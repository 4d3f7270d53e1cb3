//! The packet numbers that arrived, and the time at which feedback reports them to the sender.
//!
//! The schedule follows TACK (Li et al., SIGCOMM 2020). Once 32 packets wait, feedback is due 1/32 of a round
//! trip after the last feedback, but not before the shorter of 2.5 ms and a quarter of a round trip. With
//! fewer packets, it is due after a quarter of a round trip. Both intervals are at least 1 ms and at most
//! 25 ms. A request of the sender makes feedback due after 1 ms. Each feedback contains every number for
//! which no acknowledgement is known to have arrived.

use crate::packet::{Acknowledged, Report};
use crate::ranges::RangeSet;
use millrace_types::{Duration, Time};
use std::collections::VecDeque;
use std::ops::Range;

/// The bounds of both intervals of feedback.
const INTERVAL_MIN: Duration = Duration::from_millis(1);
const INTERVAL_MAX: Duration = Duration::from_millis(25);
/// The minimum interval at high rates, unless a quarter of the round-trip time is shorter. On a clean path of
/// 10 ms, feedback each millisecond would take 0.17 % of the bytes that it acknowledges.
const PERIOD_MIN: Duration = Duration::from_micros(2_500);
/// The number of waiting packets from which feedback is due after the shorter interval.
const PACKETS: u64 = 32;

/// The maximum number of unconfirmed feedback packets. Two packets each [`INTERVAL_MAX`] last for 12 s: a
/// round trip over any path, and some time until a report. At short round trips, two packets are sent each
/// 1/32 of a round trip.
const UNCONFIRMED_MAX: usize = 1_024;
/// The maximum number of ranges in all unconfirmed feedback packets together.
const UNCONFIRMED_RANGES_MAX: usize = 1 << 20;

/// A feedback packet that was sent.
#[derive(Clone, Debug)]
struct SentFeedback {
    number: u64,
    acknowledged: Acknowledged,
}

/// The packet with the largest number that has arrived.
#[derive(Clone, Copy, Debug)]
struct Largest {
    number: u64,
    arrived_at: Time,
}

/// Tracks arrivals until their acknowledgement is confirmed.
#[derive(Clone, Debug, Default)]
pub(super) struct AckTracker {
    /// Numbers that arrived, but are in no confirmed acknowledgement.
    unconfirmed: RangeSet,
    /// Unconfirmed feedback packets.
    sent: VecDeque<SentFeedback>,
    /// The number of ranges in `sent`.
    sent_ranges: usize,
    next_feedback: u64,
    largest: Option<Largest>,
    /// The number of packets since the last feedback, and the arrival time of the first of them.
    pending: u64,
    pending_since: Option<Time>,
    sent_at: Time,
    rtt: Duration,
    now_asked: bool,
}

impl AckTracker {
    /// Records the arrival of a packet.
    pub(super) fn on_packet(&mut self, now: Time, number: u64) {
        self.unconfirmed.insert(number..number + 1);
        if self.largest.is_none_or(|largest| number > largest.number) {
            self.largest = Some(Largest {
                number,
                arrived_at: now,
            });
        }
        self.pending += 1;
        self.pending_since.get_or_insert(now);
    }

    /// Takes a report: discards the acknowledgements that it confirms, and keeps its round-trip time and its
    /// request for feedback.
    pub(super) fn on_report(&mut self, report: &Report) {
        if !report.rtt.is_zero() {
            self.rtt = report.rtt;
        }
        for number in &report.feedback {
            if let Ok(at) = self.sent.binary_search_by_key(number, |sent| sent.number)
                && let Some(SentFeedback { acknowledged, .. }) = self.sent.remove(at)
            {
                self.sent_ranges -= acknowledged.len();
                self.unconfirmed.remove_all(&acknowledged);
            }
        }
        self.now_asked |= report.answer;
    }

    /// Makes feedback due at once, because credit became free.
    pub(super) fn ask(&mut self) {
        self.now_asked = true;
    }

    /// Returns the time at which feedback is due.
    pub(super) fn due(&self) -> Option<Time> {
        if self.now_asked {
            return Some(self.sent_at + INTERVAL_MIN);
        }
        let since = self.pending_since?;
        let quarter = self.rtt / 4;
        let interval = if self.pending >= PACKETS {
            (self.rtt / 32).max(PERIOD_MIN.min(quarter))
        } else {
            quarter
        };
        let interval = interval.clamp(INTERVAL_MIN, INTERVAL_MAX);
        Some((self.sent_at + interval).max(since))
    }

    /// Returns the last round-trip time that the sender reported, or zero before the first report.
    pub(super) fn rtt(&self) -> Duration {
        self.rtt
    }

    /// Returns the time since the largest number arrived.
    pub(super) fn delay(&self, now: Time) -> Duration {
        self.largest
            .map_or(Duration::ZERO, |largest| now.since(largest.arrived_at))
    }

    /// Returns the numbers to be acknowledged.
    pub(super) fn acknowledged(&self) -> &[Range<u64>] {
        self.unconfirmed.ranges()
    }

    /// Records a feedback packet that acknowledges exactly these numbers. Returns the number of the feedback
    /// packet.
    pub(super) fn on_sent(&mut self, now: Time, acknowledged: Acknowledged) -> u64 {
        let number = self.next_feedback;
        self.next_feedback += 1;
        self.sent_ranges += acknowledged.len();
        self.sent.push_back(SentFeedback { number, acknowledged });
        while (self.sent.len() > UNCONFIRMED_MAX || self.sent_ranges > UNCONFIRMED_RANGES_MAX)
            && let Some(forgotten) = self.sent.pop_front()
        {
            self.sent_ranges -= forgotten.acknowledged.len();
        }
        (self.pending, self.pending_since, self.now_asked) = (0, None, false);
        self.sent_at = now;
        number
    }

    /// Returns the number of stored ranges, for bounds on memory.
    pub(super) fn len(&self) -> usize {
        self.unconfirmed.ranges().len() + self.sent_ranges
    }

    /// Discards the oldest quarter of the ranges if there are more than `most`, so that ranges are seldom
    /// moved in memory. The sender declares the discarded packets lost and sends their bytes again.
    pub(super) fn bound(&mut self, most: usize) {
        let ranges = self.unconfirmed.ranges();
        if ranges.len() > most {
            let end = ranges[ranges.len() - most * 3 / 4].start;
            self.unconfirmed.remove(0..end);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(feedback: Vec<u64>, answer: bool) -> Report {
        Report {
            next_number: 0,
            rtt: Duration::from_millis(320),
            answer,
            feedback,
        }
    }

    #[test]
    fn a_range_is_repeated_until_its_feedback_is_confirmed_and_late_packets_are_not_forgotten() {
        let mut acks = AckTracker::default();
        let now = Time::from_secs(1);
        for number in [0, 1, 2, 5] {
            acks.on_packet(now, number);
        }
        assert_eq!(acks.on_sent(now, vec![0..3, 5..6]), 0);
        acks.on_packet(now, 4);
        assert_eq!(acks.acknowledged(), [0..3, 4..6]);
        acks.on_report(&report(vec![0], false));
        assert_eq!(acks.acknowledged(), [4..5]);
        acks.on_report(&report(vec![0, 7], false));
        assert_eq!(acks.acknowledged(), [4..5]);
    }

    #[test]
    fn feedback_is_periodic_at_high_rates_later_at_low_ones_and_immediate_if_asked_for() {
        let mut acks = AckTracker::default();
        acks.on_report(&report(vec![], false));
        let at = Time::from_millis;
        acks.on_sent(at(1_000), vec![]);
        assert_eq!(acks.due(), None);
        acks.on_packet(at(1_001), 0);
        assert_eq!(acks.due(), Some(at(1_025)), "a quarter of 320 ms, 25 ms at most");
        for number in 1..32 {
            acks.on_packet(at(1_002), number);
        }
        assert_eq!(acks.due(), Some(at(1_010)), "320 ms / 32");
        for (rtt, micros) in [(10, 2_500), (4, 1_000), (80, 2_500), (96, 3_000)] {
            acks.on_report(&Report {
                rtt: Duration::from_millis(rtt),
                ..report(vec![], false)
            });
            assert_eq!(
                acks.due(),
                Some(Time::from_nanos(1_000_000_000 + micros * 1_000)),
                "{rtt} ms"
            );
        }
        acks.on_report(&report(vec![], true));
        assert_eq!(acks.due(), Some(at(1_001)));
    }

    /// Sends two feedback packets for each packet that arrives. Each confirmation is late by `late` packets.
    /// Returns the number of ranges that are unconfirmed at the end.
    fn unconfirmed_ranges(late: u64) -> usize {
        let mut acks = AckTracker::default();
        for step in 0..2_000_u64 {
            acks.on_packet(Time::ZERO, 2 * step);
            for _ in 0..2 {
                let number = acks.on_sent(Time::ZERO, acks.acknowledged().to_vec());
                if let Some(confirmed) = number.checked_sub(late) {
                    acks.on_report(&report(vec![confirmed], false));
                }
            }
        }
        acks.acknowledged().len()
    }

    #[test]
    fn at_two_packets_each_32nd_of_a_round_trip_confirmations_still_find_their_feedback() {
        // A round trip and an eighth.
        assert!(unconfirmed_ranges(72) <= 40, "{}", unconfirmed_ranges(72));
    }

    #[test]
    fn over_round_trips_of_seconds_confirmations_still_find_their_feedback() {
        // Two packets each 25 ms, for 2.25 s and for 10 s.
        for late in [180, 800] {
            let ranges = unconfirmed_ranges(late);
            assert!(ranges <= late as usize / 2 + 4, "{late} late: {ranges}");
        }
    }

    #[test]
    fn feedback_is_forgotten_when_it_has_too_many_ranges_in_all() {
        let mut acks = AckTracker::default();
        let ranges: Acknowledged = (0..4_096).map(|number| 2 * number..2 * number + 1).collect();
        for _ in 0..1_000 {
            acks.on_sent(Time::ZERO, ranges.clone());
        }
        assert_eq!(acks.len(), UNCONFIRMED_RANGES_MAX);
        acks.on_report(&report((990..1_000).rev().collect(), false));
        assert_eq!(acks.len(), UNCONFIRMED_RANGES_MAX - 10 * ranges.len());
    }

    #[test]
    fn feedback_that_covered_only_the_newest_numbers_confirms_only_those() {
        let mut acks = AckTracker::default();
        for number in 0..10 {
            acks.on_packet(Time::ZERO, number);
        }
        acks.on_sent(Time::ZERO, Vec::from([6..10]));
        acks.on_report(&report(vec![0], false));
        assert_eq!(acks.acknowledged(), [0..6]);
    }

    #[test]
    fn beyond_the_bound_a_quarter_of_the_ranges_is_forgotten_at_once_and_then_none_for_as_many_packets() {
        let mut acks = AckTracker::default();
        let mut cuts = Vec::new();
        for number in 0..2_000 {
            acks.on_packet(Time::ZERO, 2 * number);
            let before = acks.acknowledged().len();
            acks.bound(1_000);
            let after = acks.acknowledged().len();
            if after < before {
                assert_eq!((before, after), (1_001, 750));
                cuts.push(number);
            }
        }
        assert_eq!(cuts, [1_000, 1_251, 1_502, 1_753]);
        assert_eq!(acks.acknowledged().last(), Some(&(3_998..3_999)));
    }
}
