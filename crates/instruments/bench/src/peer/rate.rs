//! Measures rates: reads counters twice, and divides the difference by the time between the readings. Before
//! that, it waits until the rate of the system is steady.

use std::time::{Duration, Instant};

use millrace_process::{ProcessError, ThreadTimes, pause};

use super::{Forwarding, PeerError, WarmUp};

/// Systems that settle within this time are sampled in shorter slices.
const SETTLES_SOON: Duration = Duration::from_secs(8);

/// A measurement over one window.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sample {
    /// Packets per second that left by each sink.
    pub rates: [f64; 2],
    /// The share of its core that the forwarding thread got, from 0 to 1; the smallest share if there are several
    /// threads.
    pub core_share: f64,
}

impl Sample {
    /// Returns the packets per second of both sinks.
    pub fn total(&self) -> f64 {
        self.rates.iter().sum()
    }
}

/// Measures a system with `workers` forwarding threads over one window.
///
/// # Errors
/// As [`Forwarding::rate`].
pub fn sample(running: &mut dyn Forwarding, window: Duration, workers: usize) -> Result<Sample, PeerError> {
    let before = ThreadTimes::of(running.pid());
    let rates = running.rate(window)?;
    let core_share = ThreadTimes::of(running.pid()).core_share_since(&before, workers);
    let sample = Sample { rates, core_share };
    if sample.total() > 0.0 {
        Ok(sample)
    } else {
        Err(PeerError::NoPackets { text: running.tail() })
    }
}

/// The rates of a system while it settled.
#[derive(Debug, Clone, PartialEq)]
pub struct WarmUpRates {
    /// The duration of a slice.
    pub slice: Duration,
    /// Packets per second in each slice, in order of time.
    pub rates: Vec<f64>,
}

impl WarmUpRates {
    /// Returns the duration of all slices in seconds.
    pub fn seconds(&self) -> f64 {
        self.slice.as_secs_f64() * self.rates.len() as f64
    }
}

/// Measures the rate of a system until three successive slices differ by less than 3 %, or the warm-up is over.
///
/// # Errors
/// As [`Forwarding::rate`].
pub fn settle(running: &mut dyn Forwarding, warm_up: WarmUp) -> Result<WarmUpRates, PeerError> {
    let start = Instant::now();
    let slice = if warm_up.max > SETTLES_SOON {
        Duration::from_secs(1)
    } else {
        Duration::from_millis(400)
    };
    let mut rates: Vec<f64> = Vec::new();
    while start.elapsed() < warm_up.max {
        rates.push(running.rate(slice)?.iter().sum());
        if start.elapsed() >= warm_up.min && is_steady(&rates) {
            break;
        }
    }
    Ok(WarmUpRates { slice, rates })
}

/// Returns true if the last three rates differ by less than 3 %.
fn is_steady(rates: &[f64]) -> bool {
    let Some(last) = rates.last_chunk::<3>() else {
        return false;
    };
    let (min, max) = (
        last.iter().copied().fold(f64::MAX, f64::min),
        last.iter().copied().fold(0.0, f64::max),
    );
    max > 0.0 && (max - min) / max < 0.03
}

/// The clock by which rates are measured.
trait Clock {
    /// Returns the current time.
    fn now(&self) -> Instant;

    /// Returns after `duration`.
    ///
    /// # Errors
    /// [`ProcessError::Interrupted`].
    fn pause(&self, duration: Duration) -> Result<(), ProcessError>;
}

/// The monotonic clock of the system.
struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Instant {
        Instant::now()
    }

    fn pause(&self, duration: Duration) -> Result<(), ProcessError> {
        pause(duration)
    }
}

/// Returns the increments per second of two counters, from one reading before and one after the window.
pub(super) fn rate_between(
    window: Duration,
    read: impl FnMut() -> Result<[u64; 2], PeerError>,
) -> Result<[f64; 2], PeerError> {
    rate_by(&SystemClock, window, read)
}

/// Returns the rate as [`rate_between`] does, by a given clock.
fn rate_by(
    clock: &impl Clock,
    window: Duration,
    mut read: impl FnMut() -> Result<[u64; 2], PeerError>,
) -> Result<[f64; 2], PeerError> {
    let mut timed = || -> Result<([u64; 2], Instant), PeerError> {
        let before = clock.now();
        let counters = read()?;
        // The system read its counters at some time between the request and the reply: the middle is the best estimate.
        Ok((counters, before + clock.now().duration_since(before) / 2))
    };
    let (first, start) = timed()?;
    clock.pause(window)?;
    let (second, end) = timed()?;
    let seconds = end.duration_since(start).as_secs_f64();
    Ok([0, 1].map(|sink| second[sink].saturating_sub(first[sink]) as f64 / seconds))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// A clock that advances only when it is told to.
    struct ManualClock(Cell<Instant>);

    impl ManualClock {
        fn advance(&self, duration: Duration) {
            self.0.set(self.0.get() + duration);
        }
    }

    impl Clock for ManualClock {
        fn now(&self) -> Instant {
            self.0.get()
        }

        fn pause(&self, duration: Duration) -> Result<(), ProcessError> {
            self.advance(duration);
            Ok(())
        }
    }

    #[test]
    fn a_rate_is_steady_when_three_seconds_agree() {
        assert!(!is_steady(&[]));
        assert!(!is_steady(&[1.0, 1.0]));
        assert!(!is_steady(&[0.0, 0.0, 0.0]));
        assert!(!is_steady(&[90.0, 95.0, 100.0]));
        assert!(is_steady(&[10.0, 99.0, 98.0, 100.0]));
    }

    #[test]
    fn a_rate_is_the_difference_of_two_readings_over_the_time_between_their_middles() {
        let clock = ManualClock(Cell::new(Instant::now()));
        // The first reading takes 20 ms, the second 60 ms: their middles are 10 + 160 + 30 ms apart.
        let mut readings = [(20, [500, 7]), (60, [2500, 7])].into_iter();
        let rates = rate_by(&clock, Duration::from_millis(160), || {
            let (ms, counters) = readings.next().unwrap();
            clock.advance(Duration::from_millis(ms));
            Ok(counters)
        })
        .unwrap();
        assert!((rates[0] - 10_000.0).abs() < 1e-6, "{rates:?}");
        assert_eq!(rates[1], 0.0);
    }

    #[test]
    fn a_counter_that_was_reset_gives_a_rate_of_zero() {
        let clock = ManualClock(Cell::new(Instant::now()));
        let mut readings = [[9, 9], [3, 10]].into_iter();
        let rates = rate_by(&clock, Duration::from_secs(1), || Ok(readings.next().unwrap())).unwrap();
        assert_eq!(rates, [0.0, 1.0]);
    }
}
