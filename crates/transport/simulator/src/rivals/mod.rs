//! Controllers for comparison, written from their publications.
//!
//! They use the same acknowledgements and loss detection as the product, so that only the controller differs.

mod bbr1;
mod cubic;
mod reno;

pub use bbr1::Bbr1;
pub use cubic::Cubic;
pub use reno::Reno;

use millrace_transport::congestion::Sample;
use millrace_types::{BitRate, Duration, Time};

/// Allows one reduction for each window of losses: losses of packets sent before the last reduction do not
/// count.
#[derive(Clone, Copy, Debug, Default)]
struct Recovery {
    since: Option<Time>,
}

impl Recovery {
    fn begins(&mut self, sample: &Sample) -> bool {
        let begins = sample
            .lost_sent_at
            .is_some_and(|sent_at| self.since.is_none_or(|since| sent_at >= since));
        if begins {
            self.since = Some(sample.now);
        }
        begins
    }
}

/// Returns the pacing rate that Linux has for a window: in slow start twice the window's rate, later 1.2
/// times.
fn window_rate(window: f64, rtt: Duration, slow_start: bool) -> BitRate {
    let gain = if slow_start { 2.0 } else { 1.2 };
    let bps = gain * window * 8.0 / rtt.as_secs_f64().max(1e-6);
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "rates are positive"
    )]
    BitRate::from_bps(bps as u64)
}

/// Returns a window as whole bytes.
fn round_to_bytes(window: f64) -> u64 {
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "windows are positive"
    )]
    let bytes = window as u64;
    bytes
}
