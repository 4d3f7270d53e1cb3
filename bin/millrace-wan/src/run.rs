//! Life cycle: settings, devices, control socket, threads; stopped in reverse by SIGINT or SIGTERM.

use std::io::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use millrace_datapath::io::wan::PathSpec;
use millrace_datapath::io::{Backend, Device, DeviceOptions, DeviceSpec, Opened, kernel_interface};
use millrace_wan_control::args::BetweenArgs;
use millrace_wan_emulator::Scenario;
use nix::net::if_::if_nametoindex;
use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::signal::{SigSet, Signal};
use nix::unistd::{Pid, getpid};
use parking_lot::Mutex;

use crate::control::{Control, PATH, Server};
use crate::forward::{self, Idle, Side, SideCounters};
use crate::sleep::Sleepers;

/// The minimum number of usable cores for one thread per side.
const CORES_FOR_TWO: usize = 4;

/// The interval at which the presence of the interfaces is checked.
const CHECK_INTERVAL: Duration = Duration::from_millis(500);
/// The time for which an interface may be away, as in a restart of its driver, before the emulator ends.
const AWAY_MAX: Duration = Duration::from_secs(5);

/// Forwards between two interfaces until SIGINT or SIGTERM.
pub(crate) fn run<B: Backend>(
    backend: &Arc<B>,
    between: &BetweenArgs,
    interfaces: &[DeviceSpec; 2],
) -> Result<()> {
    // Signals are blocked before any other thread starts, because threads inherit the mask.
    let signals = block_signals()?;
    let settings = between.settings();
    let scenario = between.scenario.as_deref().map(|path| {
        let text = std::fs::read_to_string(path).with_context(|| format!("--scenario {}", path.display()))?;
        Scenario::parse(&text).map_err(|error| anyhow!("--scenario {}: {error}", path.display()))
    });
    let spec = PathSpec {
        directions: settings.directions()?,
        seed: settings.seed,
        scenario: scenario.transpose()?,
    };
    backend.wans().configure(PATH, &spec)?;
    let mut outer = open(&**backend, interfaces)?;
    let ends = [0, 1].map(|end| DeviceSpec::Wan {
        name: PATH.to_owned(),
        end,
    });
    let mut inner = open(&**backend, &ends)?;
    let counters: [Arc<SideCounters>; 2] = Default::default();
    let mut sides = Vec::new();
    for ((outer, inner), counters) in outer.iter_mut().zip(&mut inner).zip(&counters) {
        let side = Side::new(outer, inner, Arc::clone(counters));
        sides.push(side.context("a device without queues")?);
    }
    // The devices outlive the queues, which the threads own.
    let devices: [Box<dyn Device>; 2] = outer.map(|opened| opened.device);
    let _ends = inner.map(|opened| opened.device);
    let control = Control::new(
        between,
        settings,
        spec.scenario,
        Arc::clone(backend.wans()),
        devices,
        counters,
    );
    let control = Arc::new(control);
    let server = Server::start(&between.socket(), Arc::clone(&control))?;
    let stop = AtomicBool::new(false);
    let gone = Mutex::new(None);
    let idle = if between.poll { Idle::Poll } else { Idle::Sleep };
    let outcome = std::thread::scope(|scope| {
        let mut threads = Vec::new();
        let (ready, readiness) = mpsc::channel();
        let shares = shares(sides, between);
        let sleepers = Sleepers::of_threads(shares.len())?;
        for (number, (sides, sleepers)) in shares.into_iter().zip(sleepers).enumerate() {
            let core = between.cores.get(number).copied();
            let (stop, backend) = (&stop, &**backend);
            let ready = ready.clone();
            let work = move || {
                let bound = core.map_or(Ok(()), bind);
                let registered =
                    bound.and_then(|()| backend.register_worker().map_err(|reason| anyhow!(reason)));
                match registered {
                    Ok(_registration) => {
                        let _starter_gone = ready.send(Ok(()));
                        forward::run(sides, idle, &sleepers, stop);
                    }
                    Err(error) => {
                        let _starter_gone = ready.send(Err(error));
                    }
                }
            };
            let name = format!("path-{number}");
            threads.push(std::thread::Builder::new().name(name).spawn_scoped(scope, work)?);
        }
        drop(ready);
        let started: Result<()> = readiness.iter().take(threads.len()).collect();
        let waited = started.and_then(|()| {
            announce(&control, between);
            let names = interfaces
                .each_ref()
                .map(|spec| kernel_interface(spec).map(str::to_owned));
            let (gone, stop) = (&gone, &stop);
            let watcher = scope.spawn(move || watch(&names, gone, stop));
            let waited = signals.wait().map(drop).context("waiting for a signal");
            stop.store(true, Ordering::Relaxed);
            watcher.thread().unpark();
            waited
        });
        stop.store(true, Ordering::Relaxed);
        for thread in threads {
            thread.join().map_err(|_| anyhow!("a thread panicked"))?;
        }
        match gone.lock().take() {
            Some(reason) => Err(anyhow!("{reason}")),
            None => waited,
        }
    });
    drop(server);
    outcome
}

