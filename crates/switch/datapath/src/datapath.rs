//! The workers of a switch, and the bridges that they serve.

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::io;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Instant;

use millrace_types::Time;
use thiserror::Error;

use crate::bridge::{Bridge, BridgeError, BridgeSetup};
use crate::counters::{WorkerCounters, WorkerStats};
use crate::handoff::Inbox;
use crate::idle::Idle;
use crate::io::Backend;
use crate::spread::balance::Balancer;
use crate::spread::{Spread, Spreading, links};
use crate::stepper::Stepper;
use crate::worker::{Command, Worker, WorkerHandle};

/// The number of workers, their cores, and their behaviour.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Workers {
    /// The core of each worker; `None` leaves the choice to the kernel. At least one.
    pub cores: Vec<Option<usize>>,
    /// The behaviour of workers that find no packets.
    pub idle: Idle,
    /// The condition under which workers hand packets to each other.
    pub spread: Spread,
}

impl Workers {
    /// Excludes the workers' cores from the affinity of the calling thread. Threads and processes that this thread
    /// starts later inherit the affinity. Otherwise the kernel may run a network function on the core of a polling
    /// worker, which halves the speed of both. Does nothing if workers have all cores.
    pub fn leave_cores(&self) {
        let this = nix::unistd::Pid::from_raw(0);
        let Ok(mut rest) = nix::sched::sched_getaffinity(this) else {
            return;
        };
        let mut taken = self.cores.iter().flatten();
        let left = taken.try_fold((), |(), core| rest.unset(*core));
        let is_free = |core| rest.is_set(core).unwrap_or(false);
        if left.is_ok() && (0..nix::sched::CpuSet::count()).any(is_free) {
            // If the kernel refuses, the affinity stays as it was.
            let _as_before = nix::sched::sched_setaffinity(this, &rest);
        }
    }
}

/// Returns the cores that a worker can be bound to, in ascending order: the existing cores that the system
/// allows this process (cpusets). The affinity of the calling thread does not matter and stays as it is.
///
/// # Errors
/// Returns the error of the kernel.
pub fn usable_cores() -> io::Result<Vec<usize>> {
    let ask = || -> Result<Vec<usize>, nix::errno::Errno> {
        let this = nix::unistd::Pid::from_raw(0);
        let mut all = nix::sched::CpuSet::new();
        (0..nix::sched::CpuSet::count()).try_for_each(|core| all.set(core))?;
        // The kernel ignores cores that do not exist.
        nix::sched::sched_setaffinity(this, &all)?;
        let taken = nix::sched::sched_getaffinity(this)?;
        let is_set = |core: &usize| taken.is_set(*core).unwrap_or(false);
        Ok((0..nix::sched::CpuSet::count()).filter(is_set).collect())
    };
    // A separate thread leaves the affinity of the calling thread unchanged.
    let thread = std::thread::Builder::new().name("cores".to_owned()).spawn(ask)?;
    match thread.join() {
        Ok(cores) => Ok(cores?),
        Err(_) => Err(io::Error::other("the thread that asks for the cores panicked")),
    }
}

/// The reason why workers cannot be started.
#[derive(Debug, Error)]
pub enum StartError {
    /// The configuration has no worker.
    #[error("a switch needs at least one worker: To fix it: set system.workers to 1 or more")]
    NoWorkers,
    /// The kernel refused the thread that balances the load of the workers.
    #[error(
        "the balancer's thread cannot be started: {0}. To fix it: raise the limit of threads (ulimit -u)"
    )]
    Balancer(#[source] io::Error),
    /// The kernel refused a thread.
    #[error(
        "worker {worker}: the thread cannot be started: {source}. To fix it: raise the limit of threads (ulimit -u)"
    )]
    Thread {
        /// The number of the worker.
        worker: usize,
        /// The error of the kernel.
        source: io::Error,
    },
    /// The thread runs, but cannot be a worker.
    #[error("worker {worker}: {reason}")]
    Refused {
        /// The number of the worker.
        worker: usize,
        /// The problem and the next step.
        reason: String,
    },
}

/// The time of the workers' clock when they start. The clock does not begin at zero, so that a flow entry that an
/// earlier run of the switch added has a time of addition before the start. Ages of more than a year become a year.
pub const TIME_AT_START: Time = Time::from_secs(365 * 86_400);

/// Returns the origin of a clock that shows [`TIME_AT_START`] now.
fn epoch() -> Instant {
    let now = Instant::now();
    now.checked_sub(TIME_AT_START.since(Time::ZERO)).unwrap_or(now)
}

/// The workers of a switch. Dropping it stops them.
pub struct Datapath<B: Backend> {
    backend: Arc<B>,
    workers: Arc<[WorkerHandle<B::Packet>]>,
    threads: Vec<JoinHandle<()>>,
    epoch: Instant,
    bridges: AtomicU32,
    spreading: Option<Spreading>,
    _balancer: Option<Balancer>,
}

