//! Groups of adjacent hops that process the same packets in parallel, because their functions only read.
//!
//! A packet that visits several processes in sequence crosses between cores for each of them. Functions that
//! declare `writes 0` get the packet at the same time instead, and the packet continues when the last of them
//! has answered. The result is the same as in sequence: the first hop with a verdict other than *next*
//! decides, and hops after it do not count the packet. The only difference is that the functions of these
//! hops have seen the packet.
//!
//! The group holds the packets, in one queue for each instance. All hops have the same number of instances, so a flow has
//! the same instance at each hop. Changes of a process to bytes or bounds are discarded, so a process that gets copies
//! cannot change a packet. (A process of class `ring` can, and is trusted not to.)
//!
//! The set of hops that process a packet is fixed when it arrives. The policy of a hop that is down at that time applies to
//! the packet; the policy of a hop that goes down later applies to the packets that it has not answered.

use std::collections::VecDeque;

use arrayvec::ArrayVec;
use millrace_datapath::io::Burst;
use millrace_flow::classify::BURST;
use millrace_nf::shm::BurstKind;
use millrace_nf::{Direction, Verdict};
use millrace_types::Time;
use millrace_wire::Packet;

use crate::hop::{Hop, IN_FLIGHT_MAX, Runner};
use crate::plan::OnFailure;
use crate::traversal::{Outcome, Outcomes, Traversal, count_failed, index, outcome_of, pick};

/// Maximum number of hops in a group, which has a bit for each hop. A longer sequence is split into several groups.
pub(crate) const MEMBERS_MAX: usize = 8;

/// A bit for each hop of a group, in the order of the chain.
type Members = u8;
/// A bit for each packet of a burst.
type Packets = u64;
const _: () = assert!(BURST <= Packets::BITS as usize && MEMBERS_MAX <= Members::BITS as usize);

/// The state of a group's hops when a packet arrived.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Run {
    kind: BurstKind,
    /// The position of the first hop that processes the packet.
    position: usize,
    /// The hops to which the packet was shown.
    asked: Members,
    /// The hops that were down.
    failed: Members,
    /// The hops to which the packet could not be shown. The packet is dropped when it reaches one of them.
    refused: Members,
}

/// The packets of one instance of each hop, the oldest first.
struct Queue<P> {
    held: VecDeque<P>,
    /// The states of the hops for the packets, run-length encoded.
    runs: VecDeque<(Run, usize)>,
}

impl<P> Queue<P> {
    fn new() -> Queue<P> {
        Queue {
            held: VecDeque::with_capacity(IN_FLIGHT_MAX),
            runs: VecDeque::with_capacity(IN_FLIGHT_MAX),
        }
    }

    #[inline]
    fn push(&mut self, run: Run, packets: usize) {
        match self.runs.back_mut() {
            Some((last, len)) if *last == run => *len += packets,
            // There are at most as many runs as packets, so this does not allocate.
            _ => self.runs.push_back((run, packets)),
        }
    }

    #[inline]
    fn take(&mut self, packets: usize, burst: &mut Burst<P>) {
        burst.extend(self.held.drain(..packets.min(self.held.len())));
        if let Some((_, len)) = self.runs.front_mut() {
            *len = len.saturating_sub(packets);
            if *len == 0 {
                self.runs.pop_front();
            }
        }
    }
}

/// The oldest packets of a queue, which all hops have answered or never will.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CompletedPackets {
    run: Run,
    len: usize,
    /// The hops whose process ended without an answer.
    gone: Members,
}

impl CompletedPackets {
    /// Returns the kind of the packets.
    pub(crate) fn kind(&self) -> BurstKind {
        self.run.kind
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }
}

/// A group of adjacent hops, of class `ring` or `isolated`, whose functions only read.
pub(crate) struct Group<P> {
    /// The index of the first hop.
    first: usize,
    /// The number of hops.
    len: usize,
    /// One queue for each instance.
    queues: Vec<Queue<P>>,
    /// The verdicts of each hop on the packets of the last [`CompletedPackets`]; empty if all are *next*.
    verdicts: Vec<ArrayVec<Verdict, BURST>>,
}

impl<P> Group<P> {
    /// Returns a group of `len` hops, [`MEMBERS_MAX`] at most, with `instances` instances each.
    pub(crate) fn new(first: usize, len: usize, instances: usize) -> Group<P> {
        Group {
            first,
            len: len.min(MEMBERS_MAX),
            queues: (0..instances).map(|_| Queue::new()).collect(),
            verdicts: (0..len).map(|_| ArrayVec::new()).collect(),
        }
    }

    pub(crate) fn first(&self) -> usize {
        self.first
    }

    /// Returns the indices of the hops.
    pub(crate) fn hops(&self) -> core::ops::Range<usize> {
        self.first..self.first + self.len
    }

    pub(crate) fn instances(&self) -> usize {
        self.queues.len()
    }

    /// Returns the number of packets that the group holds.
    pub(crate) fn in_flight(&self) -> usize {
        self.queues.iter().map(|queue| queue.held.len()).sum()
    }

