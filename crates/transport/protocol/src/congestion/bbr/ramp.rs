//! The ramp with a hint: Careful Resume (RFC 9959).
//!
//! ```text
//!  Reconnaissance ── a round without loss, RTT as known ──> Unvalidated: half the hint for one round
//!        │ the RTT differs, or loss                               │ its packets are acknowledged
//!        v                                                        v
//!     Normal  <─────────────────────────────────────────────  Validating ── loss ──> Retreat: half of what arrived
//! ```
//!
//! Startup begins with ten packets and doubles each round: 15 rounds, six seconds, to 10 Gbit/s at 400 ms. If
//! an earlier session or the user gives a bandwidth, the second round sends at half of it, and Startup's gain
//! raises the rate from there.

use super::state::{Phase, State};
use super::{Bbr, INITIAL_WINDOW, LOSS_THRESHOLD, RTT_MIN_S};
use crate::congestion::Sample;
use millrace_types::Duration;

/// The number of packets in a round from which its loss ends the ramp: with fewer, one lost packet is more than
/// [`LOSS_THRESHOLD`].
const OVERLOAD_PACKETS: f64 = 50.0;

/// Returns true if the round-trip time fits the hint (RFC 9959: between half and ten times the hint's).
fn same_path(saved: Option<Duration>, rtt: Duration) -> bool {
    saved.is_none_or(|saved| rtt >= saved / 2 && rtt <= 10 * saved)
}

impl Bbr {
    /// Advances the ramp by one feedback.
    pub(super) fn update_ramp(&mut self, sample: &Sample) {
        let (Some(hint), Some(rtt)) = (self.ramp.hint, self.min_rtt.value()) else {
            return;
        };
        let now = sample.now;
        self.ramp.phase = match self.ramp.phase {
            Phase::Normal => Phase::Normal,
            _ if self.state != State::Startup => Phase::Normal,
            Phase::Reconnaissance if sample.lost > 0 || !same_path(hint.rtt, rtt) => Phase::Normal,
            Phase::Reconnaissance if sample.delivered < INITIAL_WINDOW * self.config.packet_size => {
                Phase::Reconnaissance
            }
            Phase::Reconnaissance => {
                // Bytes a second: half the hint, as Careful Resume jumps (RFC 9959).
                let jump = hint.rate.bps() as f64 / 8.0 / 2.0;
                self.pacing_rate = self.pacing_rate.max(jump);
                self.window = self.window.max(jump * rtt.as_secs_f64());
                Phase::Unvalidated {
                    until: now + rtt,
                    from_delivered: sample.delivered,
                }
            }
            Phase::Unvalidated {
                until,
                from_delivered,
            } if now >= until => Phase::Validating {
                until: now + rtt + rtt / 4,
                from_delivered,
            },
            Phase::Unvalidated { from_delivered, .. } | Phase::Validating { from_delivered, .. }
                if self.is_overloaded() =>
            {
                let arrived = sample.delivered.saturating_sub(from_delivered) as f64;
                let initial = (INITIAL_WINDOW * self.config.packet_size) as f64;
                self.window = (arrived / 2.0).max(initial);
                self.pacing_rate = (self.window / rtt.as_secs_f64().max(RTT_MIN_S)).min(self.pacing_rate);
                Phase::Normal
            }
            Phase::Validating { until, .. } if now >= until => Phase::Normal,
            phase => phase,
        };
    }

    /// Returns true if the current round lost more than the tolerated share.
    fn is_overloaded(&self) -> bool {
        self.round.packets() >= OVERLOAD_PACKETS
            && self.round.loss() > self.config.loss_tolerance + LOSS_THRESHOLD
            && self.floor.is_exceeded(&self.round)
    }
}
