//! The control channel's congestion window.
//!
//! Reno or CUBIC would give a control channel 0.25 Mbit/s at 2 % loss and 400 ms, but the digests of a
//! transfer at 10 Gbit/s alone need 0.3 Mbit/s. The data path knows the path's bandwidth and delay: the
//! control channel may have a tenth of their product in flight.
//!
//! Before the data path has a model, the channel carries the manifest, or the digests of files that the receiver has: megabytes, for which
//! the transfer waits. Until then the window grows by slow start (RFC 9002, section 7.3.1), which ends when
//! more than [`LOSS_MAX`] of a round is lost, or when three rounds in a row deliver less than 1.25 times the best one before (as the
//! Startup state of BBR does). A lost packet alone says nothing on the paths that this transport is for.

use quinn_proto::RttEstimator;
use quinn_proto::congestion::{Controller, ControllerFactory};
use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// The smallest window.
pub(crate) const WINDOW_MIN: u64 = 64 << 10;
/// The largest window of slow start: no more than a stream may have in flight.
const WINDOW_MAX: u64 = 8 << 20;
/// The share of a round's bytes, in percent, whose loss means congestion.
const LOSS_MAX: u64 = 10;
/// A round that delivers less than this many percent of the best round before shows that the pipe is full.
const GROWTH: u64 = 125;
/// The number of such rounds in a row that end slow start.
const FLAT_ROUNDS_MAX: u8 = 3;
/// The share of the window, in percent, that remains after a congested round.
const DECREASE: u64 = 70;

/// A window that the data path sets and a QUIC connection uses.
#[derive(Clone, Debug, Default)]
pub(crate) struct SharedWindow {
    /// The window of the data path's model; zero before there is one.
    model: Arc<AtomicU64>,
    /// The most bytes that a round of the connection delivered.
    delivered: Arc<AtomicU64>,
}

impl SharedWindow {
    /// Sets the window to a tenth of the bandwidth-delay product, but to 64 KiB at least.
    pub(crate) fn set(&self, bytes_per_second: u64, rtt: std::time::Duration) {
        let micros = u64::try_from(rtt.as_micros()).unwrap_or(u64::MAX);
        let bdp = bytes_per_second.saturating_mul(micros) / 1_000_000;
        self.model.store((bdp / 10).max(WINDOW_MIN), Ordering::Relaxed);
    }

    /// Returns the most bytes that a round of the connection delivered.
    pub(crate) fn delivered(&self) -> u64 {
        self.delivered.load(Ordering::Relaxed)
    }
}

impl ControllerFactory for SharedWindow {
    fn build(self: Arc<Self>, now: Instant, _: u16) -> Box<dyn Controller> {
        Box::new(ControlWindow {
            shared: (*self).clone(),
            slow_start: SlowStart::new(now),
        })
    }
}

/// The congestion control of a QUIC connection: the window of the data path's model, or slow start's.
#[derive(Clone, Debug)]
struct ControlWindow {
    shared: SharedWindow,
    slow_start: SlowStart,
}

impl Controller for ControlWindow {
    fn on_ack(&mut self, now: Instant, sent: Instant, bytes: u64, app_limited: bool, _: &RttEstimator) {
        let delivered = self.slow_start.on_ack(now, sent, bytes, app_limited);
        self.shared.delivered.fetch_max(delivered, Ordering::Relaxed);
    }

    fn on_congestion_event(&mut self, _: Instant, _: Instant, is_persistent: bool, lost_bytes: u64) {
        self.slow_start.on_loss(is_persistent, lost_bytes);
    }

    fn on_mtu_update(&mut self, _: u16) {}