    /// Returns the last position of the group in a direction, in a chain of `hops` hops.
    fn last_position(&self, direction: Direction, hops: usize) -> usize {
        match direction {
            Direction::Forward => self.first + self.len - 1,
            Direction::Backward => index(direction, self.first, hops),
        }
    }
}

impl<P: Packet> Group<P> {
    /// Returns the oldest packets of a queue if they can continue.
    #[inline]
    pub(crate) fn answered(
        &mut self,
        number: usize,
        hops: &mut [Hop<P>],
        now: Time,
    ) -> Option<CompletedPackets> {
        let (run, run_len) = *self.queues[number].runs.front()?;
        let (mut len, mut gone, mut waits) = (run_len.min(BURST), 0, false);
        for (member, hop) in hops[self.hops()].iter_mut().enumerate() {
            let instance = &mut hop.instances[number];
            let Runner::Remote(remote) = &mut instance.runner else {
                continue;
            };
            if run.asked & 1 << member == 0 {
                continue;
            }
            match remote.answered() {
                0 => {
                    let failure = (!instance.down && !remote.is_alive(now)).then(|| remote.failure());
                    let is_gone = remote.is_gone();
                    if let Some(reason) = failure {
                        instance.fail(reason);
                    }
                    match instance.down && is_gone {
                        true => gone |= 1 << member,
                        false => waits = true,
                    }
                }
                done => {
                    len = len.min(done);
                    instance.saw(done);
                }
            }
        }
        if waits {
            return None;
        }
        let mut answered = CompletedPackets { run, len, gone };
        let (asked, members) = (run.asked & !gone, self.hops());
        for (member, (hop, verdicts)) in hops[members].iter_mut().zip(&mut self.verdicts).enumerate() {
            verdicts.clear();
            if asked & 1 << member != 0
                && let Runner::Remote(remote) = &mut hop.instances[number].runner
            {
                // The number shrinks if an answer violates the protocol. Packets before it still continue.
                answered.len = remote.verdicts(answered.len, verdicts);
            }
        }
        (answered.len != 0).then_some(answered)
    }
}

/// Returns the outcomes of packets that have all reached the hop at `position`.
fn all_at(position: usize, packets: usize) -> Outcomes {
    (0..packets).map(|_| Outcome::At(position)).collect()
}

/// Returns a bit for each item that meets a condition.
fn bits_of<T>(items: &[T], condition: impl Fn(&T) -> bool) -> Packets {
    let items = items.iter().enumerate();
    items.fold(0, |bits, (index, item)| {
        bits | Packets::from(condition(item)) << index
    })
}

/// Returns a bit for each of `packets` packets.
const fn all(packets: usize) -> Packets {
    match packets {
        0 => 0,
        len => Packets::MAX >> (Packets::BITS as usize - len),
    }
}

