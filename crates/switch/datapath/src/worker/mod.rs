//! Workers: each is a poll-mode thread that receives bursts, runs them to completion and sends them, round by round.
//!
//! A worker takes no lock, and allocates memory only when it executes a command of the control side, between
//! two rounds. The check for commands costs each round one read of a flag.
//!
//! # State of a worker
//! ```text
//!  Worker
//!   |- commands   from the control side, applied between rounds                   [command]
//!   |- links      rings to and from the other workers, for packets of flows       [crate::spread::links]
//!   |- inbox      packets for ports that this worker sends for                    [crate::handoff]
//!   `- bridges    one BridgeContext for each bridge                               [context]
//!       |- rx         one RxPort for each receive queue that this worker polls
//!       |   |- queue      of the device                                           [crate::io]
//!       |   |- policing   the port's policer, shared by all workers
//!       |   `- spreader   owners of buckets, and parked packets                   [crate::spread::reta]
//!       |- services   chains of network functions                                 [crate::service]
//!       `- pipeline                                                                [crate::pipeline]
//!           |- forwarding   left-right copies of the tables                       [crate::publish]
//!           |- processor    runs packets through the tables
//!           |- tx           one TxPort for each port of the bridge                [crate::tx_port]
//!           |   |- buffer     packets that the device has yet to take
//!           |   `- path       Queue, Scheduled (see [crate::scheduled]) or Worker (another one's inbox)
//!           `- events       packet_ins, learned addresses and captures, to the control side
//! ```
//!
//! # The path of a burst
//! All steps of a round reuse one `Burst` (up to 64 packets). The burst is empty between two ports; otherwise
//! all its packets were received at the same port.
//!
//! ```text
//!  queue --> count, capture --> policer --> spreader --> tables --> TxPort --> queue of the device
//!            (dropped packets leave          |  ^          |          |            (a run of packets at once,
//!             the burst)                     |  |          |          |             the rest in the flush)
//!               flows of other workers: links|  |parked    |          `-> inbox of another worker
//!                                            v  |          v
//!                                        other workers   events, chains
//! ```
//!
//! # A round
//! 1. Buckets move ([`Worker::move_buckets`]), because owners must change before packets are processed.
//! 2. One burst from each other worker is processed, after the inbox that was filled before it.
//! 3. The inbox is sent.
//! 4. For each bridge: its services are called, each receive queue is polled once, and transmit buffers and schedulers
//!    are flushed.
//! 5. If no sent packet can be overtaken, the worker acknowledges packets of other workers as settled, and those of devices
//!    that dispatch, so that the buckets of these packets may move.

mod command;
mod context;
mod execute;
mod inbound;
mod marks;

pub(crate) use self::command::{Command, LagState, WorkerHandle};
pub(crate) use self::context::{BridgeContext, Policing, RxPort};
pub(crate) use self::marks::PortMarks;

use core::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use millrace_types::Time;
use millrace_wire::Packet;

use crate::counters::WorkerCounters;
use crate::handoff::Inbox;
use crate::idle::{Idle, IdleBackoff, until_due};
use crate::io::Burst;
use crate::pipeline::BridgePipeline;
use crate::service::{Service, ServiceId, WorkerOutput};
use crate::spread::links::Links;
use crate::tx_port::{Flushed, earlier};

/// The timer slack of the thread of a worker in nanoseconds, once a queue has returned a due time (prctl(2),
/// `PR_SET_TIMERSLACK`).
const TIMER_SLACK_NANOS: u64 = 1;