    fn window(&self) -> u64 {
        match self.shared.model.load(Ordering::Relaxed) {
            0 => self.slow_start.window,
            model => model,
        }
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

/// The window before the data path has a model.
#[derive(Clone, Debug)]
struct SlowStart {
    window: u64,
    /// False once the pipe is full or congested: the window grows no more.
    grows: bool,
    /// The round ends when a packet that was sent after this time is acknowledged.
    round_start: Instant,
    /// Bytes that were acknowledged and lost in this round.
    acknowledged: u64,
    lost: u64,
    /// True if the application, not the window, limited this round.
    app_limited: bool,
    /// The largest number of bytes that a round acknowledged.
    best: u64,
    /// The number of rounds in a row without growth.
    flat_rounds: u8,
}

impl SlowStart {
    fn new(now: Instant) -> SlowStart {
        SlowStart {
            window: WINDOW_MIN,
            grows: true,
            round_start: now,
            acknowledged: 0,
            lost: 0,
            app_limited: false,
            best: 0,
            flat_rounds: 0,
        }
    }

    /// Counts a packet that was acknowledged. Returns the bytes that the current round has delivered.
    fn on_ack(&mut self, now: Instant, sent: Instant, bytes: u64, app_limited: bool) -> u64 {
        self.acknowledged += bytes;
        let delivered = self.acknowledged;
        self.app_limited |= app_limited;
        if self.grows && !app_limited {
            self.window = (self.window + bytes).min(WINDOW_MAX);
        }
        if sent > self.round_start {
            self.end_round();
            self.round_start = now;
        }
        delivered
    }

    fn on_loss(&mut self, is_persistent: bool, lost_bytes: u64) {
        self.lost += lost_bytes;
        if is_persistent {
            self.grows = false;
            self.window = WINDOW_MIN;
        }
    }

    fn end_round(&mut self) {
        let sent = self.acknowledged + self.lost;
        // A lost packet among a few does not show congestion.
        if sent >= WINDOW_MIN / 2 && self.lost * 100 > sent * LOSS_MAX {
            self.grows = false;
            self.window = (self.window * DECREASE / 100).max(WINDOW_MIN);
        } else if self.grows && !self.app_limited {
            if self.acknowledged * 100 >= self.best * GROWTH {
                self.flat_rounds = 0;
            } else {
                self.flat_rounds += 1;
            }
            if self.flat_rounds >= FLAT_ROUNDS_MAX {
                self.grows = false;
                // A round delivers the bandwidth-delay product: a larger window would only fill a queue.
                self.window = self.best.max(self.acknowledged).clamp(WINDOW_MIN, WINDOW_MAX);
            }
        }
        self.best = self.best.max(self.acknowledged);
        (self.acknowledged, self.lost, self.app_limited) = (0, 0, false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const RTT: Duration = Duration::from_millis(100);
    const PACKET: u64 = 1_200;

    /// Sends a window for each round-trip time over a path that delivers `capacity` bytes in it and loses one packet
    /// of `lost_of`. Returns the windows at the ends of the rounds.
    fn windows(rounds: u32, capacity: u64, lost_of: u64) -> Vec<u64> {
        let mut now = Instant::now();
        let mut slow_start = SlowStart::new(now);
        let mut number = 0;
        (0..rounds)
            .map(|_| {
                let packets = slow_start.window.min(capacity) / PACKET;
                let sent = now + Duration::from_millis(1);
                now += RTT;
                for _ in 0..packets {
                    number += 1;
                    if number % lost_of == 0 {
                        slow_start.on_loss(false, PACKET);
                    } else {
                        slow_start.on_ack(now, sent, PACKET, false);
                    }
                }
                now += Duration::from_millis(2);
                slow_start.window
            })
            .collect()
    }

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

    #[test]
    fn before_there_is_a_model_the_window_doubles_in_each_round_although_packets_are_lost() {
        let windows = windows(8, u64::MAX, 50);
        for pair in windows.windows(2) {
            let least = (pair[0] * 19 / 10).min(WINDOW_MAX);
            assert!(pair[1] >= least, "{windows:?}");
        }
        assert_eq!(windows.last(), Some(&WINDOW_MAX), "{windows:?}");
    }

    #[test]
    fn a_full_pipe_ends_slow_start_at_what_a_round_delivers() {
        let windows = windows(12, 400_000, u64::MAX);
        let last = *windows.last().unwrap_or(&0);
        assert!((360_000..=400_000).contains(&last), "{windows:?}");
    }

    #[test]
    fn a_round_that_loses_a_sixth_shrinks_the_window_to_64_kib_at_last() {
        assert_eq!(windows(12, u64::MAX, 6).last(), Some(&WINDOW_MIN));
    }

    #[test]
    fn persistent_congestion_ends_slow_start() {
        let mut slow_start = SlowStart::new(Instant::now());
        slow_start.window = WINDOW_MAX;
        slow_start.on_loss(true, PACKET);
        assert_eq!(slow_start.window, WINDOW_MIN);
        assert!(!slow_start.grows);
    }

    #[test]
    fn a_connection_with_nothing_to_send_keeps_its_window() {
        let now = Instant::now();
        let mut slow_start = SlowStart::new(now);
        for round in 1..20 {
            let at = now + RTT * round;
            slow_start.on_ack(at, at - Duration::from_millis(99), PACKET, true);
        }
        assert_eq!(slow_start.window, WINDOW_MIN);
        assert!(slow_start.grows);
    }
}