impl<B: Backend> Datapath<B> {
    /// Starts the workers; they have no bridge yet.
    ///
    /// # Errors
    /// [`StartError`]; no worker runs then.
    pub fn start(backend: Arc<B>, workers: &Workers) -> Result<Datapath<B>, StartError> {
        if workers.cores.is_empty() {
            return Err(StartError::NoWorkers);
        }
        let epoch = epoch();
        let (mut handles, mut threads) = (Vec::new(), Vec::new());
        let spreading = Spreading::new(workers.cores.len(), workers.spread);
        let mut links_of_workers = spreading
            .as_ref()
            .map(|_| links::mesh(workers.cores.len()).into_iter());
        let mut started = Ok(());
        for (number, core) in workers.cores.iter().enumerate() {
            let links = links_of_workers.as_mut().and_then(Iterator::next);
            let (handle, worker) = new_worker(epoch, *core, workers.idle, links);
            match start_worker(number, *core, Arc::clone(&backend), worker) {
                Ok(thread) => threads.push(thread),
                Err(error) => {
                    started = Err(error);
                    break;
                }
            }
            handles.push(handle);
        }
        let balancer = started.and_then(|()| start_balancer(spreading.as_ref(), &handles, workers.spread));
        let (balancer, error) = match balancer {
            Ok(balancer) => (balancer, None),
            Err(error) => (None, Some(error)),
        };
        let datapath = Datapath {
            backend,
            workers: handles.into(),
            threads,
            epoch,
            bridges: AtomicU32::new(0),
            spreading,
            _balancer: balancer,
        };
        match error {
            None => Ok(datapath),
            Some(error) => {
                // Stops the workers that run.
                drop(datapath);
                Err(error)
            }
        }
    }

    /// Returns a datapath of one worker without a thread: the owner of the [`Stepper`] runs the worker.
    pub fn stepped(backend: Arc<B>) -> (Datapath<B>, Stepper<B::Packet>)
    where
        B: Backend<Registration = ()>,
    {
        let epoch = Instant::now();
        let (handle, worker) = new_worker(epoch, None, Idle::Busy, None);
        let datapath = Datapath {
            backend,
            workers: [handle].into(),
            threads: Vec::new(),
            epoch,
            bridges: AtomicU32::new(0),
            spreading: None,
            _balancer: None,
        };
        (datapath, Stepper::new(worker))
    }

    /// Returns the backend that opens devices.
    pub fn backend(&self) -> &Arc<B> {
        &self.backend
    }

    /// Returns the number of workers.
    pub fn workers_len(&self) -> usize {
        self.workers.len()
    }

    /// Returns the time of the workers' clock.
    pub fn now(&self) -> Time {
        Time::from_nanos(self.epoch.elapsed().as_nanos() as u64)
    }

    /// Returns a new bridge without ports. The calling thread controls it: events unpark that thread (see
    /// [`std::thread::park`]).
    ///
    /// # Errors
    /// [`BridgeError`] if there are more workers than a bridge can have readers.
    pub fn bridge(&self, setup: BridgeSetup) -> Result<Bridge<B>, BridgeError> {
        let number = self.bridges.fetch_add(1, Ordering::Relaxed);
        Bridge::new(
            number,
            Arc::clone(&self.backend),
            Arc::clone(&self.workers),
            self.epoch,
            self.spreading.clone(),
            setup,
        )
    }

    /// Returns the counters of each worker.
    pub fn worker_stats(&self) -> Vec<WorkerStats> {
        let stats = |(worker, handle): (usize, &WorkerHandle<B::Packet>)| WorkerStats {
            worker,
            core: handle.core,
            polls: handle.counters.polls.read(),
            busy_polls: handle.counters.busy_polls.read(),
            packets: handle.counters.packets.read(),
            handed_off: handle.counters.handed_off.read(),
            busy_nanos: handle.counters.busy_nanos.read(),
            spread_nanos: handle.counters.spread_nanos.read(),
            sleeps: handle.counters.sleeps.read(),
            slept_nanos: handle.counters.slept_nanos.read(),
            rx_queues: handle.counters.rx_queues.read(),
        };
        self.workers.iter().enumerate().map(stats).collect()
    }
}

impl<B: Backend> Drop for Datapath<B> {
    fn drop(&mut self) {
        self.workers.iter().for_each(|worker| worker.send(Command::Stop));
        for thread in self.threads.drain(..) {
            // A panic of a worker has been reported already.
            let _panicked = thread.join();
        }
    }
}

/// Returns a worker without bridges, and the control side's handle of it.
fn new_worker<P>(
    epoch: Instant,
    core: Option<usize>,
    idle: Idle,
    links: Option<links::Links<P>>,
) -> (WorkerHandle<P>, Worker<P>) {
    let (commands, receiver) = mpsc::channel();
    let handle = WorkerHandle {
        commands,
        has_commands: Arc::new(AtomicBool::new(false)),
        inbox: Inbox::new(),
        counters: Arc::new(WorkerCounters::default()),
        core,
    };
    let worker = Worker {
        epoch,
        commands: receiver,
        has_commands: Arc::clone(&handle.has_commands),
        inbox: handle.inbox.clone(),
        counters: Arc::clone(&handle.counters),
        idle,
        bridges: Vec::new(),
        links,
        is_flushed: true,
        has_fences: false,
        expects_gso: false,
        wakes_precisely: false,
    };
    (handle, worker)
}

