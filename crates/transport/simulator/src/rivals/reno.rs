//! Reno (RFC 5681): the window grows by one packet each round and is halved after a loss.

use super::{Recovery, round_to_bytes, window_rate};
use millrace_transport::congestion::{Controller, Departure, INITIAL_WINDOW, Sample, Tag};
use millrace_types::{BitRate, Duration, Time};

/// The Reno congestion controller (RFC 5681, RFC 6582).
#[derive(Clone, Debug)]
pub struct Reno {
    packet: f64,
    window: f64,
    threshold: f64,
    rtt: Duration,
    recovery: Recovery,
}

impl Reno {
    /// Returns a controller for packets of this size.
    pub fn new(packet_size: u64) -> Reno {
        Reno {
            packet: packet_size as f64,
            window: (INITIAL_WINDOW * packet_size) as f64,
            threshold: f64::INFINITY,
            rtt: Duration::from_millis(100),
            recovery: Recovery::default(),
        }
    }
}

impl Controller for Reno {
    fn on_send(&mut self, _: &Departure) -> Tag {
        Tag::default()
    }

    fn on_feedback(&mut self, sample: &Sample) {
        self.rtt = sample.rtt.unwrap_or(self.rtt);
        if self.recovery.begins(sample) {
            self.window = (self.window / 2.0).max(2.0 * self.packet);
            self.threshold = self.window;
        } else if self.window < self.threshold {
            self.window += sample.acked as f64;
        } else {
            self.window += self.packet * sample.acked as f64 / self.window;
        }
    }

    fn on_breaker(&mut self, _: Time) {
        self.threshold = self.window / 2.0;
        self.window = 2.0 * self.packet;
    }

    fn window(&self) -> u64 {
        round_to_bytes(self.window)
    }

    fn pacing_rate(&self) -> Option<BitRate> {
        Some(window_rate(self.window, self.rtt, self.window < self.threshold))
    }

    fn state(&self) -> &'static str {
        "reno"
    }
}
