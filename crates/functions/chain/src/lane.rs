//! A lane: one worker's instance of a chain.

use core::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};

use arrayvec::ArrayVec;
use millrace_datapath::io::Burst;
use millrace_datapath::service::{PollResult, Service, ServiceOutput};
use millrace_datapath::spread::FlowHash;
use millrace_datapath::spread::ring::Receiver;
use millrace_flow::classify::BURST;
use millrace_nf::shm::BurstKind;
use millrace_nf::{Context, Direction, Sending, SharedValue, Verdict, reason_of};
use millrace_pipeline::DropReason;
use millrace_types::{Duration, PortNo, Time};
use millrace_wire::Packet;

use crate::group::Group;
use crate::hop::{Hop, HopPolicy, IN_FLIGHT_MAX, Instance, Runner, index};
use crate::packets::Packets;
use crate::sent::BurstEffects;
use crate::traversal::Traversal;

/// The interval between two calls of [`Function::tick`](millrace_nf::Function::tick).
const TICK: Duration = Duration::from_millis(100);
/// Bursts that are taken back from one process in one poll.
const BURSTS_PER_POLL: usize = 4;

/// The point at which packets of a logical port enter the chain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Entry {
    /// An end of the chain.
    End(Direction),
    /// A hop, by its id, in forward direction.
    Hop(u32),
}

/// The rings of one logical port.
pub(crate) struct Input<P> {
    pub(crate) port: PortNo,
    pub(crate) entry: Entry,
    pub(crate) rings: Vec<Receiver<P>>,
}

/// A hop of an edited chain.
pub(crate) enum Slot<P> {
    /// The existing hop with this id, with another policy.
    Keep(u32, HopPolicy),
    /// A new hop.
    New(Hop<P>),
}

/// A change by the control side.
pub(crate) enum Change<P> {
    /// Replaces the list of hops, once no packet is with a process or in the rings of `closed` ports.
    Edit {
        slots: Vec<Slot<P>>,
        groups: Vec<Group<P>>,
        opened: Vec<Input<P>>,
        closed: Vec<PortNo>,
        /// The ports at which packets leave, forward and backward.
        exits: [PortNo; 2],
    },
    /// Replaces an instance that is down.
    Replace {
        hop: u32,
        instance: usize,
        with: Instance<P>,
    },
    /// Gives the functions of a hop another shared value, between two bursts.
    Share {
        hop: u32,
        value: SharedValue,
        /// Room for the values that the functions return.
        old: Vec<SharedValue>,
    },
}

