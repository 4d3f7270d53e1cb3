//! The loop of a worker: receive a burst, run it to completion, send; then the next queue.
//!
//! Between two rounds it looks at one atomic to see whether the control side wants something (a port
//! added or removed). It takes no lock, and allocates nothing but when it carries out such a wish.

use core::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender};
use std::time::{Duration, Instant};

use millrace_pipeline::{Counters, DropReason, Egress, Forwarding, Policer, PolicerCounters, Processor};
use millrace_types::{PortNo, Time};
use millrace_wire::Packet;

use crate::capture::Captures;
use crate::counters::{PortCounters, WorkerCounters};
use crate::cutting::CuttingRx;
use crate::egress::{TxPort, TxPorts, WorkerEgress};
use crate::events::{Direction, Events};
use crate::handoff::{Destination, Handoff, Inbox};
use crate::idle::{Idle, Sleeper, until_due};
use crate::io::{Burst, RxQueue};
use crate::publish::Reader;
use crate::service::{self, Service, ServiceId};
use crate::spread::lane::{Spreader, Way};
use crate::spread::links::Links;
use crate::turn::Turn;

/// Packets of other workers after which those that wait for their turn are looked at: fewer than fit into a queue.
const SEND_EVERY: usize = 256;
/// The timer slack of the thread of a worker, in nanoseconds, once a queue has told a due time (prctl(2),
/// `PR_SET_TIMERSLACK`).
const TIMER_SLACK_NANOS: u64 = 1;

/// One receive queue of a port.
pub(crate) struct RxPort<P> {
    pub(crate) port: PortNo,
    pub(crate) queue: Box<dyn RxQueue<P>>,
    pub(crate) counters: Arc<PortCounters>,
    /// Gives packets to other workers, where there are others.
    pub(crate) spreader: Option<Box<Spreader<P>>>,
    /// What passes its rates may come in, if there is one.
    pub(crate) policing: Option<Policing>,
    /// True if packets wait in the device while a port that the last ones went to is behind.
    pub(crate) backpressure: bool,
    /// That port.
    pub(crate) waits_for: Option<PortNo>,
    /// True if what is to be cut is cut when it comes.
    pub(crate) cuts: bool,
}

/// A port's policer, which all workers share that receive from it.
#[derive(Clone)]
pub(crate) struct Policing {
    pub(crate) policer: Arc<Policer>,
    pub(crate) counters: Arc<PolicerCounters>,
}

impl Policing {
    /// Drops what came too fast, and marks what is to be marked.
    #[inline(never)]
    fn police<P: Packet>(&self, burst: &mut Burst<P>, now: Time, counters: &Counters) {
        let mut dropped = Burst::new();
        self.policer.police(burst, &mut dropped, now, &self.counters);
        counters.drops.add(DropReason::Policer, dropped.len() as u64);
        P::discard(&mut dropped);
    }
}

/// One bridge in one worker.
pub(crate) struct Seat<P> {
    pub(crate) bridge: u32,
    pub(crate) forwarding: Reader<Forwarding>,
    pub(crate) processor: Processor,
    pub(crate) counters: Arc<Counters>,
    pub(crate) events: Arc<Events<P>>,
    pub(crate) rx: Vec<RxPort<P>>,
    pub(crate) tx: TxPorts<P>,
    /// What else there is to do for the bridge; usually nothing.
    pub(crate) services: Vec<(ServiceId, Box<dyn Service<P>>)>,
}

