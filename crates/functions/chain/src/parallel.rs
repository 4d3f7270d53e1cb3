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

use arrayvec::ArrayVec;
use millrace_datapath::io::Burst;
use millrace_flow::classify::BURST;
use millrace_nf::Verdict;
use millrace_wire::Packet;

use crate::group::{CompletedPackets, MEMBERS_MAX, Members, Run};
use crate::hop::Runner;
use crate::packets::Packets;
use crate::plan::OnFailure;
use crate::traversal::{Outcome, Outcomes, Traversal, count_failed, outcome_of, pick};

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
