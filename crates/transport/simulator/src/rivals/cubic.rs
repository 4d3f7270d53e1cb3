//! CUBIC (RFC 9438), with fast convergence and the Reno-friendly region.

use super::{Recovery, round_to_bytes, window_rate};
use millrace_transport::congestion::{Controller, Departure, INITIAL_WINDOW, Sample, Tag};
use millrace_types::{BitRate, Duration, Time};

/// The constant C, in packets per second cubed (RFC 9438, section 5.1).
const C: f64 = 0.4;
/// The factor of the window after loss (RFC 9438, section 4.6).
const BETA: f64 = 0.7;
/// The largest target of a round, as a multiple of the window (RFC 9438, section 4.2).
const TARGET_MAX: f64 = 1.5;
/// The smallest window after a reduction, in packets (RFC 9438, section 4.6).
const WINDOW_MIN: f64 = 2.0;
/// The share of the window in flight from which the window counts as the limit.
const LIMITED_SHARE: f64 = 0.8;

/// The CUBIC congestion controller (RFC 9438).
#[derive(Clone, Debug)]
pub struct Cubic {
    packet: f64,
    /// Windows are in packets.
    window: f64,
    threshold: f64,
    maximum: f64,
    epoch: Option<Time>,
    k: f64,
    reno: f64,
    rtt: Duration,
    recovery: Recovery,
}

impl Cubic {
    /// Returns a controller for packets of this size.
    pub fn new(packet_size: u64) -> Cubic {
        Cubic {
            packet: packet_size as f64,
            window: INITIAL_WINDOW as f64,
            threshold: f64::INFINITY,
            maximum: 0.0,
            epoch: None,
            k: 0.0,
            reno: 0.0,
            rtt: Duration::from_millis(100),
            recovery: Recovery::default(),
        }
    }

    fn reduce(&mut self) {
        // Fast convergence (RFC 9438, section 4.7).
        self.maximum = if self.window < self.maximum {
            self.window * (1.0 + BETA) / 2.0
        } else {
            self.window
        };
        self.window = (self.window * BETA).max(WINDOW_MIN);
        self.threshold = self.window;
        self.epoch = None;
    }

    fn avoid_congestion(&mut self, now: Time, acked: f64) {
        let epoch = *self.epoch.get_or_insert_with(|| {
            self.maximum = self.maximum.max(self.window);
            self.k = ((self.maximum - self.window) / C).cbrt();
            self.reno = self.window;
            now
        });
        // RFC 9438, section 4.3: W_est grows by 3(1 − β)/(1 + β) a round.
        self.reno += 3.0 * (1.0 - BETA) / (1.0 + BETA) * acked / self.window;
        let t = now.since(epoch).as_secs_f64() + self.rtt.as_secs_f64() - self.k;
        let target = (C * t * t * t + self.maximum).clamp(self.window, TARGET_MAX * self.window);
        self.window += (target - self.window) / self.window * acked;
        self.window = self.window.max(self.reno);
    }
}

impl Controller for Cubic {
    fn on_send(&mut self, _: &Departure) -> Tag {
        Tag::default()
    }

    fn on_feedback(&mut self, sample: &Sample) {
        self.rtt = sample.rtt.unwrap_or(self.rtt);
        let acked = sample.acked as f64 / self.packet;
        if self.recovery.begins(sample) {
            self.reduce();
        } else if self.window < self.threshold {
            self.window += acked;
        } else if sample.window_limited || sample.in_flight as f64 > LIMITED_SHARE * self.window * self.packet
        {
            self.avoid_congestion(sample.now, acked);
        }
    }

    fn on_breaker(&mut self, _: Time) {
        self.reduce();
        self.window = WINDOW_MIN;
    }

    fn window(&self) -> u64 {
        round_to_bytes(self.window * self.packet)
    }

    fn pacing_rate(&self) -> Option<BitRate> {
        Some(window_rate(
            self.window * self.packet,
            self.rtt,
            self.window < self.threshold,
        ))
    }

    fn state(&self) -> &'static str {
        "cubic"
    }
}
