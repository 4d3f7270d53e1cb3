//! Samples of the delivery rate (draft-ietf-ccwg-bbr, section 4.1).
//!
//! A sample is the bytes delivered between two acknowledgements, divided by the longer of two times: the time
//! in which the bytes were sent, and the time in which they were acknowledged. So neither a burst of the
//! sender nor a burst of acknowledgements makes the sample too high.

use super::sent::Quantum;
use crate::congestion::RateSample;
use millrace_types::{Duration, Time};

/// The connection's state for rate samples (draft-ietf-ccwg-bbr, section 4.1.2).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Delivery {
    pub(super) delivered: u64,
    pub(super) delivered_at: Time,
    pub(super) first_sent_at: Time,
    pub(super) lost: u64,
    /// Samples are limited by the application until this many bytes are delivered.
    app_limited_until: u64,
}

impl Delivery {
    /// Returns the state of a flow that starts now.
    pub(super) fn new(now: Time) -> Delivery {
        Delivery {
            delivered_at: now,
            first_sent_at: now,
            ..Delivery::default()
        }
    }

    /// Begins an interval: nothing is in flight.
    pub(super) fn restart(&mut self, now: Time) {
        self.first_sent_at = now;
        self.delivered_at = now;
    }

    /// Records that the source or the shared uplink limits the flow while `in_flight` bytes are in flight.
    pub(super) fn mark_app_limited(&mut self, in_flight: u64) {
        self.app_limited_until = self.delivered + in_flight.max(1);
    }

    /// Returns true if the source or the shared uplink, not the path, limits the samples of packets sent now.
    pub(super) fn is_app_limited(&self) -> bool {
        self.app_limited_until > self.delivered
    }

    /// Returns the rate sample that ends with a quantum. `acked_at` is the time of its acknowledgement, less
    /// the receiver's delay. Returns `None` if the interval is too short.
    pub(super) fn sample(
        &mut self,
        acked_at: Time,
        quantum: &Quantum,
        least_rtt: Duration,
    ) -> Option<RateSample> {
        let send_elapsed = quantum.sent_at.since(quantum.first_sent_at);
        let ack_elapsed = acked_at.since(quantum.delivered_at);
        self.delivered_at = self.delivered_at.max(acked_at);
        self.first_sent_at = self.first_sent_at.max(quantum.sent_at);
        let interval = send_elapsed.max(ack_elapsed);
        // An interval below the path's round-trip time is an artefact (draft-ietf-ccwg-bbr, section 4.1.2.3).
        if interval < least_rtt {
            return None;
        }
        Some(RateSample {
            delivered: self.delivered - quantum.delivered,
            interval,
            prior_delivered: quantum.delivered,
            tx_in_flight: quantum.tx_in_flight,
            lost: self.lost.saturating_sub(quantum.lost),
            app_limited: quantum.app_limited,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::congestion::Tag;

    #[test]
    fn acknowledgements_that_come_in_a_burst_do_not_raise_the_rate_above_that_of_sending() {
        let at = Time::from_millis;
        let mut delivery = Delivery::new(at(0));
        delivery.delivered = 100_000;
        let quantum = Quantum {
            first: 0,
            len: 1,
            sent_at: at(100),
            tag: Tag::default(),
            delivered: 0,
            delivered_at: at(140),
            first_sent_at: at(0),
            lost: 0,
            tx_in_flight: 0,
            app_limited: false,
        };
        let sample = delivery
            .sample(at(141), &quantum, Duration::from_millis(50))
            .unwrap();
        assert_eq!(
            (sample.delivered, sample.interval),
            (100_000, Duration::from_millis(100))
        );
        assert!(
            delivery
                .sample(at(142), &quantum, Duration::from_millis(150))
                .is_none()
        );
    }
}
