//! The workers of a switch, and the way to give them bridges.

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
use crate::worker::{Wish, Worker, WorkerHandle};

/// How many workers, where, and how eager.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Workers {
    /// The core of each worker; `None` leaves the choice to the kernel. At least one.
    pub cores: Vec<Option<usize>>,
    /// Whether they may sleep.
    pub idle: Idle,
    /// Whether they give packets to each other.
    pub spread: Spread,
}

impl Workers {
    /// Keeps the calling thread, and the threads and processes that come of it from now on, from cores that workers are
    /// bound to: the kernel puts what is ready to run where it finds room, and a network function beside a worker that
    /// polls halves both. Where workers have all cores that there are, everything stays as it is.
    pub fn leave_cores(&self) {
        let this = nix::unistd::Pid::from_raw(0);
        let Ok(mut rest) = nix::sched::sched_getaffinity(this) else {
            return;
        };
        let mut taken = self.cores.iter().flatten();
        let left = taken.try_fold((), |(), core| rest.unset(*core));
        let is_free = |core| rest.is_set(core).unwrap_or(false);
        if left.is_ok() && (0..nix::sched::CpuSet::count()).any(is_free) {
            // What is refused leaves all as it was.
            let _as_before = nix::sched::sched_setaffinity(this, &rest);
        }
    }
}

/// The cores that a worker can be bound to, in ascending order: those that are there and that the system leaves to
/// this process (cpusets). Where the calling thread runs at present does not matter and stays as it is.
///
/// # Errors
/// What the kernel said.
pub fn usable_cores() -> io::Result<Vec<usize>> {
    let ask = || -> Result<Vec<usize>, nix::errno::Errno> {
        let this = nix::unistd::Pid::from_raw(0);
        let mut all = nix::sched::CpuSet::new();
        (0..nix::sched::CpuSet::count()).try_for_each(|core| all.set(core))?;
        // The kernel takes what there is of them.
        nix::sched::sched_setaffinity(this, &all)?;
        let taken = nix::sched::sched_getaffinity(this)?;
        let is_set = |core: &usize| taken.is_set(*core).unwrap_or(false);
        Ok((0..nix::sched::CpuSet::count()).filter(is_set).collect())
    };
    // On a thread of its own, whose place nobody misses.
    let thread = std::thread::Builder::new().name("cores".to_owned()).spawn(ask)?;
    match thread.join() {
        Ok(cores) => Ok(cores?),
        Err(_) => Err(io::Error::other("the thread that asks for the cores panicked")),
    }
}

/// Why workers cannot be started.
#[derive(Debug, Error)]
pub enum StartError {
    /// No worker was asked for.
    #[error("a switch needs at least one worker: set `workers` to 1 or more")]
    NoWorkers,
    /// The kernel refused the thread that decides which worker gets which flows.
    #[error("the balancer's thread cannot be started: {0}")]
    Balancer(#[source] io::Error),
    /// The kernel refused a thread.
    #[error("worker {worker}: the thread cannot be started: {source}")]
    Thread {
        /// The worker's number.
        worker: usize,
        /// What the kernel said.
        source: io::Error,
    },
    /// The thread runs and cannot be a worker.
    #[error("worker {worker}: {reason}")]
    Refused {
        /// The worker's number.
        worker: usize,
        /// What is wrong and what to do.
        reason: String,
    },
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
    /// Starts the workers; they have nothing to do yet.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn start(backend: Arc<B>, workers: &Workers) -> Result<Datapath<B>, StartError> {
        if workers.cores.is_empty() {
            return Err(StartError::NoWorkers);
        }
        let epoch = Instant::now();
        let (mut handles, mut threads) = (Vec::new(), Vec::new());
        let spreading = Spreading::new(workers.cores.len(), workers.spread);
        let mut meshed = spreading
            .as_ref()
            .map(|_| links::mesh(workers.cores.len()).into_iter());
        for (number, core) in workers.cores.iter().enumerate() {
            let links = meshed.as_mut().and_then(Iterator::next);
            let (handle, worker) = new_worker(epoch, *core, workers.idle, links);
            threads.push(start_worker(number, *core, Arc::clone(&backend), worker)?);
            handles.push(handle);
        }
        let workers_counters = || {
            handles
                .iter()
                .map(|handle: &WorkerHandle<_>| Arc::clone(&handle.counters))
        };
        let balancer = spreading
            .as_ref()
            .map(|spreading| {
                Balancer::start(
                    Arc::clone(&spreading.lanes),
                    workers_counters().collect(),
                    workers.spread,
                )
            })
            .transpose()
            .map_err(StartError::Balancer)?;
        Ok(Datapath {
            backend,
            workers: handles.into(),
            threads,
            epoch,
            bridges: AtomicU32::new(0),
            spreading,
            _balancer: balancer,
        })
    }

    /// A datapath of one worker that has no thread: it does what the holder of the [`Stepper`] has it do.
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

    /// Number of workers.
    pub fn workers_len(&self) -> usize {
        self.workers.len()
    }

    /// Returns the time that workers see.
    pub fn now(&self) -> Time {
        Time::from_nanos(self.epoch.elapsed().as_nanos() as u64)
    }

    /// A new bridge without ports, controlled by the calling thread: it is the one that events wake up
    /// (see [`std::thread::park`]).
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

    /// What each worker did.
    pub fn worker_stats(&self) -> Vec<WorkerStats> {
        let stats = |(worker, handle): (usize, &WorkerHandle<B::Packet>)| WorkerStats {
            worker,
            core: handle.core,
            polls: handle.counters.polls.read(),
            busy_polls: handle.counters.busy_polls.read(),
            packets: handle.counters.packets.read(),
            given: handle.counters.given.read(),
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
        self.workers.iter().for_each(|worker| worker.wish(Wish::Stop));
        for thread in self.threads.drain(..) {
            // A worker that panicked has said so; there is nobody to tell again.
            let _panicked = thread.join();
        }
    }
}

/// Returns a worker without bridges, and the control side's hold on it.
fn new_worker<P>(
    epoch: Instant,
    core: Option<usize>,
    idle: Idle,
    links: Option<links::Links<P>>,
) -> (WorkerHandle<P>, Worker<P>) {
    let (wishes, wishes_in) = mpsc::channel();
    let handle = WorkerHandle {
        wishes,
        wanted: Arc::new(AtomicBool::new(false)),
        inbox: Inbox::new(),
        counters: Arc::new(WorkerCounters::default()),
        core,
    };
    let worker = Worker {
        epoch,
        wishes: wishes_in,
        wanted: Arc::clone(&handle.wanted),
        inbox: handle.inbox.clone(),
        counters: Arc::clone(&handle.counters),
        idle,
        seats: Vec::new(),
        links,
        is_flushed: true,
        cuts: false,
        wakes_precisely: false,
    };
    (handle, worker)
}

/// Starts the thread of a worker, and waits until it has told whether it can be one.
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
                let _starter_gone = ready.send(Ok(()));
                worker.run();
                drop(registration);
            }
            Err(reason) => {
                let _starter_gone = ready.send(Err(reason));
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
    use super::*;

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
