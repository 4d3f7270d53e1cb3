//! A fixed rate, for paths with reserved capacity. Only the breaker reduces it: the flow returns to the
//! initial window, which then doubles each round trip until the flow has its rate again.

use super::{Controller, Departure, INITIAL_WINDOW, Sample, Tag, bit_rate, bytes};
use millrace_types::{BitRate, Duration, Time};

/// Sends at one rate.
#[derive(Clone, Debug)]
pub struct Fixed {
    rate: f64,
    packet_size: u64,
    rtt: Duration,
    /// Bytes that may be in flight after the breaker tripped; infinite otherwise.
    ramp: f64,
}

impl Fixed {
    /// Returns a controller for a rate and packets of `packet_size` bytes.
    pub fn new(rate: BitRate, packet_size: u64) -> Fixed {
        Fixed {
            rate: rate.bps() as f64 / 8.0,
            packet_size,
            rtt: crate::rtt::INITIAL_RTT,
            ramp: f64::INFINITY,
        }
    }
}

impl Controller for Fixed {
    fn on_send(&mut self, _: &Departure) -> Tag {
        Tag::default()
    }

    fn on_feedback(&mut self, sample: &Sample) {
        self.rtt = sample.rtt.unwrap_or(self.rtt);
        self.ramp += sample.acked as f64;
    }

    fn set_packet_size(&mut self, packet_size: u64) {
        self.packet_size = packet_size;
    }

    fn on_breaker(&mut self, _: Time) {
        self.ramp = (INITIAL_WINDOW * self.packet_size) as f64;
    }

    /// Returns two bandwidth-delay products, so that late feedback does not interrupt the sender.
    fn window(&self) -> u64 {
        let product = self.rate * (self.rtt + Duration::from_millis(50)).as_secs_f64();
        bytes((2.0 * product).min(self.ramp)).max(INITIAL_WINDOW * self.packet_size)
    }

    fn pacing_rate(&self) -> Option<BitRate> {
        let ramp = self.ramp / self.rtt.as_secs_f64().max(1e-6);
        Some(bit_rate(self.rate.min(ramp)))
    }

    fn state(&self) -> &'static str {
        if self.ramp.is_finite() { "ramp" } else { "fixed" }
    }
}
