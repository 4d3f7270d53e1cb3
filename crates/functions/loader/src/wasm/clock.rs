//! The engine that compiles modules, and the clock that ends calls which take too long.
//!
//! The clock is a thread that increments the engine's epoch while functions exist.

use core::fmt;
use std::sync::OnceLock;
use std::time::Duration;

use millrace_nf::Limits;
use parking_lot::Mutex;
use wasmtime::{Config, Engine};

/// Time between two epochs.
const EPOCH: Duration = Duration::from_millis(10);
/// The default time limit of a burst.
const BURST_TIME: Duration = Duration::from_millis(20);
/// The time limit for the creation of a function, as a multiple of the time limit of a burst.
const MAKE_BURSTS: u64 = 100;

/// Stack size of a function, in bytes.
const STACK: usize = 256 << 10;

static ENGINE: OnceLock<Result<Engine, String>> = OnceLock::new();
static CLOCK: Mutex<Clock> = Mutex::new(Clock {
    functions: 0,
    runs: false,
});

struct Clock {
    functions: usize,
    runs: bool,
}

/// Time limits of a function, in epochs. The first epoch of a call has begun, so the clock ends a call up to 10 ms early.
#[derive(Clone, Copy, Debug)]
pub(super) struct TimeLimits {
    pub(super) burst: u64,
    pub(super) make: u64,
}

impl TimeLimits {
    pub(super) fn new(limits: &Limits) -> TimeLimits {
        let time = limits.burst_time.unwrap_or(BURST_TIME);
        let burst = u64::try_from(time.as_millis().div_ceil(EPOCH.as_millis())).unwrap_or(u64::MAX);
        let burst = burst.clamp(1, u64::MAX / (2 * MAKE_BURSTS));
        TimeLimits {
            burst,
            make: burst * MAKE_BURSTS,
        }
    }
}

impl fmt::Display for TimeLimits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = |epochs: u64| epochs as u128 * EPOCH.as_millis();
        let (burst, make) = (millis(self.burst), millis(self.make) / 1000);
        write!(f, "{burst} ms for a burst, or {make} s to start")
    }
}

/// Returns the engine of this process.
pub(super) fn engine() -> Result<&'static Engine, String> {
    let made = ENGINE.get_or_init(|| {
        let mut config = Config::new();
        config
            .consume_fuel(true)
            .epoch_interruption(true)
            .max_wasm_stack(STACK)
            // A function's process may not create the memfds that copy-on-write initialisation needs.
            .memory_init_cow(false)
            .wasm_backtrace_details(wasmtime::WasmBacktraceDetails::Disable);
        Engine::new(&config).map_err(|error| format!("the WebAssembly engine cannot be created: {error:#}"))
    });
    made.as_ref().map_err(Clone::clone)
}

/// Keeps the clock running while a value of this type exists.
#[derive(Debug)]
pub(super) struct EpochTicker(());

impl EpochTicker {
    pub(super) fn new(engine: &Engine) -> EpochTicker {
        let mut clock = CLOCK.lock();
        clock.functions += 1;
        if !clock.runs {
            let engine = engine.clone();
            let thread = std::thread::Builder::new().name("nf-wasm-clock".to_owned());
            // A function's process may not start threads. There the switch watches the heartbeat.
            clock.runs = thread.spawn(move || run(&engine)).is_ok();
        }
        EpochTicker(())
    }
}

impl Drop for EpochTicker {
    fn drop(&mut self) {
        let mut clock = CLOCK.lock();
        clock.functions -= 1;
    }
}

fn run(engine: &Engine) {
    loop {
        std::thread::sleep(EPOCH);
        engine.increment_epoch();
        let mut clock = CLOCK.lock();
        if clock.functions == 0 {
            clock.runs = false;
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_has_20_ms_and_a_start_2_s_unless_another_limit_is_set() {
        let text = |burst_time| {
            let limits = Limits {
                burst_time,
                ..Limits::default()
            };
            TimeLimits::new(&limits).to_string()
        };
        assert_eq!(text(None), "20 ms for a burst, or 2 s to start");
        let short = Duration::from_micros(1);
        assert_eq!(text(Some(short)), "10 ms for a burst, or 1 s to start");
        let _does_not_overflow = text(Some(Duration::MAX));
    }
}
