//! Reports list the feedback that the sender has received, so that the receiver need not repeat it.

use crate::packet::{REPORTED_FEEDBACK_MAX, Report};
use crate::rtt::RttEstimator;
use millrace_types::{Duration, Time};

/// The content of the next report, and the time when it is due.
#[derive(Clone, Debug, Default)]
pub(super) struct Reports {
    /// Feedback that the next report confirms, newest first.
    feedback: Vec<u64>,
    sent_at: Time,
    /// True if the next report asks the receiver for feedback.
    ask: bool,
    /// True if the receiver was asked for feedback since the flow began to wait for it.
    asked_at_tail: bool,
}

/// Returns the time between reports: an eighth of the round-trip time, a millisecond at least.
fn interval(rtt: &RttEstimator) -> Duration {
    (rtt.smoothed() / 8).max(Duration::from_millis(1))
}

impl Reports {
    /// Records the number of a feedback packet, which the next report confirms.
    pub(super) fn note_feedback(&mut self, number: u64) {
        let at = self.feedback.partition_point(|other| *other > number);
        if self.feedback.get(at) != Some(&number) {
            self.feedback.insert(at, number);
            self.feedback.truncate(REPORTED_FEEDBACK_MAX);
        }
    }

    /// Asks for feedback in the next report, which is due at once.
    pub(super) fn ask(&mut self) {
        self.ask = true;
    }

    /// Allows one more request for feedback at the tail, because data must be sent again.
    pub(super) fn ask_again_at_tail(&mut self) {
        self.asked_at_tail = false;
    }

    /// Returns the time at which a report that only confirms feedback is due.
    pub(super) fn due(&self, rtt: &RttEstimator) -> Option<Time> {
        (!self.feedback.is_empty()).then(|| self.sent_at + interval(rtt))
    }

    /// Returns a report if one is due. `waiting` is true if the sender can send nothing until feedback arrives.
    pub(super) fn poll(
        &mut self,
        now: Time,
        waiting: bool,
        rtt: &RttEstimator,
        next_number: u64,
    ) -> Option<Report> {
        self.ask |= waiting && !self.asked_at_tail;
        self.asked_at_tail = waiting;
        let confirms = self.due(rtt).is_some_and(|due| now >= due);
        if !self.ask && !confirms {
            return None;
        }
        self.sent_at = now;
        Some(Report {
            next_number,
            rtt: if rtt.is_known() {
                rtt.smoothed()
            } else {
                Duration::ZERO
            },
            answer: std::mem::take(&mut self.ask),
            feedback: std::mem::take(&mut self.feedback),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn feedback_is_confirmed_in_batches_and_the_tail_asks_once() {
        let (mut reports, rtt) = (Reports::default(), RttEstimator::default());
        let at = Time::from_millis;
        assert_eq!(reports.poll(at(1_000), false, &rtt, 5), None);
        for number in [3, 5, 4, 5] {
            reports.note_feedback(number);
        }
        let report = reports.poll(at(1_000), false, &rtt, 5).unwrap();
        assert_eq!((report.feedback, report.answer), (vec![5, 4, 3], false));
        reports.note_feedback(6);
        assert_eq!(reports.poll(at(1_001), false, &rtt, 5), None);
        let tail = reports.poll(at(1_002), true, &rtt, 5).unwrap();
        assert_eq!((tail.feedback, tail.answer), (vec![6], true));
        assert_eq!(reports.poll(at(1_003), true, &rtt, 5), None);
    }
}