pub(crate) struct Worker<P> {
    pub(crate) epoch: Instant,
    pub(crate) commands: Receiver<Command<P>>,
    pub(crate) has_commands: Arc<AtomicBool>,
    pub(crate) inbox: Inbox<P>,
    pub(crate) counters: Arc<WorkerCounters>,
    pub(crate) idle: Idle,
    pub(crate) bridges: Vec<BridgeContext<P>>,
    /// The rings to and from the other workers, if packets are handed off.
    pub(crate) links: Option<Links<P>>,
    /// True if no packet that was sent before the end of the last round can be overtaken by packets of other workers.
    pub(crate) is_flushed: bool,
    /// True if a queue is to know when its packets have left ([`crate::io::RxQueue::settled`]).
    pub(crate) has_fences: bool,
    /// True if GSO packets may arrive.
    pub(crate) expects_gso: bool,
    /// True if the thread's timer slack is [`TIMER_SLACK_NANOS`].
    pub(crate) wakes_precisely: bool,
}

/// The result of a round.
#[derive(Default)]
struct Round {
    /// Number of packets from receive queues, from packets that were parked, from rings, from the inbox, from
    /// services, and from schedulers.
    found: usize,
    /// Number of packets that went through the pipeline.
    processed: usize,
    /// True if packets may arrive soon although none was found: a device accepted packets that waited, or a service
    /// waits.
    is_waiting: bool,
    /// True if packets of other workers may overtake packets that wait for a device or a service.
    may_be_overtaken: bool,
    /// The time at which the next scheduled packet may leave, if any is queued.
    eligible_at: Option<Time>,
    /// True if a receive queue may hold packets that arrived before the round.
    has_backlog: bool,
}

impl Round {
    #[inline]
    fn add(&mut self, flushed: &Flushed) {
        self.found += flushed.sent;
        // A device that accepts nothing does not keep the worker from its sleep.
        self.is_waiting |= flushed.left != 0;
        self.may_be_overtaken |= flushed.may_be_overtaken;
        self.eligible_at = earlier(self.eligible_at, flushed.eligible_at);
    }
}

