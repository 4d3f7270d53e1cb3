//! How far two cores are from each other: the time that a line of the cache takes from one to the other.
//!
//! What is passed between a switch's core and another (chains, generators, virtual NICs) waits for such lines, most of the
//! time. A virtual machine does not say which of its processors share a cache, and its host may move them: then rates come
//! in two sizes, three apart, and change every few seconds. So this is measured several times, and the least and the
//! most are told.

use core::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nix::sched::{CpuSet, sched_getaffinity};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

use millrace_process::confine_self;

/// Looks, and how far apart they are.
const LOOKS: usize = 8;
const BETWEEN: Duration = Duration::from_millis(60);
/// Times that the line goes there and back in a look.
const ROUNDS: u32 = 500;
/// One of the two may not have its core in time.
const BOUND: Duration = Duration::from_millis(20);

/// The least and the most of some looks, in nanoseconds, one way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Distance {
    /// The least.
    pub least_nanos: u32,
    /// The most.
    pub most_nanos: u32,
}

/// A line that two threads write to in turn.
#[repr(align(128))]
struct Line(AtomicU32);

impl Line {
    /// Waits until a number is there. Whether it came in time.
    fn wait(&self, number: u32, deadline: Instant) -> bool {
        let mut looks = 0_u32;
        while self.0.load(Ordering::Acquire) != number {
            looks = looks.wrapping_add(1);
            if looks.is_multiple_of(1024) && Instant::now() > deadline {
                return false;
            }
            core::hint::spin_loop();
        }
        true
    }

    /// Answers each odd number with the next even one.
    fn answer(&self, deadline: Instant) {
        for round in 0..ROUNDS {
            if !self.wait(2 * round + 1, deadline) {
                return;
            }
            self.0.store(2 * round + 2, Ordering::Release);
        }
    }

    /// Sends odd numbers, and returns what one way took.
    fn ask(&self, deadline: Instant) -> Option<u32> {
        let mut started = Instant::now();
        for round in 0..ROUNDS {
            if round == ROUNDS / 5 {
                // Both are there now, and awake.
                started = Instant::now();
            }
            self.0.store(2 * round + 1, Ordering::Release);
            if !self.wait(2 * round + 2, deadline) {
                return None;
            }
        }
        let ways = 2 * (ROUNDS - ROUNDS / 5);
        Some((started.elapsed().as_nanos() / u128::from(ways)) as u32)
    }
}

fn look(one: u32, other: u32) -> Option<u32> {
    let (line, deadline) = (Line(AtomicU32::new(0)), Instant::now() + BOUND);
    thread::scope(|scope| {
        scope.spawn(|| confine_self(one).then(|| line.answer(deadline)));
        let asked = scope.spawn(|| confine_self(other).then(|| line.ask(deadline))?);
        asked.join().ok().flatten()
    })
}

impl Distance {
    /// Of the first and the last of the cores that this process may use; none of one core, or if they are too busy.
    #[must_use]
    pub fn measure() -> Option<Distance> {
        let cores = sched_getaffinity(Pid::from_raw(0)).ok()?;
        let mut usable = (0..CpuSet::count()).filter(|core| cores.is_set(*core).unwrap_or(false));
        let (one, other) = (usable.next()? as u32, usable.next_back()? as u32);
        let looks = (0..LOOKS).filter_map(|_| {
            thread::sleep(BETWEEN);
            look(one, other)
        });
        let looks: Vec<u32> = looks.collect();
        Some(Distance {
            least_nanos: *looks.iter().min()?,
            most_nanos: *looks.iter().max()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_is_no_more_than_the_most_and_both_are_times_of_a_machine() {
        // None where there is one core, or both are busy.
        let Some(distance) = Distance::measure() else {
            return;
        };
        assert!(distance.least_nanos <= distance.most_nanos);
        assert!((1..1_000_000).contains(&distance.least_nanos), "{distance:?}");
    }

    #[test]
    fn a_line_that_nobody_answers_is_given_up() {
        let line = Line(AtomicU32::new(0));
        assert_eq!(line.ask(Instant::now() + Duration::from_millis(1)), None);
    }
}