/// What the control side wants of a worker.
pub(crate) enum Wish<P> {
    Sit(Box<Seat<P>>),
    Leave {
        bridge: u32,
        done: SyncSender<Option<Box<Seat<P>>>>,
    },
    Receive {
        bridge: u32,
        port: Box<RxPort<P>>,
    },
    Send {
        bridge: u32,
        port: Box<TxPort<P>>,
        /// Dropped when it is done.
        done: SyncSender<()>,
    },
    /// Send to a port in another way.
    Turn {
        bridge: u32,
        port: PortNo,
        turn: Turn<P>,
    },
    /// Call a service in each round.
    Serve {
        bridge: u32,
        id: ServiceId,
        service: Box<dyn Service<P>>,
    },
    /// Call it no longer, and give it back.
    Unserve {
        bridge: u32,
        id: ServiceId,
        done: SyncSender<Box<dyn Service<P>>>,
    },
    /// Leave packets in the device of a port while those before them wait for another port, or no longer.
    Hold {
        bridge: u32,
        port: PortNo,
        backpressure: bool,
    },
    /// Copy packets for these captures from now on, and give the filters of those before back.
    Capture {
        bridge: u32,
        captures: Captures,
        done: SyncSender<Captures>,
    },
    /// Police what comes from a port in another way, or no longer.
    Police {
        bridge: u32,
        port: PortNo,
        policing: Option<Policing>,
    },
    /// There may be packets from now on that are to be cut.
    Cut {
        /// Dropped when all queues are prepared.
        done: SyncSender<()>,
    },
    /// Stop receiving from a port and sending to it, and give its queues back.
    Forget {
        bridge: u32,
        port: PortNo,
        done: SyncSender<Forgotten<P>>,
    },
    Stop,
}

/// The queues of a port, back from a worker.
pub(crate) struct Forgotten<P> {
    pub(crate) _rx: Vec<RxPort<P>>,
    pub(crate) _tx: Option<TxPort<P>>,
}

/// How the control side reaches a worker.
pub(crate) struct WorkerHandle<P> {
    pub(crate) wishes: Sender<Wish<P>>,
    pub(crate) wanted: Arc<AtomicBool>,
    pub(crate) inbox: Inbox<P>,
    pub(crate) counters: Arc<WorkerCounters>,
    pub(crate) core: Option<usize>,
}

impl<P> WorkerHandle<P> {
    /// Hands a wish over; the worker sees it before its next round. A worker that has stopped drops it.
    pub(crate) fn wish(&self, wish: Wish<P>) {
        if self.wishes.send(wish).is_ok() {
            self.wanted.store(true, Ordering::Release);
        }
    }
}

pub(crate) struct Worker<P> {
    pub(crate) epoch: Instant,
    pub(crate) wishes: Receiver<Wish<P>>,
    pub(crate) wanted: Arc<AtomicBool>,
    pub(crate) inbox: Inbox<P>,
    pub(crate) counters: Arc<WorkerCounters>,
    pub(crate) idle: Idle,
    pub(crate) seats: Vec<Seat<P>>,
    /// To the other workers, where there are some that packets are given to.
    pub(crate) links: Option<Links<P>>,
    /// True if the last round left nothing to send, and what was sent cannot be overtaken.
    pub(crate) is_flushed: bool,
    /// True if there may be packets that are to be cut.
    pub(crate) cuts: bool,
    /// True if the thread's timer slack is [`TIMER_SLACK_NANOS`].
    pub(crate) wakes_precisely: bool,
}

/// What a round brought.
struct Round {
    /// Packets that there was something to do for.
    found: usize,
    /// Packets that went through the pipeline.
    processed: usize,
    /// True if a device is behind with sending.
    is_behind: bool,
    /// When a packet that waits for its turn may be sent, if there is one.
    opens: Option<Time>,
}

impl<P: Packet + 'static> Seat<P> {
    /// A policer measures packets of the network. One that goes leaves the cutter there, which may hold some.
    fn cut_what_is_policed(&mut self) {
        let cut = |mut rx: RxPort<P>| {
            if rx.policing.is_some() && !rx.cuts {
                rx.queue = CuttingRx::wrap(rx.queue, &self.counters);
                rx.cuts = true;
            }
            rx
        };
        self.rx = self.rx.drain(..).map(cut).collect();
    }
}

