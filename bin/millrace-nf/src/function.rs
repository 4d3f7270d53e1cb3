//! The network function of the process: found by its name, checked, and created after privileges were
//! dropped.

use std::fs::File;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, anyhow};
use millrace_builtin::CATALOGUE;
use millrace_loader::{ANY_LIBRARY, ANY_LOADERS, WASM};
use millrace_nf::{Catalogue, Function, Kind, Limits, Settings, Setup};

use crate::options::Options;
use crate::sandbox::{self, PacketSource};

/// The functions that this program runs.
pub(crate) const FUNCTIONS: Catalogue = CATALOGUE.with_loaders(ANY_LOADERS);

/// The timer slack of sleeps, in nanoseconds (prctl(2), `PR_SET_TIMERSLACK`).
const TIMER_SLACK_NANOS: u64 = 1000;

/// Sets niceness and timer slack of this process.
pub(crate) fn set_scheduling(nice: i32) {
    if nice != 0 {
        // Without root, a negative niceness fails, and the process keeps its niceness.
        let _unchanged = rustix::process::nice(nice);
    }
    // The default slack of 50 µs would double the shortest sleep. If this fails, sleeps are longer.
    let _default = nix::sys::prctl::set_timerslack(TIMER_SLACK_NANOS);
}

/// Checks the function and its settings without running code of a file: of a file, only that it can be opened.
pub(crate) fn check(options: &Options) -> Result<()> {
    let settings = Settings::parse(&options.settings)?;
    let function = || format!("function {}", options.function);
    match options.function.split_once(':') {
        Some((prefix, path)) if [WASM.prefix, ANY_LIBRARY.prefix].contains(&prefix) => {
            File::open(path).map(drop).with_context(function)
        }
        _ => FUNCTIONS
            .find(&options.function)?
            .check(&settings)
            .with_context(function),
    }
}

/// Drops the rights that loading the function does not need, and creates the function.
pub(crate) fn load(
    options: &Options,
    source: PacketSource,
) -> Result<(&'static Kind, Box<dyn Function>, Setup)> {
    let seed = options
        .seed
        .unwrap_or_else(|| RandomState::new().build_hasher().finish());
    // A WebAssembly module has no limit here: its engine limits its memory, and its compilation needs more memory.
    let memory = options
        .memory_limit
        .filter(|_| !options.function.starts_with(WASM.prefix));
    let sandbox = sandbox::before_loading(options.user, memory, source);
    sandbox.context("the rights of this process cannot be dropped")?;
    let kind = FUNCTIONS.find(&options.function)?;
    let settings = Settings::parse(&options.settings)?;
    // The function's clock is zero when its poll loop begins, about now.
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut setup = kind.setup(&settings, seed, now.as_millis() as u64);
    setup.instance = options.number;
    setup.limits = Limits {
        memory: options.memory_limit,
        fuel: options.fuel,
        burst_time: None,
    };
    if let (Some(shared), PacketSource::Socket { .. }) = (kind.shared, source) {
        // A process that an operator starts reads the files itself, before it loses the right to open files.
        let value = || (shared.compile)(&(shared.read)(&settings)?.bytes, None);
        let compiled = value().map_err(|reason| anyhow!("function {}: {reason}", options.function))?;
        eprintln!("millrace-nf: {}", compiled.summary);
        setup.shared = Some(compiled.value);
    }
    let function = kind.make_function(&setup)?;
    Ok((kind, function, setup))
}