/// Objects that a lane no longer needs. The control side drops them, because that takes time.
pub(crate) enum Retired<P> {
    Hops(#[allow(dead_code, reason = "to be dropped")] (Vec<Hop<P>>, Vec<Group<P>>)),
    Instance(#[allow(dead_code, reason = "to be dropped")] Instance<P>),
    Values(Vec<SharedValue>),
}

/// The control side's handle of a lane.
pub(crate) struct LaneHandle<P> {
    pub(crate) changes: mpsc::Sender<Change<P>>,
    pub(crate) wanted: Arc<AtomicBool>,
    pub(crate) retired: mpsc::Receiver<Retired<P>>,
    /// The number of changes sent.
    pub(crate) sent: u64,
    /// The number of changes that have taken effect.
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

/// A lane. Its worker owns it.
pub(crate) struct Lane<P> {
    hops: Vec<Hop<P>>,
    groups: Vec<Group<P>>,
    inputs: Vec<Input<P>>,
    exits: [PortNo; 2],
    hash: FlowHash,
    changes: mpsc::Receiver<Change<P>>,
    wanted: Arc<AtomicBool>,
    pending: Option<Change<P>>,
    retired: mpsc::Sender<Retired<P>>,
    done: Arc<core::sync::atomic::AtomicU64>,
    burst: Box<Burst<P>>,
    effects: Box<BurstEffects<P>>,
    /// The fill level of the ring that was polled last.
    load: u8,
    next_tick: Time,
}

/// Returns a lane without hops, and its handle.
pub(crate) fn lane<P>(hash: FlowHash) -> (Lane<P>, LaneHandle<P>) {
    let (changes, inbox) = mpsc::channel();
    let (retired, bin) = mpsc::channel();
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
        retired,
        done: Arc::clone(&done),
        burst: Box::new(Burst::new()),
        effects: Box::new(BurstEffects::new()),
        load: 0,
        next_tick: Time::ZERO,
    };
    let handle = LaneHandle {
        changes,
        wanted,
        retired: bin,
        sent: 0,
        done,
    };
    (lane, handle)
}

impl<P: Packet> Service<P> for Lane<P> {
    fn poll(&mut self, now: Time, outlet: &mut dyn ServiceOutput<P>) -> PollResult {
        let mut polled = PollResult::default();
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
            // While an edit is pending, the lane empties only ports that will be closed, which keeps packets in order.
            if !holds || closing {
                self.receive_from(number, now, outlet, &mut polled);
            }
        }
        if !self.effects.sent.is_empty() {
            self.forward_sent(now, outlet);
            polled.is_waiting |= !self.effects.sent.is_empty();
        }
        polled
    }
}

impl<P: Packet> Lane<P> {
    /// Passes a burst from each ring of a port through the chain, if all hops have room for it.
    #[inline]
    fn receive_from(
        &mut self,
        number: usize,
        now: Time,
        outlet: &mut dyn ServiceOutput<P>,
        polled: &mut PollResult,
    ) {
        let input = &mut self.inputs[number];
        let (direction, position) = match input.entry {
            Entry::End(direction) => (direction, 0),
            Entry::Hop(id) => {
                let at = self.hops.iter().position(|hop| hop.id == id);
                // The hop has been removed: its packets leave the chain at the end.
                (Direction::Forward, at.unwrap_or(self.hops.len()))
            }
        };
        let has_processes = self.hops.iter().any(Hop::is_remote);
        for ring in &mut input.rings {
            let burst = &mut *self.burst;
            if has_processes && in_flight(&self.hops, &self.groups) + BURST > IN_FLIGHT_MAX {
                // The packets stay in the ring, before any function has processed them.
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
            // If this core does not read the packets, they stay in the cache of the core that writes them next.
            if self.hops.get(next).is_none_or(Hop::reads) {
                burst.iter().for_each(Packet::prefetch_head);
            }
            polled.found += burst.len();
            self.load = ring.fill_level();
            let context = Context {
                load: self.load,
                ..Context::new(now, direction)
            };
            let mut traversal = Traversal {
                hops: &mut self.hops,
                groups: &mut self.groups,
                context,
                exit: exit(self.exits, direction),
                hash: &self.hash,
                outlet: &mut *outlet,
                effects: &mut self.effects,
                sending: Sending::Allowed,
            };
            traversal.traverse(burst, position);
            P::discard(burst);
        }
    }

    /// Passes packets that functions sent through the hops after the sending hop, in order. The packets wait
    /// while processes have no room for them.
    #[cold]
    fn forward_sent(&mut self, now: Time, outlet: &mut dyn ServiceOutput<P>) {
        let has_processes = self.hops.iter().any(Hop::is_remote);
        while !self.effects.sent.is_empty() {
            if has_processes && in_flight(&self.hops, &self.groups) >= IN_FLIGHT_MAX {
                return;
            }
            let sent = self.effects.sent.remove(0);
            let burst = &mut *self.burst;
            burst.push(sent.packet);
            let Some(at) = self.hops.iter().position(|hop| hop.id == sent.hop) else {
                // The hop has been removed since: the packet has no place in the chain.
                outlet.discard(DropReason::HopDown, burst);
                continue;
            };
            let mut traversal = Traversal {
                hops: &mut self.hops,
                groups: &mut self.groups,
                context: Context::new(now, sent.direction),
                exit: exit(self.exits, sent.direction),
                hash: &self.hash,
                outlet: &mut *outlet,
                effects: &mut self.effects,
                sending: Sending::Refused,
            };
            traversal.resume(burst, &[Verdict::Next], at);
            P::discard(burst);
        }
    }

    /// Continues with packets that processes have returned, from the last hop to the first, so that a burst passes one hop
    /// for each poll and finds room there. Returns the number of packets that processes still have.
    fn take_back(&mut self, now: Time, outlet: &mut dyn ServiceOutput<P>, polled: &mut PollResult) -> usize {
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
                    self.take_back_from_group(group, now, outlet, polled);
                }
                continue;
            }
            for instance in 0..self.hops[at].instances.len() {
                self.take_back_from(at, instance, now, outlet, polled);
            }
        }
        // Counted at the end, because the packets of one hop may have moved to the next one.
        in_flight(&self.hops, &self.groups)
    }

    /// Continues with packets that all hops of a group have answered.
    fn take_back_from_group(
        &mut self,
        group: usize,
        now: Time,
        outlet: &mut dyn ServiceOutput<P>,
        polled: &mut PollResult,
    ) {
        for number in 0..self.groups[group].instances() {
            for _ in 0..BURSTS_PER_POLL {
                let Some(answered) = self.groups[group].answered(number, &mut self.hops, now) else {
                    break;
                };
                polled.found += answered.len();
                let kind = answered.kind();
                let mut traversal = Traversal {
                    hops: &mut self.hops,
                    groups: &mut self.groups,
                    context: Context {
                        load: self.load,
                        ..Context::new(now, kind.direction)
                    },
                    exit: exit(self.exits, kind.direction),
                    hash: &self.hash,
                    outlet: &mut *outlet,
                    effects: &mut self.effects,
                    sending: kind.into(),
                };
                let burst = &mut *self.burst;
                traversal.gather(group, number, &answered, burst);
                P::discard(burst);
            }
        }
    }

    /// Continues with packets that one process has returned.
    fn take_back_from(
        &mut self,
        at: usize,
        instance: usize,
        now: Time,
        outlet: &mut dyn ServiceOutput<P>,
        polled: &mut PollResult,
    ) {
        let mut verdicts = ArrayVec::<_, BURST>::new();
        let mut returns = 0;
        loop {
            if let Runner::Remote(remote) = &mut self.hops[at].instances[instance].runner
                && let Some(BurstKind { direction, .. }) = remote.ready()
            {
                let position = index(direction, at, self.hops.len()) + 1;
                expect(
                    &self.hops,
                    &self.groups,
                    index(direction, position, self.hops.len()),
                );
            }
            let held = &mut self.hops[at].instances[instance];
            // An instance that is down returns all packets at once, before others pass the hop.
            if returns == BURSTS_PER_POLL && !held.down {
                return;
            }
            returns += usize::from(!held.down);
            if held.down {
                held.hold_bypassing();
            }
            let burst = &mut *self.burst;
            verdicts.clear();
            // Packets of shunned flows follow the packets that they must not overtake.
            let bypassing = held.take_bypassing(burst);
            let has_bypassed = bypassing.is_some();
            let Runner::Remote(remote) = &mut held.runner else {
                return;
            };
            let kind = match held.down {
                _ if has_bypassed => {
                    verdicts.extend(burst.iter().map(|_| Verdict::Next));
                    bypassing
                }
                false => remote.take(burst, &mut verdicts),
                true => remote.reclaim(burst),
            };
            let Some(kind) = kind else {
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
            let mut has_effects = false;
            if !down && !has_bypassed {
                has_effects = remote.has_effects();
                held.count(&verdicts);
                held.took(verdicts.len());
            }
            let mut traversal = Traversal {
                hops: &mut self.hops,
                groups: &mut self.groups,
                context: Context {
                    load: self.load,
                    ..Context::new(now, kind.direction)
                },
                exit: exit(self.exits, kind.direction),
                hash: &self.hash,
                outlet: &mut *outlet,
                effects: &mut self.effects,
                sending: kind.into(),
            };
            if has_effects {
                let all = Packets::MAX >> (BURST - burst.len());
                traversal.collect(at, instance, burst, all);
            }
            match down {
                false => traversal.resume(burst, &verdicts, at),
                true => traversal.rescue(burst, at, instance),
            }
            P::discard(burst);
        }
    }

    /// Reports the time to inline functions, checks that processes live, and passes their messages on.
    #[cold]
    fn tick(&mut self, now: Time) {
        for instance in self.hops.iter_mut().flat_map(|hop| &mut hop.instances) {
            if let Runner::Remote(remote) = &mut instance.runner {
                let effects = &mut self.effects.of_call;
                effects.reset(Sending::Allowed);
                remote.collect(0, effects);
                instance.counters.not_sent.add(effects.refused());
            }
            if instance.down {
                continue;
            }
            if let Runner::Remote(remote) = &instance.runner {
                let value = remote.value();
                if instance.counters.value() != value {
                    instance.shunned.iter_mut().for_each(|shunned| shunned.renew());
                }
                instance.counters.set_value(value);
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
                None => {
                    instance.age_shunned(now);
                    instance.note_begin();
                }
            }
        }
    }

    /// Applies pending changes, as far as their conditions are met.
    #[cold]
    fn change(&mut self, in_flight: usize) {
        loop {
            if self.pending.is_none() {
                // A swap instead of a store: a store could become visible after the flag was set for the next change.
                self.wanted.swap(false, Ordering::AcqRel);
                self.pending = self.changes.try_recv().ok();
            }
            let is_ready = match &self.pending {
                None => return,
                Some(Change::Edit { closed, .. }) => in_flight == 0 && self.are_empty(closed),
                Some(Change::Replace { hop, instance, .. }) => self.is_free(*hop, *instance),
                Some(Change::Share { .. }) => true,
            };
            if !is_ready {
                return;
            }
            if let Some(change) = self.pending.take() {
                let leftover = self.apply(change);
                let _control_gone = self.retired.send(leftover);
                self.done.fetch_add(1, Ordering::Release);
            }
        }
    }

    /// Returns whether the rings of these ports are empty.
    fn are_empty(&self, ports: &[PortNo]) -> bool {
        let closed = self.inputs.iter().filter(|input| ports.contains(&input.port));
        closed.flat_map(|input| &input.rings).all(Receiver::is_empty)
    }

    /// Returns whether an instance has no packets.
    fn is_free(&self, id: u32, instance: usize) -> bool {
        let hop = self.hops.iter().find(|hop| hop.id == id);
        hop.and_then(|hop| hop.instances.get(instance))
            .is_none_or(|instance| instance.in_flight() == 0)
    }

    /// Applies a change. Returns the objects that it replaced.
    fn apply(&mut self, change: Change<P>) -> Retired<P> {
        match change {
            Change::Replace { hop, instance, with } => {
                let hop = self.hops.iter_mut().find(|held| held.id == hop);
                match hop.and_then(|hop| hop.instances.get_mut(instance)) {
                    Some(old) => Retired::Instance(core::mem::replace(old, with)),
                    None => Retired::Instance(with),
                }
            }
            Change::Share { hop, value, mut old } => {
                let hop = self.hops.iter_mut().find(|held| held.id == hop);
                for instance in hop.into_iter().flat_map(|hop| &mut hop.instances) {
                    old.extend(instance.share(value.clone()));
                }
                // The lane's reference is never the last reference: the control side has the value, too.
                old.push(value);
                Retired::Values(old)
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
                        Slot::Keep(id, policy) => {
                            if let Some(at) = old.iter().position(|hop| hop.id == id) {
                                let mut hop = old.swap_remove(at);
                                hop.policy = policy;
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
                Retired::Hops(old)
            }
        }
    }
}

/// Prefetches for a burst that is about to reach the hop at an index. Does nothing if the burst leaves the
/// chain.
#[inline]
fn expect<P>(hops: &[Hop<P>], groups: &[Group<P>], at: usize) {
    let Some(hop) = hops.get(at) else { return };
    match hop.group.and_then(|group| groups.get(group)) {
        None => hop.expect(),
        Some(group) => hops.get(group.hops()).into_iter().flatten().for_each(Hop::expect),
    }
}

/// Returns the number of a lane's packets that processes have.
fn in_flight<P>(hops: &[Hop<P>], groups: &[Group<P>]) -> usize {
    let alone: usize = hops.iter().map(Hop::in_flight).sum();
    alone + groups.iter().map(Group::in_flight).sum::<usize>()
}

/// Returns the port at which packets of a direction leave.
fn exit(exits: [PortNo; 2], direction: Direction) -> PortNo {
    match direction {
        Direction::Forward => exits[0],
        Direction::Backward => exits[1],
    }
}
