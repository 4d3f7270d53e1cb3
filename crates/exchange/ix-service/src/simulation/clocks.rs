//! Clocks that a test moves.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use parking_lot::Mutex;

use crate::clock::Clocks;

/// The steps of the clocks so far.
#[derive(Debug, Default)]
struct Steps {
    /// The time that has passed in addition to that of the machine.
    passed: Duration,
    /// The time by which the system clock was set back.
    back: Duration,
}

/// The clocks of the machine, and steps on top of them. Clones share the steps.
#[derive(Debug, Clone)]
pub struct SimulatedClocks {
    start: Instant,
    steps: Arc<Mutex<Steps>>,
}

impl Default for SimulatedClocks {
    fn default() -> SimulatedClocks {
        SimulatedClocks {
            start: Instant::now(),
            steps: Arc::default(),
        }
    }
}

impl SimulatedClocks {
    /// Lets time pass: both clocks are this much later at once.
    pub fn pass(&self, time: Duration) {
        self.steps(|steps| steps.passed += time);
    }

    /// Sets the system clock back. The monotonic clock stays.
    pub fn set_back(&self, time: Duration) {
        self.steps(|steps| steps.back += time);
    }

    fn steps<T>(&self, act: impl FnOnce(&mut Steps) -> T) -> T {
        act(&mut self.steps.lock())
    }
}

impl Clocks for SimulatedClocks {
    fn monotonic(&self) -> Duration {
        self.start.elapsed() + self.steps(|steps| steps.passed)
    }

    fn system(&self) -> Duration {
        let system = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default();
        self.steps(|steps| (system + steps.passed).saturating_sub(steps.back))
    }
}
