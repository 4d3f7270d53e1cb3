//! One worker's copy of a chain.

use core::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};

use arrayvec::ArrayVec;
use millrace_datapath::io::Burst;
use millrace_datapath::service::{Outlet, Polled, Service};
use millrace_datapath::spread::FlowHash;
use millrace_datapath::spread::ring::Receiver;
use millrace_flow::classify::BURST;
use millrace_nf::{Context, Direction, reason_of};
use millrace_types::{Duration, PortNo, Time};
use millrace_wire::Packet;

use crate::hop::{Hop, IN_FLIGHT_MAX, Instance, Manner, Runner};
use crate::together::Group;
use crate::travel::{Road, index};

/// How often functions are told of the time without a packet.
const TICK: Duration = Duration::from_millis(100);
/// Bursts that one process gives back in one round.
const RETURNS: usize = 4;

/// Where packets of a port enter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Entry {
    /// At an end.
    End(Direction),
    /// At a hop, forward.
    Hop(u32),
}

/// The rings of one logical port.
pub(crate) struct Input<P> {
    pub(crate) port: PortNo,
    pub(crate) entry: Entry,
    pub(crate) rings: Vec<Receiver<P>>,
}

/// A hop of a new order.
pub(crate) enum Slot<P> {
    Keep(u32, Manner),
    New(Hop<P>),
}

/// What the control side changes.
pub(crate) enum Change<P> {
    /// Another order of hops. Takes effect when nothing is with a process and nothing is left at `closed` ports.
    Edit {
        slots: Vec<Slot<P>>,
        groups: Vec<Group<P>>,
        opened: Vec<Input<P>>,
        closed: Vec<PortNo>,
        /// Where packets leave, forward and backward.
        exits: [PortNo; 2],
    },
    /// Another function in the place of one that is down.
    Replace {
        hop: u32,
        instance: usize,
        with: Instance<P>,
    },
}