impl<P: Packet + 'static> Worker<P> {
    pub(crate) fn run(mut self) {
        let mut sleeper = Sleeper::new(self.idle);
        let mut burst = Box::new(Burst::new());
        let mut before = self.now();
        loop {
            if self.wanted.load(Ordering::Relaxed) && !self.grant_wishes() {
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
                // Another one may share the core's units, or the whole core.
                core::hint::spin_loop();
            }
            before = after;
            let sleep = sleeper.after_poll(round.found != 0 || round.is_behind);
            if let Some(sleep) = sleep.and_then(|sleep| self.until_due(sleep)) {
                std::thread::sleep(round.opens.map_or(sleep, |opens| sleep.min(opens.since(after))));
                before = self.now();
                self.counters.sleeps.add(1);
                self.counters.slept_nanos.add(before.nanos() - after.nanos());
            }
        }
    }

    /// Returns how long this worker may sleep at most `sleep`, so that it polls when a receive queue has a packet due;
    /// `None` if one is due so soon that it must not sleep.
    fn until_due(&mut self, sleep: Duration) -> Option<Duration> {
        let queues = self.seats.iter_mut().flat_map(|seat| &mut seat.rx);
        let Some(due) = queues.filter_map(|rx| rx.queue.next_due()).min() else {
            return Some(sleep);
        };
        if !core::mem::replace(&mut self.wakes_precisely, true) {
            // A kernel that refuses leaves the default slack of 50 us, which POLL_BEFORE_DUE covers.
            let _default = nix::sys::prctl::set_timerslack(TIMER_SLACK_NANOS);
        }
        until_due(sleep, due.saturating_duration_since(Instant::now()))
    }

    /// A round at this time, for whoever moves a worker that has no thread on. Answers how many packets were processed.
    #[inline]
    pub(crate) fn forward_round(&mut self, now: Time, burst: &mut Burst<P>) -> usize {
        self.round(now, burst).processed
    }

    /// What the control side wants, outside of a round.
    pub(crate) fn grant_what_is_wanted(&mut self) {
        if self.wanted.load(Ordering::Relaxed) {
            self.grant_wishes();
        }
    }

    #[inline]
    fn now(&self) -> Time {
        Time::from_nanos(self.epoch.elapsed().as_nanos() as u64)
    }

    /// Looks at every queue once.
    #[inline]
    fn round(&mut self, now: Time, burst: &mut Burst<P>) -> Round {
        let mut round = Round {
            found: 0,
            processed: 0,
            is_behind: false,
            opens: None,
        };
        if self.links.is_some() {
            self.move_buckets(now);
            self.process_given(now, burst, &mut round);
        }
        round.found += self.deliver_inbox(now);
        for seat in &mut self.seats {
            let Seat {
                bridge,
                forwarding,
                processor,
                counters,
                events,
                rx,
                tx,
                services,
            } = seat;
            for (_, service) in services {
                let mut outlet = service::WorkerOutlet {
                    bridge: *bridge,
                    forwarding,
                    processor,
                    counters,
                    events,
                    tx,
                    now,
                    processed: 0,
                };
                let polled = service.poll(now, &mut outlet);
                round.processed += outlet.processed;
                round.found += polled.found;
                round.is_behind |= polled.is_waiting;
            }
            for port in rx {
                if let Some(ahead) = port.waits_for {
                    if tx.is_behind(ahead) {
                        round.is_behind = true;
                        continue;
                    }
                    port.waits_for = None;
                }
                if let Some(spreader) = &mut port.spreader {
                    spreader.take_ready(burst);
                }
                if burst.is_empty() {
                    port.queue.rx_burst(burst);
                    if burst.is_empty() {
                        continue;
                    }
                    round.found += burst.len();
                    port.counters.rx_packets.add(burst.len() as u64);
                    port.counters
                        .rx_bytes
                        .add(burst.iter().map(|packet| packet.len() as u64).sum());
                    if !tx.captures.is_empty() {
                        for packet in burst.iter() {
                            events.tap(&tx.captures, port.port, Direction::Rx, now, packet);
                        }
                    }
                    if let Some(policing) = &port.policing {
                        policing.police(burst, now, counters);
                        if burst.is_empty() {
                            continue;
                        }
                    }
                    if let Some(spreader) = &mut port.spreader
                        && spreader.is_on()
                        && let Some(links) = &mut self.links
                    {
                        let mut way = Way {
                            bridge: *bridge,
                            port: port.port,
                            links,
                            counters,
                        };
                        let before = self.epoch.elapsed();
                        spreader.spread(burst, &mut way);
                        let spent = self.epoch.elapsed().saturating_sub(before);
                        self.counters.spread_nanos.add(spent.as_nanos() as u64);
                        if burst.is_empty() {
                            continue;
                        }
                    }
                }
                round.processed += burst.len();
                let forwarding = forwarding.enter();
                let mut egress = WorkerEgress {
                    bridge: *bridge,
                    tx,
                    events,
                    counters,
                    now,
                };
                if port.backpressure {
                    // What ports before this one came to is not this one's.
                    egress.tx.take_waiting();
                }
                processor.process_burst(&forwarding, port.port, burst, now, &mut egress);
                burst.clear();
                if port.backpressure {
                    port.waits_for = tx.take_waiting();
                }
            }
            let flushed = tx.flush(now);
            round.is_behind |= flushed.is_behind;
            round.found += flushed.sent;
            round.opens = match (round.opens, flushed.opens) {
                (Some(one), Some(other)) => Some(one.min(other)),
                (one, other) => one.or(other),
            };
        }
        if let Some(links) = &mut self.links {
            self.counters.given.add(links.take_given());
            self.is_flushed = !round.is_behind && !self.seats.iter().any(|seat| seat.tx.holds());
            if self.is_flushed {
                links.settle();
            }
        }
        round
    }

    /// Begins and ends moves of buckets. First of all in a round: the worker may become the owner of flows whose
    /// packets another one has put into our inbox, and these are to leave before those that we process.
    fn move_buckets(&mut self, now: Time) {
        let Some(links) = &mut self.links else { return };
        for seat in &mut self.seats {
            for port in &mut seat.rx {
                if let Some(spreader) = &mut port.spreader {
                    let mut way = Way {
                        bridge: seat.bridge,
                        port: port.port,
                        links,
                        counters: &seat.counters,
                    };
                    spreader.tick(now, self.is_flushed, &mut way);
                }
            }
        }
    }

    /// Processes what other workers gave us: of each of them a burst.
    fn process_given(&mut self, now: Time, burst: &mut Burst<P>, round: &mut Round) {
        let rings = self.links.as_ref().map_or(0, Links::incoming_len);
        for ring in 0..rings {
            let given = self.links.as_mut().and_then(|links| links.receive(ring, burst));
            let Some((bridge, port)) = given else { continue };
            round.found += burst.len();
            round.processed += burst.len();
            // After they were taken and before they are processed: see `spread::lane`.
            round.found += self.deliver_inbox(now);
            let Some(seat) = self.seats.iter_mut().find(|seat| seat.bridge == bridge) else {
                // The bridge is going.
                P::discard(burst);
                continue;
            };
            let forwarding = seat.forwarding.enter();
            let mut egress = WorkerEgress {
                bridge,
                tx: &mut seat.tx,
                events: &seat.events,
                counters: &seat.counters,
                now,
            };
            seat.processor
                .process_burst(&forwarding, port, burst, now, &mut egress);
            burst.clear();
        }
    }

    /// Sends what other workers and the control side have for our ports. Returns how many packets that was.
    fn deliver_inbox(&mut self, now: Time) -> usize {
        let mut burst = Burst::new();
        let mut next = None;
        let (mut found, mut unsent) = (0, 0);
        for _ in 0..self.inbox.len() {
            let Some(Handoff { to, packets }) = self.inbox.take() else {
                break;
            };
            if next.is_some_and(|next| next != to) || packets.len() > burst.remaining_capacity() {
                self.deliver(next, &mut burst, now);
            }
            next = Some(to);
            found += packets.len();
            unsent += packets.len();
            burst.extend(packets);
            if unsent >= SEND_EVERY {
                self.deliver(next, &mut burst, now);
                self.send_scheduled(now);
                unsent = 0;
            }
        }
        self.deliver(next, &mut burst, now);
        found
    }

    /// Sends packets that other workers processed.
    fn deliver(&mut self, to: Option<Destination>, burst: &mut Burst<P>, now: Time) {
        let Some(to) = to.filter(|_| !burst.is_empty()) else {
            return;
        };
        let Some(seat) = self.seats.iter_mut().find(|seat| seat.bridge == to.bridge) else {
            // The bridge is going.
            return P::discard(burst);
        };
        let mut egress = WorkerEgress {
            bridge: seat.bridge,
            tx: &mut seat.tx,
            events: &seat.events,
            counters: &seat.counters,
            now,
        };
        egress.transmit_burst(to.port, to.queue, burst);
        burst.clear();
    }

    /// Sends what may leave of what waits for its turn: so much comes from other workers at once that queues would
    /// overflow before the end of the round.
    #[inline(never)]
    fn send_scheduled(&mut self, now: Time) {
        for seat in self.seats.iter_mut().filter(|seat| seat.tx.has_scheduled) {
            seat.tx.flush(now);
        }
    }

    /// Returns whether to go on.
    #[cold]
    fn grant_wishes(&mut self) -> bool {
        // A swap, and not a store: that could become visible after the wish of somebody who has raised it again since.
        self.wanted.swap(false, Ordering::AcqRel);
        while let Ok(wish) = self.wishes.try_recv() {
            match wish {
                Wish::Sit(mut seat) => {
                    seat.tx.cuts = self.cuts;
                    self.seats.push(*seat);
                }
                Wish::Cut { done } => {
                    self.cut();
                    drop(done);
                }
                Wish::Leave { bridge, done } => {
                    let at = self.seats.iter().position(|seat| seat.bridge == bridge);
                    let _gone = done.send(at.map(|at| Box::new(self.seats.swap_remove(at))));
                }
                Wish::Receive { bridge, port } => {
                    if let Some(seat) = self.seat(bridge) {
                        seat.rx.push(*port);
                    }
                }
                Wish::Send { bridge, port, done } => {
                    if let Some(seat) = self.seat(bridge) {
                        let port = match seat.tx.cuts {
                            true => port.cut(&seat.counters),
                            false => *port,
                        };
                        seat.tx.insert(port);
                    }
                    drop(done);
                }
                Wish::Capture {
                    bridge,
                    captures,
                    done,
                } => {
                    if let Some(seat) = self.seat(bridge) {
                        let _gone = done.send(core::mem::replace(&mut seat.tx.captures, captures));
                    }
                }
                Wish::Turn { bridge, port, turn } => {
                    let now = self.now();
                    if let Some(seat) = self.seat(bridge) {
                        seat.tx.turn(bridge, port, turn, now, &seat.counters);
                    }
                }
                Wish::Serve { bridge, id, service } => {
                    if let Some(seat) = self.seat(bridge) {
                        seat.services.push((id, service));
                    }
                }
                Wish::Unserve { bridge, id, done } => {
                    if let Some(seat) = self.seat(bridge)
                        && let Some(at) = seat.services.iter().position(|(held, _)| *held == id)
                    {
                        let _gone = done.send(seat.services.remove(at).1);
                    }
                }
                Wish::Hold {
                    bridge,
                    port,
                    backpressure,
                } => {
                    let seat = self.seat(bridge);
                    let queues = seat.into_iter().flat_map(|seat| &mut seat.rx);
                    for rx in queues.filter(|rx| rx.port == port) {
                        (rx.backpressure, rx.waits_for) = (backpressure, None);
                    }
                }
                Wish::Police {
                    bridge,
                    port,
                    policing,
                } => {
                    let Some(seat) = self.seat(bridge) else { continue };
                    for rx in seat.rx.iter_mut().filter(|rx| rx.port == port) {
                        rx.policing.clone_from(&policing);
                    }
                    if seat.tx.cuts {
                        seat.cut_what_is_policed();
                    }
                }
                Wish::Forget { bridge, port, done } => {
                    let mut forgotten = Forgotten {
                        _rx: Vec::new(),
                        _tx: None,
                    };
                    if let Some(seat) = self.seat(bridge) {
                        while let Some(at) = seat.rx.iter().position(|rx| rx.port == port) {
                            forgotten._rx.push(seat.rx.remove(at));
                        }
                        forgotten._tx = seat.tx.remove(port);
                    }
                    let _gone = done.send(forgotten);
                }
                Wish::Stop => return false,
            }
        }
        self.counters
            .rx_queues
            .set(self.seats.iter().map(|seat| seat.rx.len()).sum());
        true
    }

    /// Prepares every queue for packets that are to be cut.
    fn cut(&mut self) {
        if core::mem::replace(&mut self.cuts, true) {
            return;
        }
        for seat in &mut self.seats {
            seat.tx.cut(&seat.counters);
            seat.cut_what_is_policed();
        }
    }

    fn seat(&mut self, bridge: u32) -> Option<&mut Seat<P>> {
        self.seats.iter_mut().find(|seat| seat.bridge == bridge)
    }
}
