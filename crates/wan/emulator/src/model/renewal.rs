//! A process that alternates between two states after random times: bursts of background traffic, or outages.

use libm::{log, pow};

use crate::random::Stream;

/// The lengths of periods in one state.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Period {
    /// The mean length in nanoseconds.
    pub(crate) mean: f64,
    /// The shape of a Pareto distribution. `None` means an exponential distribution.
    pub(crate) pareto: Option<f64>,
}

impl Period {
    /// Returns the quantile of the length at a fraction, at least 1 ns.
    fn draw(self, fraction: f64) -> u64 {
        let length = match self.pareto {
            None => -log(fraction) * self.mean,
            // The smallest length is mean × (shape - 1) / shape.
            Some(shape) => self.mean * (shape - 1.0) / shape * pow(fraction, -1.0 / shape),
        };
        (length as u64).clamp(1, 1 << 56)
    }
}

/// Returns the longest gap, in nanoseconds, in which every period is drawn: a thousand mean cycles.
pub(crate) fn longest_gap(off: Period, on: Period) -> u64 {
    (1000.0 * (off.mean + on.mean)) as u64
}

/// The current state and its end. The process begins at the start of the first state.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Renewal {
    /// True in the second state.
    pub(crate) on: bool,
    /// The end of the state in nanoseconds.
    pub(crate) until: u64,
    drawn: u64,
}

impl Renewal {
    pub(crate) fn new(start: u64, off: Period, stream: Stream) -> Renewal {
        Renewal {
            on: false,
            until: start.saturating_add(off.draw(stream.fraction(0))),
            drawn: 1,
        }
    }

    /// Changes to the next state.
    pub(crate) fn toggle(&mut self, off: Period, on: Period, stream: Stream) {
        self.on = !self.on;
        let period = if self.on { on } else { off };
        self.until = self
            .until
            .saturating_add(period.draw(stream.fraction(self.drawn)));
        self.drawn += 1;
    }

    /// Advances to the state at `now`. In a gap longer than [`longest_gap`] the process skips the excess, so
    /// that the work is bounded.
    pub(crate) fn advance(&mut self, now: u64, off: Period, on: Period, stream: Stream) {
        let longest = longest_gap(off, on);
        if now.saturating_sub(self.until) > longest {
            self.until = now - longest;
        }
        while self.until <= now {
            self.toggle(off, on, stream);
        }
    }
}
