//! The thread of a scenario, which makes the changes at their times.

use std::io;
use std::time::{Duration, Instant};

use millrace_wan_emulator::{Scenario, Step};

/// The longest sleep, which is also the longest time until the thread notices the end of its scenario.
const SLEEP_MAX: Duration = Duration::from_secs(1);

/// Starts a thread that runs a function.
pub(super) type Spawn = fn(Box<dyn FnOnce() + Send>) -> io::Result<()>;

/// Starts a thread with the name of its task.
///
/// # Errors
/// The error of starting a thread.
pub(super) fn spawn(work: Box<dyn FnOnce() + Send>) -> io::Result<()> {
    let thread = std::thread::Builder::new().name("scenario".to_owned());
    thread.spawn(work).map(drop)
}

/// Starts a thread that calls `change` for each step of a scenario, at the step's time after now, until
/// `change` returns false. The thread calls `is_over` at least once a second, and ends when `is_over` returns
/// true.
///
/// # Errors
/// The error of starting a thread.
pub(super) fn start(
    spawn: Spawn,
    scenario: Scenario,
    is_over: impl Fn() -> bool + Send + 'static,
    mut change: impl FnMut(&Step) -> bool + Send + 'static,
) -> io::Result<()> {
    let mut begin = Instant::now();
    let work = move || {
        loop {
            for step in &scenario.steps {
                if !wait_until(begin + step.at, &is_over) || !change(step) {
                    return;
                }
            }
            match scenario.repeat.filter(|period| !period.is_zero()) {
                Some(period) => begin += period,
                None => return,
            }
        }
    };
    spawn(Box::new(work))
}

/// Sleeps until a time; returns false if the scenario ends before that time.
fn wait_until(due: Instant, is_over: &impl Fn() -> bool) -> bool {
    loop {
        let left = due.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return true;
        }
        std::thread::sleep(left.min(SLEEP_MAX));
        if is_over() {
            return false;
        }
    }
}