/// Starts the balancer if workers share flows.
fn start_balancer<P>(
    spreading: Option<&Spreading>,
    workers: &[WorkerHandle<P>],
    spread: Spread,
) -> Result<Option<Balancer>, StartError> {
    let Some(spreading) = spreading else {
        return Ok(None);
    };
    let counters = workers.iter().map(|worker| Arc::clone(&worker.counters));
    Balancer::start(Arc::clone(&spreading.retas), counters.collect(), spread)
        .map(Some)
        .map_err(StartError::Balancer)
}

/// Starts the thread of a worker. Returns when the thread has reported that it can be a worker.
fn start_worker<B: Backend>(
    number: usize,
    core: Option<usize>,
    backend: Arc<B>,
    worker: Worker<B::Packet>,
) -> Result<JoinHandle<()>, StartError> {
    let (ready, readiness) = mpsc::sync_channel(1);
    let body = move || {
        let bound = core.map_or(Ok(()), bind_to_core);
        match bound.and_then(|()| backend.register_worker()) {
            Ok(registration) => {
                let _starter_ended = ready.send(Ok(()));
                worker.run();
                drop(registration);
            }
            Err(reason) => {
                let _starter_ended = ready.send(Err(reason));
            }
        }
    };
    let thread = std::thread::Builder::new()
        .name(format!("worker-{number}"))
        .spawn(body)
        .map_err(|source| StartError::Thread {
            worker: number,
            source,
        })?;
    match readiness.recv() {
        Ok(Ok(())) => Ok(thread),
        Ok(Err(reason)) => Err(StartError::Refused {
            worker: number,
            reason,
        }),
        Err(_) => Err(StartError::Refused {
            worker: number,
            reason: "its thread panicked".to_owned(),
        }),
    }
}

fn bind_to_core(core: usize) -> Result<(), String> {
    let mut cores = nix::sched::CpuSet::new();
    cores
        .set(core)
        .and_then(|()| nix::sched::sched_setaffinity(nix::unistd::Pid::from_raw(0), &cores))
        .map_err(|error| {
            format!(
                "cannot be bound to core {core}: {error}. To fix it: name one of the cores that this process may use \
                 (grep Cpus_allowed_list /proc/self/status) in system.worker_cores, or none"
            )
        })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use millrace_wire::Frame;

    use super::*;
    use crate::io::wan::Wans;
    use crate::io::{DeviceOptions, DeviceSpec, HeapBackend, OpenError, Opened};

    /// A backend that registers only one worker.
    struct OneWorker {
        heap: HeapBackend,
        /// Number of workers that asked to be registered.
        asked: AtomicUsize,
        /// Shared with each registration.
        registered: Arc<()>,
    }

    impl Backend for OneWorker {
        type Packet = Frame;
        type Registration = Arc<()>;

        fn packet(&self, bytes: &[u8]) -> Option<Frame> {
            self.heap.packet(bytes)
        }

        fn wans(&self) -> &Arc<Wans> {
            self.heap.wans()
        }

        fn open(&self, spec: &DeviceSpec, options: DeviceOptions) -> Result<Opened<Frame>, OpenError> {
            self.heap.open(spec, options)
        }

        fn register_worker(&self) -> Result<Arc<()>, String> {
            match self.asked.fetch_add(1, Ordering::Relaxed) {
                0 => Ok(Arc::clone(&self.registered)),
                _ => Err("no lcore is free".to_owned()),
            }
        }

        fn buffers(&self) -> Option<crate::io::BufferCounts> {
            self.heap.buffers()
        }
    }

    #[test]
    fn no_worker_runs_after_a_failed_start() {
        let backend = Arc::new(OneWorker {
            heap: HeapBackend::new(),
            asked: AtomicUsize::new(0),
            registered: Arc::default(),
        });
        let workers = Workers {
            cores: vec![None; 3],
            idle: Idle::Busy,
            spread: Spread::Auto,
        };
        let error = Datapath::start(Arc::clone(&backend), &workers).err().unwrap();
        assert!(matches!(error, StartError::Refused { worker: 1, .. }), "{error}");
        assert_eq!(backend.asked.load(Ordering::Relaxed), 2);
        assert_eq!(Arc::strong_count(&backend.registered), 1);
    }

    #[test]
    fn the_usable_cores_are_those_that_a_worker_can_be_bound_to() {
        let usable = usable_cores().unwrap();
        let last = *usable.last().unwrap();
        let bound = |core| {
            std::thread::spawn(move || bind_to_core(core).is_ok())
                .join()
                .unwrap()
        };
        assert!(usable.iter().all(|core| bound(*core)));
        assert!(last + 1 == nix::sched::CpuSet::count() || !bound(last + 1));
    }
}