impl<P: Packet + 'static> Worker<P> {
    /// Runs rounds until [`Command::Stop`]; the body of the worker's thread.
    pub(crate) fn run(mut self) {
        let mut backoff = IdleBackoff::new(self.idle);
        let mut burst = Box::new(Burst::new());
        let mut before = self.now();
        loop {
            if self.has_commands.load(Ordering::Relaxed) && !self.run_commands() {
                return;
            }
            let round = self.round(before, &mut burst);
            let after = self.now();
            self.counters.polls.add(1);
            if round.found != 0 {
                self.counters.busy_polls.add(1);
                self.counters.packets.add(round.processed as u64);
                self.counters.busy_nanos.add(after.nanos() - before.nanos());
            } else {
                // Leaves the execution units to the other hyper-thread of the core.
                core::hint::spin_loop();
            }
            before = after;
            let sleep = backoff.after_poll(round.found != 0 || round.is_waiting);
            if let Some(sleep) = sleep.and_then(|sleep| self.until_due(sleep)) {
                let until_eligible = round.eligible_at.map(|at| at.since(after));
                std::thread::sleep(until_eligible.map_or(sleep, |bound| sleep.min(bound)));
                before = self.now();
                self.counters.sleeps.add(1);
                self.counters.slept_nanos.add(before.nanos() - after.nanos());
            }
        }
    }

    /// Returns the duration for which this worker may sleep, at most `sleep`. The sleep ends
    /// [`POLL_BEFORE_DUE`](crate::POLL_BEFORE_DUE) before a receive queue has a packet due. Returns `None` if
    /// a packet is due so soon that the worker must not sleep.
    fn until_due(&mut self, sleep: Duration) -> Option<Duration> {
        let queues = self.bridges.iter_mut().flat_map(|context| &mut context.rx);
        let Some(due) = queues.filter_map(|rx| rx.queue.next_due()).min() else {
            return Some(sleep);
        };
        if !core::mem::replace(&mut self.wakes_precisely, true) {
            // If the kernel refuses, the default slack of 50 us remains, which POLL_BEFORE_DUE covers.
            let _default = nix::sys::prctl::set_timerslack(TIMER_SLACK_NANOS);
        }
        until_due(sleep, due.saturating_duration_since(Instant::now()))
    }

    /// Runs one round at time `now`, for a worker without a thread. Returns the number of packets processed.
    #[inline]
    pub(crate) fn forward_round(&mut self, now: Time, burst: &mut Burst<P>) -> usize {
        self.round(now, burst).processed
    }

    /// Executes the commands that were sent, for a worker without a thread.
    pub(crate) fn run_pending_commands(&mut self) {
        if self.has_commands.load(Ordering::Relaxed) {
            self.run_commands();
        }
    }

    #[inline]
    fn now(&self) -> Time {
        Time::from_nanos(self.epoch.elapsed().as_nanos() as u64)
    }

    /// Polls every queue once. `burst` is empty before and after.
    #[inline]
    fn round(&mut self, now: Time, burst: &mut Burst<P>) -> Round {
        debug_assert!(burst.is_empty(), "a burst belongs to one port");
        let mut round = Round::default();
        if self.links.is_some() {
            self.move_buckets(now);
            self.process_handed_off(now, burst, &mut round);
        }
        round.found += self.deliver_inbox(now);
        for context in &mut self.bridges {
            let BridgeContext {
                rx,
                services,
                pipeline,
            } = context;
            call_services(services, pipeline, now, &mut round);
            let (processed, mut next_first) = (round.processed, 0);
            for (index, port) in rx.iter_mut().enumerate() {
                if port.is_held_back(&mut pipeline.tx) {
                    round.has_backlog = true;
                    if next_first == 0 && round.processed != processed {
                        next_first = index;
                    }
                    continue;
                }
                port.take_parked(burst);
                round.found += burst.len();
                // A port with parked packets does not receive in this round.
                round.has_backlog |= !burst.is_empty();
                if burst.is_empty() {
                    round.found += port.receive(burst, pipeline, now);
                    round.has_backlog |= burst.is_full();
                    if burst.is_empty() {
                        continue;
                    }
                    if port.is_spread()
                        && let Some(links) = &mut self.links
                    {
                        let before = self.epoch.elapsed();
                        port.spread(burst, pipeline, links);
                        let spent = self.epoch.elapsed().saturating_sub(before);
                        self.counters.spread_nanos.add(spent.as_nanos() as u64);
                        if burst.is_empty() {
                            continue;
                        }
                    }
                }
                round.processed += burst.len();
                port.process(burst, pipeline, now);
            }
            if next_first != 0 {
                // Otherwise queues that are polled earlier could take all the room of a port for ever.
                rx.rotate_left(next_first);
            }
            round.add(&pipeline.tx.flush(now));
        }
        if !round.has_backlog {
            self.counters.received_until.set(now.nanos() as usize);
        }
        self.settle(&round);
        round
    }

    /// Counts the packets that this worker handed off in a round. Acknowledges the packets that other workers
    /// handed to this worker, if none of them can be overtaken any more.
    #[inline]
    fn settle(&mut self, round: &Round) {
        if let Some(links) = &mut self.links {
            self.counters.handed_off.add(links.take_handed_off());
            let mut pipelines = self.bridges.iter().map(|context| &context.pipeline);
            self.is_flushed =
                !round.may_be_overtaken && !pipelines.any(|pipeline| pipeline.tx.has_in_flight());
            if self.is_flushed {
                links.settle();
                if self.has_fences {
                    let queues = self.bridges.iter_mut().flat_map(|context| &mut context.rx);
                    queues.for_each(|rx| rx.queue.settled());
                }
            }
        }
    }
}

/// Calls each service of a bridge once.
#[inline]
fn call_services<P: Packet>(
    services: &mut [(ServiceId, Box<dyn Service<P>>)],
    pipeline: &mut BridgePipeline<P>,
    now: Time,
    round: &mut Round,
) {
    for (_, service) in services {
        let mut outlet = WorkerOutput {
            pipeline,
            now,
            processed: 0,
        };
        let polled = service.poll(now, &mut outlet);
        round.processed += outlet.processed;
        round.found += polled.found;
        round.is_waiting |= polled.is_waiting;
        round.may_be_overtaken |= polled.is_waiting;
    }
}