/// What a lane no longer needs: dropped where time does not matter.
pub(crate) enum Leftover<P> {
    Hops(#[allow(dead_code, reason = "to be dropped")] (Vec<Hop<P>>, Vec<Group<P>>)),
    Instance(#[allow(dead_code, reason = "to be dropped")] Instance<P>),
}

/// How the control side reaches a lane.
pub(crate) struct LaneHandle<P> {
    pub(crate) changes: mpsc::Sender<Change<P>>,
    pub(crate) wanted: Arc<AtomicBool>,
    pub(crate) leftovers: mpsc::Receiver<Leftover<P>>,
    /// Changes that were sent.
    pub(crate) sent: u64,
    /// Changes that took effect.
    pub(crate) done: Arc<core::sync::atomic::AtomicU64>,
}

impl<P> LaneHandle<P> {
    pub(crate) fn send(&mut self, change: Change<P>) {
        if self.changes.send(change).is_ok() {
            self.sent += 1;
            self.wanted.store(true, Ordering::Release);
        }
    }

    pub(crate) fn is_settled(&self) -> bool {
        self.done.load(Ordering::Acquire) == self.sent
    }
}

/// A lane, in the hands of its worker.
pub(crate) struct Lane<P> {
    hops: Vec<Hop<P>>,
    groups: Vec<Group<P>>,
    inputs: Vec<Input<P>>,
    exits: [PortNo; 2],
    hash: FlowHash,
    changes: mpsc::Receiver<Change<P>>,
    wanted: Arc<AtomicBool>,
    pending: Option<Change<P>>,
    leftovers: mpsc::Sender<Leftover<P>>,
    done: Arc<core::sync::atomic::AtomicU64>,
    burst: Box<Burst<P>>,
    next_tick: Time,
}

/// A lane without hops, and the way to change it.
pub(crate) fn lane<P>(hash: FlowHash) -> (Lane<P>, LaneHandle<P>) {
    let (changes, inbox) = mpsc::channel();
    let (leftovers, bin) = mpsc::channel();
    let wanted = Arc::new(AtomicBool::new(false));
    let done = Arc::default();
    let lane = Lane {
        hops: Vec::new(),
        groups: Vec::new(),
        inputs: Vec::new(),
        exits: [PortNo::ANY; 2],
        hash,
        changes: inbox,
        wanted: Arc::clone(&wanted),
        pending: None,
        leftovers,
        done: Arc::clone(&done),
        burst: Box::new(Burst::new()),
        next_tick: Time::ZERO,
    };
    let handle = LaneHandle {
        changes,
        wanted,
        leftovers: bin,
        sent: 0,
        done,
    };
    (lane, handle)
}

impl<P: Packet> Service<P> for Lane<P> {
    fn poll(&mut self, now: Time, outlet: &mut dyn Outlet<P>) -> Polled {
        let mut polled = Polled::default();
        if now >= self.next_tick {
            self.next_tick = now + TICK;
            self.tick(now);
        }
        let in_flight = self.take_back(now, outlet, &mut polled);
        if self.pending.is_some() || self.wanted.load(Ordering::Relaxed) {
            self.change(in_flight);
            polled.is_waiting = true;
        }
        let holds = matches!(&self.pending, Some(Change::Edit { .. }));
        polled.is_waiting |= in_flight != 0;
        for number in 0..self.inputs.len() {
            let closing = match &self.pending {
                Some(Change::Edit { closed, .. }) => closed.contains(&self.inputs[number].port),
                _ => false,
            };
            // While an edit waits, only ports that are going are emptied, so that order is kept.
            if !holds || closing {
                self.let_in(number, now, outlet, &mut polled);
            }
        }
        polled
    }
}

impl<P: Packet> Lane<P> {
    /// Takes a burst from each ring of a port, if all hops have room for it.
    #[inline]
    fn let_in(&mut self, number: usize, now: Time, outlet: &mut dyn Outlet<P>, polled: &mut Polled) {
        let input = &mut self.inputs[number];
        let (direction, position) = match input.entry {
            Entry::End(direction) => (direction, 0),
            Entry::Hop(id) => {
                let at = self.hops.iter().position(|hop| hop.id == id);
                // A hop that packets pass over: they go the way from the beginning of the chain's end.
                (Direction::Forward, at.unwrap_or(self.hops.len()))
            }
        };
        let has_processes = self.hops.iter().any(Hop::is_remote);
        for ring in &mut input.rings {
            let burst = &mut *self.burst;
            if has_processes && in_flight(&self.hops, &self.groups) + BURST > IN_FLIGHT_MAX {
                // Packets wait here, before any function has worked on them.
                return;
            }
            let Some(first) = ring.pop_if(|_| true) else {
                continue;
            };
            burst.push(first);
            while !burst.is_full() {
                match ring.pop_if(|_| true) {
                    Some(packet) => burst.push(packet),
                    None => break,
                }
            }
            ring.release();
            let next = index(direction, position, self.hops.len());
            expect(&self.hops, &self.groups, next);
            burst.iter().for_each(Packet::prefetch);
            // What nobody reads here stays in the cache of the core that writes it next.
            if self.hops.get(next).is_none_or(Hop::reads) {
                burst.iter().for_each(Packet::prefetch_head);
            }
            polled.found += burst.len();
            let mut road = Road {
                hops: &mut self.hops,
                groups: &mut self.groups,
                context: Context { now, direction },
                exit: exit(self.exits, direction),
                hash: &self.hash,
                outlet: &mut *outlet,
            };
            road.travel(burst, position);
            P::discard(burst);
        }
    }

    /// Goes on with what processes are done with, from the last hop to the first, so that a burst crosses one hop a
    /// round and finds room. Returns how many packets are still with processes.
    fn take_back(&mut self, now: Time, outlet: &mut dyn Outlet<P>, polled: &mut Polled) -> usize {
        for instance in self.hops.iter().flat_map(|hop| &hop.instances) {
            if let Runner::Remote(remote) = &instance.runner {
                remote.expect_done();
            }
        }
        for at in (0..self.hops.len()).rev() {
            if !self.hops[at].is_remote() {
                continue;
            }
            if let Some(group) = self.hops[at].group {
                if self.groups[group].first() == at {
                    self.take_back_together(group, now, outlet, polled);
                }
                continue;
            }
            for instance in 0..self.hops[at].instances.len() {
                self.take_back_from(at, instance, now, outlet, polled);
            }
        }
        // Only now: what one hop gave back may be with the next one.
        in_flight(&self.hops, &self.groups)
    }

    /// Goes on with what all hops of a group are done with.
    fn take_back_together(
        &mut self,
        group: usize,
        now: Time,
        outlet: &mut dyn Outlet<P>,
        polled: &mut Polled,
    ) {
        for number in 0..self.groups[group].instances() {
            for _ in 0..RETURNS {
                let Some(answered) = self.groups[group].answered(number, &mut self.hops, now) else {
                    break;
                };
                polled.found += answered.len();
                let direction = answered.direction();
                let mut road = Road {
                    hops: &mut self.hops,
                    groups: &mut self.groups,
                    context: Context { now, direction },
                    exit: exit(self.exits, direction),
                    hash: &self.hash,
                    outlet: &mut *outlet,
                };
                let burst = &mut *self.burst;
                road.gather(group, number, &answered, burst);
                P::discard(burst);
            }
        }
    }

    fn take_back_from(
        &mut self,
        at: usize,
        instance: usize,
        now: Time,
        outlet: &mut dyn Outlet<P>,
        polled: &mut Polled,
    ) {
        let mut verdicts = ArrayVec::<_, BURST>::new();
        let mut returns = 0;
        loop {
            if let Runner::Remote(remote) = &mut self.hops[at].instances[instance].runner
                && let Some(direction) = remote.ready()
            {
                let position = index(direction, at, self.hops.len()) + 1;
                expect(
                    &self.hops,
                    &self.groups,
                    index(direction, position, self.hops.len()),
                );
            }
            let held = &mut self.hops[at].instances[instance];
            // All that one held that is down, before others pass by it.
            if returns == RETURNS && !held.down {
                return;
            }
            returns += usize::from(!held.down);
            let Runner::Remote(remote) = &mut held.runner else {
                return;
            };
            let burst = &mut *self.burst;
            verdicts.clear();
            let direction = match held.down {
                false => remote.take(burst, &mut verdicts),
                true => remote.reclaim(burst),
            };
            let Some(direction) = direction else {
                if !held.down && !remote.is_alive(now) {
                    let reason = remote.failure();
                    held.fail(reason);
                    continue;
                }
                return;
            };
            polled.found += burst.len();
            held.counters.depth.set(remote.in_flight() as u64);
            let down = held.down;
            if !down {
                held.count(&verdicts);
                held.took(verdicts.len());
            }
            let mut road = Road {
                hops: &mut self.hops,
                groups: &mut self.groups,
                context: Context { now, direction },
                exit: exit(self.exits, direction),
                hash: &self.hash,
                outlet: &mut *outlet,
            };
            match down {
                false => road.resume(burst, &verdicts, at),
                true => road.rescue(burst, at, instance),
            }
            P::discard(burst);
        }
    }

    #[cold]
    fn tick(&mut self, now: Time) {
        for instance in self.hops.iter_mut().flat_map(|hop| &mut hop.instances) {
            if instance.down {
                continue;
            }
            let failure = match &mut instance.runner {
                Runner::Inline(function) => {
                    let tick = std::panic::AssertUnwindSafe(|| function.tick(now));
                    std::panic::catch_unwind(tick)
                        .err()
                        .map(|payload| reason_of(&*payload))
                }
                Runner::Remote(remote) => (!remote.is_alive(now)).then(|| remote.failure()),
            };
            match failure {
                Some(reason) => instance.fail(reason),
                None => instance.note_begin(),
            }
        }
    }

    /// Makes changes, as far as they can be made now.
    #[cold]
    fn change(&mut self, in_flight: usize) {
        loop {
            if self.pending.is_none() {
                // A swap, and not a store: that could become visible after the wish of somebody who raised it again.
                self.wanted.swap(false, Ordering::AcqRel);
                self.pending = self.changes.try_recv().ok();
            }
            let is_ready = match &self.pending {
                None => return,
                Some(Change::Edit { closed, .. }) => in_flight == 0 && self.are_empty(closed),
                Some(Change::Replace { hop, instance, .. }) => self.is_free(*hop, *instance),
            };
            if !is_ready {
                return;
            }
            if let Some(change) = self.pending.take() {
                let leftover = self.make(change);
                let _control_gone = self.leftovers.send(leftover);
                self.done.fetch_add(1, Ordering::Release);
            }
        }
    }

    /// Whether nothing waits at these ports.
    fn are_empty(&self, ports: &[PortNo]) -> bool {
        let closed = self.inputs.iter().filter(|input| ports.contains(&input.port));
        closed.flat_map(|input| &input.rings).all(Receiver::is_empty)
    }

    /// Whether nothing is with an instance.
    fn is_free(&self, id: u32, instance: usize) -> bool {
        let hop = self.hops.iter().find(|hop| hop.id == id);
        hop.and_then(|hop| hop.instances.get(instance))
            .is_none_or(|instance| instance.in_flight() == 0)
    }

    fn make(&mut self, change: Change<P>) -> Leftover<P> {
        match change {
            Change::Replace { hop, instance, with } => {
                let hop = self.hops.iter_mut().find(|held| held.id == hop);
                match hop.and_then(|hop| hop.instances.get_mut(instance)) {
                    Some(place) => Leftover::Instance(core::mem::replace(place, with)),
                    None => Leftover::Instance(with),
                }
            }
            Change::Edit {
                slots,
                groups,
                opened,
                closed,
                exits,
            } => {
                let mut old = core::mem::take(&mut self.hops);
                for slot in slots {
                    match slot {
                        Slot::New(hop) => self.hops.push(hop),
                        Slot::Keep(id, manner) => {
                            if let Some(at) = old.iter().position(|hop| hop.id == id) {
                                let mut hop = old.swap_remove(at);
                                hop.manner = manner;
                                self.hops.push(hop);
                            }
                        }
                    }
                }
                self.hops.iter_mut().for_each(|hop| hop.group = None);
                for (number, group) in groups.iter().enumerate() {
                    let hops = self.hops.get_mut(group.hops()).into_iter().flatten();
                    hops.for_each(|hop| hop.group = Some(number));
                }
                let old = (old, core::mem::replace(&mut self.groups, groups));
                self.inputs.retain(|input| !closed.contains(&input.port));
                self.inputs.extend(opened);
                self.exits = exits;
                Leftover::Hops(old)
            }
        }
    }
}

/// A burst is about to come to the hop at a place of the list, or out of the chain.
#[inline]
fn expect<P>(hops: &[Hop<P>], groups: &[Group<P>], at: usize) {
    let Some(hop) = hops.get(at) else { return };
    match hop.group.and_then(|group| groups.get(group)) {
        None => hop.expect(),
        Some(group) => hops.get(group.hops()).into_iter().flatten().for_each(Hop::expect),
    }
}

/// Packets of a lane that are with processes.
fn in_flight<P>(hops: &[Hop<P>], groups: &[Group<P>]) -> usize {
    let alone: usize = hops.iter().map(Hop::in_flight).sum();
    alone + groups.iter().map(Group::in_flight).sum::<usize>()
}

fn exit(exits: [PortNo; 2], direction: Direction) -> PortNo {
    match direction {
        Direction::Forward => exits[0],
        Direction::Backward => exits[1],
    }
}
