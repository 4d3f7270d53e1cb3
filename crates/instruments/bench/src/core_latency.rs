//! Core-to-core latency: the time in which a cache line moves from one core to another.
//!
//! Packets that pass between the core of a switch and another core (chains, generators, virtual NICs) wait for cache
//! lines most of the time. A virtual machine does not know which of its processors share a cache, and its host may
//! move them: rates then differ by a factor of up to three, and change every few seconds. The latency is therefore
//! sampled several times, and the smallest and the largest sample are recorded.

use core::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nix::sched::{CpuSet, sched_getaffinity};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

use millrace_process::pin_current_thread;

/// The number of samples, and the pause between them.
const SAMPLES: usize = 8;
const SAMPLE_INTERVAL: Duration = Duration::from_millis(60);
/// The number of round trips of the cache line in a sample.
const ROUND_TRIPS: u32 = 500;
/// The time limit of a sample: one of the two threads may not get its core.
const SAMPLE_TIMEOUT: Duration = Duration::from_millis(20);

/// The smallest and the largest one-way latency of some samples, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CoreToCoreLatency {
    /// The smallest sample.
    #[serde(rename = "least_nanos")]
    pub min_ns: u32,
    /// The largest sample.
    #[serde(rename = "most_nanos")]
    pub max_ns: u32,
}

/// A cache line that two threads write alternately.
#[repr(align(128))]
struct CacheLine(AtomicU32);

impl CacheLine {
    /// Waits until the line holds `number`. Returns false at the deadline.
    fn wait(&self, number: u32, deadline: Instant) -> bool {
        let mut polls = 0_u32;
        while self.0.load(Ordering::Acquire) != number {
            polls = polls.wrapping_add(1);
            if polls.is_multiple_of(1024) && Instant::now() > deadline {
                return false;
            }
            core::hint::spin_loop();
        }
        true
    }

    /// Replies to each odd number with the next even number.
    fn echo(&self, deadline: Instant) {
        for round in 0..ROUND_TRIPS {
            if !self.wait(2 * round + 1, deadline) {
                return;
            }
            self.0.store(2 * round + 2, Ordering::Release);
        }
    }

    /// Sends odd numbers, and returns the one-way latency in nanoseconds; `None` at the deadline.
    fn ping(&self, deadline: Instant) -> Option<u32> {
        let mut started = Instant::now();
        for round in 0..ROUND_TRIPS {
            if round == ROUND_TRIPS / 5 {
                // Both threads run now; the earlier round trips do not count.
                started = Instant::now();
            }
            self.0.store(2 * round + 1, Ordering::Release);
            if !self.wait(2 * round + 2, deadline) {
                return None;
            }
        }
        let one_way_trips = 2 * (ROUND_TRIPS - ROUND_TRIPS / 5);
        Some((started.elapsed().as_nanos() / u128::from(one_way_trips)) as u32)
    }
}

/// Returns one sample between two cores; `None` if it times out.
fn sample(one: u32, other: u32) -> Option<u32> {
    let (line, deadline) = (CacheLine(AtomicU32::new(0)), Instant::now() + SAMPLE_TIMEOUT);
    thread::scope(|scope| {
        scope.spawn(|| pin_current_thread(one).then(|| line.echo(deadline)));
        let pinged = scope.spawn(|| pin_current_thread(other).then(|| line.ping(deadline))?);
        pinged.join().ok().flatten()
    })
}

impl CoreToCoreLatency {
    /// Measures between the first and the last core that this process may use. Returns `None` if there is only one, or
    /// if they are too busy.
    #[must_use]
    pub fn measure() -> Option<CoreToCoreLatency> {
        let cores = sched_getaffinity(Pid::from_raw(0)).ok()?;
        let mut usable = (0..CpuSet::count()).filter(|core| cores.is_set(*core).unwrap_or(false));
        let (one, other) = (usable.next()? as u32, usable.next_back()? as u32);
        let samples = (0..SAMPLES).filter_map(|_| {
            thread::sleep(SAMPLE_INTERVAL);
            sample(one, other)
        });
        let samples: Vec<u32> = samples.collect();
        Some(CoreToCoreLatency {
            min_ns: *samples.iter().min()?,
            max_ns: *samples.iter().max()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latency_is_between_a_nanosecond_and_a_millisecond() {
        // There is no value on one core, or if both are busy.
        let Some(latency) = CoreToCoreLatency::measure() else {
            return;
        };
        assert!(latency.min_ns <= latency.max_ns);
        assert!((1..1_000_000).contains(&latency.min_ns), "{latency:?}");
    }

    #[test]
    fn a_ping_without_an_echo_times_out() {
        let line = CacheLine(AtomicU32::new(0));
        assert_eq!(line.ping(Instant::now() + Duration::from_millis(1)), None);
    }
}
