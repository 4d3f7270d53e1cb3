//! The engine that compiles modules, and the clock that ends calls which take too long.
//!
//! The clock is a thread that increments the engine's epoch while functions exist.

use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use wasmtime::{Config, Engine};

/// Time between two epochs.
const EPOCH: Duration = Duration::from_millis(10);
/// Time limit of a burst, in epochs: 10 to 20 ms.
pub(super) const BURST_EPOCHS: u64 = 2;
/// Time limit for creating a function, in epochs: two seconds.
pub(super) const MAKE_EPOCHS: u64 = 200;
/// Time limit of a burst, in milliseconds.
pub(super) const BURST_MILLIS: u64 = BURST_EPOCHS * EPOCH.as_millis() as u64;

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

/// Keeps the clock running while it exists.
#[derive(Debug)]
pub(super) struct EpochTicker(());

impl EpochTicker {
    pub(super) fn new(engine: &Engine) -> EpochTicker {
        let mut clock = CLOCK.lock().unwrap_or_else(PoisonError::into_inner);
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
        let mut clock = CLOCK.lock().unwrap_or_else(PoisonError::into_inner);
        clock.functions -= 1;
    }
}

fn run(engine: &Engine) {
    loop {
        std::thread::sleep(EPOCH);
        engine.increment_epoch();
        let mut clock = CLOCK.lock().unwrap_or_else(PoisonError::into_inner);
        if clock.functions == 0 {
            clock.runs = false;
            return;
        }
    }
}