impl<P: Packet> Traversal<'_, P> {
    /// Shows packets that have reached a hop of a group to this hop and the later hops of the group. Packets whose next
    /// hop is not in the group stay in `burst`, with their outcomes.
    pub(crate) fn share(
        &mut self,
        group: usize,
        position: usize,
        burst: &mut Burst<P>,
        outcomes: &mut Option<Outcomes>,
    ) {
        if burst.is_empty() {
            return;
        }
        let instances = self.groups[group].instances();
        let Some(held) = outcomes
            .take()
            .or_else(|| (instances != 1).then(|| all_at(position, burst.len())))
        else {
            return self.show(group, 0, burst, None, position);
        };
        let spread = self.hops[self.groups[group].first()].policy.spread;
        let last = self.groups[group].last_position(self.context.direction, self.hops.len());
        let mut staying = Burst::new();
        let mut stayed = Outcomes::new();
        let mut shown: ArrayVec<(u16, usize, P), BURST> = ArrayVec::new();
        for (packet, outcome) in burst.drain(..).zip(held) {
            match outcome {
                Outcome::At(from) if from <= last => {
                    let pick = match instances {
                        1 => 0,
                        _ => pick(self.hash, spread, &packet, instances),
                    };
                    shown.push((pick, from, packet));
                }
                _ => {
                    stayed.push(outcome);
                    staying.push(packet);
                }
            }
        }
        for number in 0..instances {
            let (mut own, mut from) = (Burst::new(), ArrayVec::<usize, BURST>::new());
            let mut rest = ArrayVec::new();
            for (pick, position, packet) in shown.drain(..) {
                match usize::from(pick) == number {
                    true => {
                        own.push(packet);
                        from.push(position);
                    }
                    false => rest.push((pick, position, packet)),
                }
            }
            shown = rest;
            if !own.is_empty() {
                self.show(group, number, &mut own, Some(&from), position);
            }
        }
        *burst = staying;
        if !stayed.is_empty() {
            *outcomes = Some(stayed);
        }
    }

    /// Shows packets to one instance of each hop of a group, and holds them until these instances have
    /// answered. `from` has the position of each packet; without it, all are at `position`.
    fn show(
        &mut self,
        group: usize,
        number: usize,
        burst: &mut Burst<P>,
        from: Option<&[usize]>,
        position: usize,
    ) {
        let (kind, len) = (self.kind(), burst.len());
        let first = self.groups[group].first;
        let last = self.groups[group].last_position(kind.direction, self.hops.len());
        let mut goes_on = all(len);
        let (mut asked, mut failed, mut refused) = ([0; MEMBERS_MAX], [0; MEMBERS_MAX], [0; MEMBERS_MAX]);
        for position in position..=last {
            let at = self.index(position);
            let member = at - first;
            let here = match from {
                None => goes_on,
                Some(from) => goes_on & bits_of(from, |from| *from <= position),
            };
            let hop = &mut self.hops[at];
            let instance = &mut hop.instances[number];
            let Runner::Remote(remote) = &mut instance.runner else {
                continue;
            };
            if here == 0 {
                continue;
            }
            if instance.down {
                failed[member] = here;
                if hop.policy.on_failure != OnFailure::Open {
                    goes_on &= !here;
                }
                continue;
            }
            let shown = remote.show(kind, self.context.load, burst, here);
            instance.counters.depth.set(remote.in_flight() as u64);
            asked[member] = shown;
            refused[member] = here & !shown;
            goes_on &= !(here & !shown);
            if shown != 0 {
                instance.gave(shown.count_ones() as usize);
            }
        }
        let run_of = |packet: usize| {
            let bits = |masks: &[Packets; MEMBERS_MAX]| -> Members {
                let members = masks.iter().enumerate();
                members.fold(0, |bits, (member, mask)| {
                    bits | ((mask >> packet & 1) as Members) << member
                })
            };
            Run {
                kind,
                position: from.map_or(position, |from| from[packet]),
                asked: bits(&asked),
                failed: bits(&failed),
                refused: bits(&refused),
            }
        };
        let queue = &mut self.groups[group].queues[number];
        let masks = asked.iter().chain(&failed).chain(&refused);
        if from.is_none() && masks.copied().all(|mask| mask == 0 || mask == all(len)) {
            queue.push(run_of(0), len);
        } else {
            (0..len).for_each(|packet| queue.push(run_of(packet), 1));
        }
        queue.held.extend(burst.drain(..));
    }

    /// Continues with packets that all hops of a group have answered. `burst` is empty.
    pub(crate) fn gather(
        &mut self,
        group: usize,
        number: usize,
        answered: &CompletedPackets,
        burst: &mut Burst<P>,
    ) {
        let CompletedPackets { run, len, gone } = *answered;
        let first = self.groups[group].first;
        let last = self.groups[group].last_position(run.kind.direction, self.hops.len());
        self.groups[group].queues[number].take(len, burst);
        let bytes: usize = burst.iter().map(Packet::len).sum();
        // Without outcomes, all packets have reached the hop at `position`.
        let mut outcomes: Option<Outcomes> = None;
        for position in run.position..=last {
            let at = self.index(position);
            let (member, failure_outcome) = (at - first, self.failure_outcome(at, position));
            let is_in = |members: Members| members & 1 << member != 0;
            let instance = &mut self.hops[at].instances[number];
            if is_in(run.asked) {
                if let Runner::Remote(remote) = &mut instance.runner {
                    remote.forget(len);
                    instance.counters.depth.set(remote.in_flight() as u64);
                }
                instance.took(len);
                if instance.has_effects() {
                    self.collect(at, number, burst, 0);
                }
            }
            let instance = &mut self.hops[at].instances[number];
            let outcome = match () {
                () if is_in(run.refused) => Some(Outcome::Lost),
                () if is_in(run.failed | gone) => Some(failure_outcome),
                () => None,
            };
            let verdicts = &self.groups[group].verdicts[member];
            match outcome {
                None if outcomes.is_none() && verdicts.is_empty() => {
                    instance.counters.packets.add(len as u64);
                    instance.counters.next.add(len as u64);
                    instance.counters.bytes.add(bytes as u64);
                }
                Some(outcome) if outcomes.is_none() => {
                    count_failed(instance, outcome, len as u64);
                    if outcome != Outcome::At(position + 1) {
                        outcomes = Some((0..len).map(|_| outcome).collect());
                    }
                }
                _ => {
                    let outcomes = outcomes.get_or_insert_with(|| all_at(position, len));
                    let mut counted = ArrayVec::<Verdict, BURST>::new();
                    let here = outcomes.iter_mut().zip(burst.iter()).enumerate();
                    for (index, (here, packet)) in
                        here.filter(|(_, (held, _))| **held == Outcome::At(position))
                    {
                        if let Some(outcome) = outcome {
                            count_failed(instance, outcome, 1);
                            *here = outcome;
                            continue;
                        }
                        let verdict = verdicts.get(index).copied().unwrap_or_default();
                        counted.push(verdict);
                        instance.counters.bytes.add(packet.len() as u64);
                        *here = outcome_of(verdict, position, None);
                    }
                    instance.count(&counted);
                }
            }
        }
        self.traverse_each(burst, outcomes, last + 1);
    }
}

#[cfg(test)]
mod tests;
