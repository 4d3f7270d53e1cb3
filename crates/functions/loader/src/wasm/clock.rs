//! The engine that compiles modules, and the clock that ends those which take too long.
//!
//! The clock is a thread that counts the engine's epochs while there are functions: none otherwise.

use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use wasmtime::{Config, Engine};

/// Time between two epochs.
const EPOCH: Duration = Duration::from_millis(10);
/// How long a burst may take, in epochs: 10 to 20 ms.
pub(super) const BURST_EPOCHS: u64 = 2;
/// How long a function may take to be made, in epochs: two seconds.
pub(super) const MAKE_EPOCHS: u64 = 200;
/// The longest time for a burst.
pub(super) const BURST_MILLIS: u64 = BURST_EPOCHS * EPOCH.as_millis() as u64;

/// Bytes of the stack of a function.
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

/// The engine of this process.
pub(super) fn engine() -> Result<&'static Engine, String> {
    let made = ENGINE.get_or_init(|| {
        let mut config = Config::new();
        config
            .consume_fuel(true)
            .epoch_interruption(true)
            .max_wasm_stack(STACK)
            // What a memory begins with is copied: in a process, there is no right to make files for it.
            .memory_init_cow(false)
            .wasm_backtrace_details(wasmtime::WasmBacktraceDetails::Disable);
        Engine::new(&config).map_err(|error| format!("no engine for WebAssembly: {error:#}"))
    });
    made.as_ref().map_err(Clone::clone)
}

/// Held by each function: while there is one, time goes on.
#[derive(Debug)]
pub(super) struct Ticking(());

impl Ticking {
    pub(super) fn new(engine: &Engine) -> Ticking {
        let mut clock = CLOCK.lock().unwrap_or_else(PoisonError::into_inner);
        clock.functions += 1;
        if !clock.runs {
            let engine = engine.clone();
            let thread = std::thread::Builder::new().name("nf-wasm-clock".to_owned());
            // A process without the right to more threads has one that watches it: the switch, by its heartbeat.
            clock.runs = thread.spawn(move || run(&engine)).is_ok();
        }
        Ticking(())
    }
}

impl Drop for Ticking {
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