/// Prints the path, its settings and warnings, and where it is controlled.
fn announce(control: &Control, between: &BetweenArgs) {
    let Ok(status) = control.status() else { return };
    let mut text = format!("{}\n{}", status.title(), status.settings_text());
    for warning in status.warnings() {
        text += &format!("warning: {warning}\n");
    }
    text += &format!(
        "forwarding until SIGINT or SIGTERM; `millrace wan show` has frames and delays (control socket {})\n",
        between.socket().display()
    );
    // The path forwards also if nobody reads.
    let _read = std::io::stdout().write_all(text.as_bytes());
}

/// Ends the process with SIGTERM, and leaves the reason in `gone`, once an interface of the kernel has been away for
/// [`AWAY_MAX`].
fn watch(names: &[Option<String>; 2], gone: &Mutex<Option<String>>, stop: &AtomicBool) {
    let mut seen = [Instant::now(); 2];
    while !stop.load(Ordering::Relaxed) {
        for (name, seen) in names.iter().zip(&mut seen) {
            let Some(name) = name else { continue };
            if if_nametoindex(&**name).is_ok() {
                *seen = Instant::now();
            } else if seen.elapsed() >= AWAY_MAX {
                *gone.lock() = Some(format!(
                    "the interface {name} is gone from this network namespace: start the emulator again when it is back"
                ));
                // The main thread waits for this signal.
                let _sent = nix::sys::signal::kill(getpid(), Signal::SIGTERM);
                return;
            }
        }
        std::thread::park_timeout(CHECK_INTERVAL);
    }
}

fn open<B: Backend>(backend: &B, specs: &[DeviceSpec; 2]) -> Result<[Opened<B::Packet>; 2]> {
    let open = |spec| backend.open(spec, DeviceOptions::PLAIN);
    Ok([open(&specs[0])?, open(&specs[1])?])
}

/// Returns the sides of each thread. Without configured cores, and with fewer than [`CORES_FOR_TWO`] usable
/// cores, there is one thread, because two threads on one core would delay each other when a frame is due.
fn shares<P>(mut sides: Vec<Side<P>>, between: &BetweenArgs) -> Vec<Vec<Side<P>>> {
    let usable = std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get);
    let threads = match between.cores.len() {
        0 if usable >= CORES_FOR_TWO => 2,
        0 => 1,
        cores => cores,
    };
    if threads < 2 {
        return vec![sides];
    }
    let second = sides.split_off(1);
    vec![sides, second]
}

fn bind(core: u16) -> Result<()> {
    let mut cores = CpuSet::new();
    cores
        .set(usize::from(core))
        .and_then(|()| sched_setaffinity(Pid::from_raw(0), &cores))
        .with_context(|| {
            format!(
                "--cores {core}: the thread cannot be bound. To fix it: name cores that this process may use (grep \
                 Cpus_allowed_list /proc/self/status)"
            )
        })
}

fn block_signals() -> Result<SigSet> {
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGINT);
    signals.add(Signal::SIGTERM);
    signals.thread_block().context("signals cannot be blocked")?;
    Ok(signals)
}
