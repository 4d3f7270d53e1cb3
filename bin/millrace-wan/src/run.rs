//! Life cycle: settings, devices, control socket, threads; stopped in reverse by SIGINT or SIGTERM.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};

use anyhow::{Context, Result, anyhow};
use millrace_datapath::io::wan::PathSpec;
use millrace_datapath::io::{Backend, Device, DeviceOptions, DeviceSpec, Opened};
use millrace_wan_control::args::BetweenArgs;
use millrace_wan_emulator::Scenario;
use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::signal::{SigSet, Signal};
use nix::unistd::Pid;

use crate::control::{Control, PATH, Server};
use crate::forward::{self, Idle, Side, SideCounters};

/// The minimum number of usable cores for one thread per side.
const CORES_FOR_TWO: usize = 4;

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
    let server = Server::start(&between.socket(), Arc::new(control))?;
    let stop = AtomicBool::new(false);
    let idle = if between.poll { Idle::Poll } else { Idle::Sleep };
    let outcome = std::thread::scope(|scope| {
        let mut threads = Vec::new();
        let (ready, readiness) = mpsc::channel();
        for (number, sides) in shares(sides, between).into_iter().enumerate() {
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
                        forward::run(sides, idle, stop);
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
        let waited = started.and_then(|()| signals.wait().map(drop).context("waiting for a signal"));
        stop.store(true, Ordering::Relaxed);
        for thread in threads {
            thread.join().map_err(|_| anyhow!("a thread panicked"))?;
        }
        waited
    });
    drop(server);
    outcome
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
