//! The control channel's congestion window, which follows the data path's model.
//!
//! Reno or CUBIC would give a control channel 0.25 Mbit/s at 2 % loss and 400 ms, but the digests of a
//! transfer at 10 Gbit/s alone need 0.3 Mbit/s. The data path knows the path's bandwidth and delay: the
//! control channel may have a tenth of their product in flight.

use quinn_proto::congestion::{Controller, ControllerFactory};
use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// The smallest window.
pub(crate) const WINDOW_MIN: u64 = 64 << 10;

/// A window that the data path sets and a QUIC connection uses.
#[derive(Clone, Debug)]
pub(crate) struct SharedWindow(Arc<AtomicU64>);

impl Default for SharedWindow {
    fn default() -> SharedWindow {
        SharedWindow(Arc::new(AtomicU64::new(WINDOW_MIN)))
    }
}

impl SharedWindow {
    /// Sets the window to a tenth of the bandwidth-delay product, but to 64 KiB at least.
    pub(crate) fn set(&self, bytes_per_second: u64, rtt: std::time::Duration) {
        let micros = u64::try_from(rtt.as_micros()).unwrap_or(u64::MAX);
        let bdp = bytes_per_second.saturating_mul(micros) / 1_000_000;
        self.0.store((bdp / 10).max(WINDOW_MIN), Ordering::Relaxed);
    }
}

impl Controller for SharedWindow {
    fn on_congestion_event(&mut self, _: Instant, _: Instant, _: bool, _: u64) {}

    fn on_mtu_update(&mut self, _: u16) {}

    fn window(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(self.clone())
    }

    fn initial_window(&self) -> u64 {
        WINDOW_MIN
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

impl ControllerFactory for SharedWindow {
    fn build(self: Arc<Self>, _: Instant, _: u16) -> Box<dyn Controller> {
        Box::new((*self).clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn the_window_is_a_tenth_of_the_bdp_and_no_less_than_64_kib() {
        let window = SharedWindow::default();
        let used = Arc::new(window.clone()).build(Instant::now(), 1_200);
        assert_eq!(used.window(), 65_536);
        window.set(1_250_000_000, Duration::from_millis(400));
        assert_eq!(used.window(), 50_000_000, "10 Gbit/s and 400 ms");
        window.set(1_000_000, Duration::from_millis(10));
        assert_eq!(used.window(), 65_536);
    }
}
