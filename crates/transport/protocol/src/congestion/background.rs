//! LEDBAT++ (draft-irtf-iccrg-ledbat-plus-plus): uses only the bandwidth that other flows leave.
//!
//! The window grows while the queueing delay is below 60 ms and shrinks in proportion to the excess above it.
//! The base delay is the minimum of the last ten minutes (RFC 6817, section 2.4.2), so that a standing queue
//! of other flows does not count as base delay. After a path becomes longer, the flow uses its full rate
//! again within ten minutes. A slowdown to two packets measures the base delay again. The period between
//! slowdowns keeps their cost at a tenth.

use super::{Controller, Departure, INITIAL_WINDOW, Sample, Tag, bit_rate, bytes};
use millrace_types::{BitRate, Duration, Time};
use std::collections::VecDeque;

/// The target of the queueing delay.
const TARGET: Duration = Duration::from_millis(60);
/// The smallest gain, which paths with a short base delay have.
const GAIN_MIN: f64 = 1.0 / 16.0;
/// The queueing delay that ends slow start, as a share of the target.
const SLOW_START_DELAY: f64 = 0.75;
/// The pacing rate as a multiple of window / round-trip time. It is above 1, so that the window remains the limit
/// (RFC 9002, section 7.7, suggests 1.25).
const PACING_GAIN: f64 = 1.25;
/// The window during a slowdown, in packets.
const SLOWDOWN_WINDOW: u64 = 2;
/// A slowdown comes after nine times the time that the last one took.
const SLOWDOWN_PERIOD: u32 = 9;
/// The base delay is the least of this many minima (RFC 6817, section 2.5, BASE_HISTORY). Each minimum covers
/// a period of `BASE_PERIOD`.
const BASE_HISTORY: usize = 10;
const BASE_PERIOD: Duration = Duration::from_secs(60);

/// The minimal round-trip times of the last ten periods.
#[derive(Clone, Debug, Default)]
struct BaseDelay {
    minima: VecDeque<Duration>,
    /// The start of the newest minimum's period.
    since: Time,
}

impl BaseDelay {
    fn add(&mut self, now: Time, rtt: Duration) {
        match self.minima.back_mut() {
            Some(minimum) if now.since(self.since) < BASE_PERIOD => *minimum = rtt.min(*minimum),
            _ => {
                self.minima.push_back(rtt);
                self.since = now;
            }
        }
        if self.minima.len() > BASE_HISTORY {
            self.minima.pop_front();
        }
    }

    fn least(&self) -> Option<Duration> {
        self.minima.iter().min().copied()
    }
}

/// Yields to all other traffic.
#[derive(Clone, Debug)]
pub struct Background {
    packet_size: u64,
    window: f64,
    slow_start_threshold: f64,
    base: BaseDelay,
    rtt: Duration,
    /// Loss of packets that were sent before this time causes no further reduction.
    recovery: Time,
    slowdown: Slowdown,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Slowdown {
    /// The next slowdown begins at this time; `None` until slow start is over.
    At(Option<Time>),
    /// A slowdown that began at `since`. The window is small until `until`, then grows to its threshold
    /// again.
    Running {
        since: Time,
        until: Time,
    },
    Regrowing {
        since: Time,
    },
}

impl Background {
    /// Returns a controller for packets of `packet_size` bytes.
    pub fn new(packet_size: u64) -> Background {
        Background {
            packet_size,
            window: (INITIAL_WINDOW * packet_size) as f64,
            slow_start_threshold: f64::INFINITY,
            base: BaseDelay::default(),
            rtt: crate::rtt::INITIAL_RTT,
            recovery: Time::ZERO,
            slowdown: Slowdown::At(None),
        }
    }

    fn smallest(&self) -> f64 {
        (SLOWDOWN_WINDOW * self.packet_size) as f64
    }

    fn queueing_delay(&self) -> Duration {
        self.rtt.saturating_sub(self.base.least().unwrap_or(self.rtt))
    }

    /// Returns the gain: 1 at long base delays, down to 1/16 at short ones, where competing flows also have
    /// short round trips.
    fn gain(&self) -> f64 {
        let base = self.base.least().unwrap_or(TARGET).as_secs_f64();
        1.0 / (2.0 * TARGET.as_secs_f64() / base)
            .ceil()
            .clamp(1.0, 1.0 / GAIN_MIN)
    }

    fn grow(&mut self, acked: f64) {
        let gain = self.gain();
        let delay = self.queueing_delay().as_secs_f64() / TARGET.as_secs_f64();
        if self.window < self.slow_start_threshold {
            if delay < SLOW_START_DELAY {
                self.window += acked * gain.max(0.5);
                return;
            }
            self.slow_start_threshold = self.window;
        }
        let packet = self.packet_size as f64;
        let rounds = acked / self.window;
        let change = if delay < 1.0 {
            gain * packet
        } else {
            (gain * packet - self.window * (delay - 1.0)).max(-self.window / 2.0)
        };
        self.window = (self.window + change * rounds).max(self.smallest());
    }

    fn advance_slowdown(&mut self, now: Time) {
        match self.slowdown {
            Slowdown::At(None) if self.slow_start_threshold.is_finite() => {
                self.slowdown = Slowdown::At(Some(now + 2 * self.rtt));
            }
            Slowdown::At(Some(at)) if now >= at => {
                self.slow_start_threshold = self.window;
                self.window = self.smallest();
                self.slowdown = Slowdown::Running {
                    since: now,
                    until: now + 2 * self.rtt,
                };
            }
            Slowdown::Running { since, until } if now >= until => {
                self.slowdown = Slowdown::Regrowing { since };
            }
            Slowdown::Regrowing { since } if self.window >= self.slow_start_threshold => {
                let took = now.since(since);
                self.slowdown = Slowdown::At(Some(now + SLOWDOWN_PERIOD * took));
            }
            _ => {}
        }
    }
}

impl Controller for Background {
    fn on_send(&mut self, _: &Departure) -> Tag {
        Tag::default()
    }

    fn on_feedback(&mut self, sample: &Sample) {
        if let Some(rtt) = sample.rtt {
            self.rtt = rtt;
            let before = self.base.least().unwrap_or(rtt);
            self.base.add(sample.now, rtt);
            // The path became longer: the window was reduced although there was no queue.
            if self.base.least().is_some_and(|base| base > before + TARGET / 2) {
                self.slow_start_threshold = f64::INFINITY;
                self.slowdown = Slowdown::At(None);
            }
        }
        if sample
            .lost_sent_at
            .is_some_and(|sent_at| sent_at >= self.recovery)
        {
            self.recovery = sample.now;
            self.window = (self.window / 2.0).max(self.smallest());
            self.slow_start_threshold = self.window;
        }
        if sample.window_limited && !matches!(self.slowdown, Slowdown::Running { .. }) {
            self.grow(sample.acked as f64);
        }
        self.advance_slowdown(sample.now);
    }

    fn set_packet_size(&mut self, packet_size: u64) {
        self.packet_size = packet_size;
    }

    fn on_breaker(&mut self, now: Time) {
        self.window = self.smallest();
        self.recovery = now;
    }

    fn window(&self) -> u64 {
        bytes(self.window)
    }

    fn pacing_rate(&self) -> Option<BitRate> {
        Some(bit_rate(
            PACING_GAIN * self.window / self.rtt.as_secs_f64().max(1e-6),
        ))
    }

    fn state(&self) -> &'static str {
        match self.slowdown {
            Slowdown::At(_) => "background",
            Slowdown::Running { .. } | Slowdown::Regrowing { .. } => "slowdown",
        }
    }
}
