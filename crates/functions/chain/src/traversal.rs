//! The traversal of a lane's hops by a burst.
//!
//! While all packets are forwarded, each hop is called once with the whole burst. When verdicts differ, each packet gets an
//! outcome. Packets stay in the burst until the end, and a hop is called with those that have reached it.

use arrayvec::ArrayVec;
use millrace_datapath::io::Burst;
use millrace_datapath::service::ServiceOutput;
use millrace_datapath::spread::FlowHash;
use millrace_flow::classify::BURST;
use millrace_nf::shm::BurstKind;
use millrace_nf::{Buffer, Context, Sending, ShunAction, Spread, Verdict};
use millrace_pipeline::DropReason;
use millrace_types::PortNo;
use millrace_wire::Packet;

use crate::group::Group;
use crate::hop::{Hop, Instance, Runner, index};
use crate::packets::{Packets, bits};
use crate::plan::OnFailure;
use crate::port::hash_of;
use crate::sent::{BurstEffects, SentPacket};
use crate::treatment::{Treatment, all_pass, shunned_by, treat_shunned};

/// The state of a packet in a traversal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    /// The hop at this position is next.
    At(usize),
    /// The packet leaves the chain, with this port as its `in_port`.
    Leaves(PortNo),
    /// The packet is sent out of this port.
    ToPort(PortNo),
    /// A function dropped the packet.
    Dropped,
    /// The packet is dropped because a hop is down.
    Lost,
}

pub(crate) type Outcomes = ArrayVec<Outcome, BURST>;

/// The hops of a lane, and the context of a burst that traverses them.
pub(crate) struct Traversal<'a, P> {
    pub(crate) hops: &'a mut [Hop<P>],
    pub(crate) groups: &'a mut [Group<P>],
    pub(crate) context: Context,
    /// The port at which packets of this direction leave.
    pub(crate) exit: PortNo,
    pub(crate) hash: &'a FlowHash,
    pub(crate) outlet: &'a mut dyn ServiceOutput<P>,
    pub(crate) effects: &'a mut BurstEffects<P>,
    pub(crate) sending: Sending,
}

impl<P: Packet> Traversal<'_, P> {
    /// Returns the kind of the burst.
    pub(crate) fn kind(&self) -> BurstKind {
        BurstKind {
            direction: self.context.direction,
            is_sent: self.sending == Sending::Refused,
        }
    }

    pub(crate) fn index(&self, position: usize) -> usize {
        index(self.context.direction, position, self.hops.len())
    }

    /// Passes a burst through the hops from `position` on. The burst is empty afterwards.
    pub(crate) fn traverse(&mut self, burst: &mut Burst<P>, position: usize) {
        self.traverse_each(burst, None, position);
    }

    /// Continues with packets that a process has returned.
    pub(crate) fn resume(&mut self, burst: &mut Burst<P>, verdicts: &[Verdict], at: usize) {
        let position = index(self.context.direction, at, self.hops.len());
        let steer = self.hops[at].policy.steer;
        if steer.is_none() && verdicts.iter().all(|verdict| *verdict == Verdict::Next) {
            return self.traverse(burst, position + 1);
        }
        let outcomes: Outcomes = verdicts
            .iter()
            .map(|verdict| outcome_of(*verdict, position, steer))
            .collect();
        self.traverse_each(burst, Some(outcomes), position + 1);
    }

    /// Continues with packets of an instance that is down.
    pub(crate) fn rescue(&mut self, burst: &mut Burst<P>, at: usize, instance: usize) {
        let position = index(self.context.direction, at, self.hops.len());
        let outcome = self.failure_outcome(at, position);
        let len = burst.len() as u64;
        count_failed(&self.hops[at].instances[instance], outcome, len);
        let outcomes = burst.iter().map(|_| outcome).collect();
        self.traverse_each(burst, Some(outcomes), position + 1);
    }

    /// Passes packets through the hops from position `from` on. Without outcomes, all packets are forwarded to that hop. The
    /// burst is empty afterwards.
    pub(crate) fn traverse_each(
        &mut self,
        burst: &mut Burst<P>,
        mut outcomes: Option<Outcomes>,
        from: usize,
    ) {
        for position in from..self.hops.len() {
            let at = self.index(position);
            if self.hops[at].is_remote() {
                self.hand_over(at, position, burst, &mut outcomes);
            } else {
                self.call(at, position, burst, &mut outcomes);
            }
            if burst.is_empty() {
                return;
            }
            let steer = self.hops[at].policy.steer;
            if let (Some(port), None) = (steer, &outcomes) {
                return self.outlet.receive(port, burst);
            }
        }
        match outcomes {
            None => self.outlet.receive(self.exit, burst),
            Some(outcomes) => self.settle(burst, &outcomes),
        }
    }

    /// Returns the outcome of packets at a hop that is down.
    pub(crate) fn failure_outcome(&self, at: usize, position: usize) -> Outcome {
        let policy = self.hops[at].policy;
        match policy.on_failure {
            OnFailure::Closed => Outcome::Lost,
            OnFailure::Open => outcome_of(Verdict::Next, position, policy.steer),
            OnFailure::Bypass => Outcome::Leaves(self.exit),
        }
    }

    /// Calls the functions of an inline hop.
    #[inline]
    fn call(&mut self, at: usize, position: usize, burst: &mut Burst<P>, outcomes: &mut Option<Outcomes>) {
        let instances = self.hops[at].instances.len();
        if instances == 0 {
            // The hop is drained.
            return self.pass(at, position, outcomes);
        }
        if instances == 1 {
            return self.call_one(at, 0, position, burst, outcomes, None);
        }
        let spread = self.hops[at].policy.spread;
        let picks: ArrayVec<u16, BURST> = burst
            .iter()
            .map(|packet| pick(self.hash, spread, packet, instances))
            .collect();
        for instance in 0..instances {
            self.call_one(at, instance, position, burst, outcomes, Some(&picks));
        }
        // If the hop steers, packets that go to the next hop have skipped this one, and keep their outcomes.
        let next = Outcome::At(position + 1);
        if self.hops[at].policy.steer.is_none()
            && outcomes
                .as_ref()
                .is_some_and(|outcomes| outcomes.iter().all(|outcome| *outcome == next))
        {
            *outcomes = None;
        }
    }

    /// Forwards packets past a drained hop.
    fn pass(&mut self, at: usize, position: usize, outcomes: &mut Option<Outcomes>) {
        let next = outcome_of(Verdict::Next, position, self.hops[at].policy.steer);
        let here = outcomes
            .iter_mut()
            .flatten()
            .filter(|outcome| **outcome == Outcome::At(position));
        here.for_each(|outcome| *outcome = next);
    }

    /// Calls one function of an inline hop with the packets that `picks` assigns to this function.
    #[inline]
    fn call_one(
        &mut self,
        at: usize,
        instance: usize,
        position: usize,
        burst: &mut Burst<P>,
        outcomes: &mut Option<Outcomes>,
        picks: Option<&[u16]>,
    ) {
        let here = packets_at(position, burst.len(), outcomes, picks, instance);
        if here == 0 {
            return;
        }
        let policy = self.hops[at].policy;
        let failed = self.failure_outcome(at, position);
        let called = &mut self.hops[at].instances[instance];
        let shunned = treat_shunned(called, burst, here, self.context.now);
        let mut packets: ArrayVec<&mut dyn Buffer, BURST> = ArrayVec::new();
        let mut bytes = 0;
        let to_call = here & !shunned.passed & !shunned.dropped;
        for (index, packet) in burst.iter_mut().enumerate() {
            if to_call >> index & 1 != 0 {
                bytes += Packet::len(packet) as u64;
                packets.push(packet);
            }
        }
        let mut verdicts: ArrayVec<Verdict, BURST> = packets.iter().map(|_| Verdict::Next).collect();
        let effects = &mut self.effects.of_call;
        effects.reset(self.sending);
        let worked =
            packets.is_empty() || called.process(&self.context, &mut packets, &mut verdicts, effects);
        drop(packets);
        let all_go_on = worked && called.count(&verdicts) && shunned.dropped == 0;
        called.counters.bytes.add(bytes);
        if !worked {
            count_failed(called, failed, verdicts.len() as u64);
        } else if !self.effects.of_call.is_empty() {
            self.carry_out(at, instance, burst, to_call);
        }
        if all_go_on && outcomes.is_none() && picks.is_none() {
            return;
        }
        let outcomes = outcomes.get_or_insert_with(|| burst.iter().map(|_| Outcome::At(position)).collect());
        let mut verdicts = verdicts.into_iter();
        for index in bits(here) {
            let verdict = match (shunned.dropped >> index & 1, shunned.passed >> index & 1) {
                (1, _) => Verdict::Drop,
                (_, 1) => Verdict::Next,
                _ if worked => verdicts.next().unwrap_or_default(),
                _ => {
                    outcomes[index] = failed;
                    continue;
                }
            };
            outcomes[index] = outcome_of(verdict, position, policy.steer);
        }
    }

    /// Carries out the effects of a process on the packets of `burst`, which the process has just returned, and
    /// forwards its messages. `shuns` has a bit for each packet whose flow the process may shun.
    #[cold]
    pub(crate) fn collect(&mut self, at: usize, instance: usize, burst: &Burst<P>, shuns: Packets) {
        let Runner::Remote(remote) = &mut self.hops[at].instances[instance].runner else {
            return;
        };
        self.effects.of_call.reset(self.sending);
        remote.collect(burst.len(), &mut self.effects.of_call);
        if !self.effects.of_call.is_empty() {
            self.carry_out(at, instance, burst, shuns);
        }
    }

    /// Carries out the effects of the function that was just called with the packets of `called`.
    #[cold]
    fn carry_out(&mut self, at: usize, instance: usize, burst: &Burst<P>, called: Packets) {
        let BurstEffects { of_call, sent } = &mut *self.effects;
        let hop = self.hops[at].id;
        let instance = &mut self.hops[at].instances[instance];
        let (mut accepted, mut refused) = (0, of_call.refused());
        for (direction, bytes) in of_call.sent() {
            let packet = match sent.is_full() {
                true => None,
                // All packets of a burst are from the same pool.
                false => burst.first().and_then(|packet| packet.alloc_like(bytes)),
            };
            match packet {
                Some(packet) => {
                    accepted += 1;
                    sent.push(SentPacket {
                        packet,
                        direction,
                        hop,
                    });
                }
                None => refused += 1,
            }
        }
        instance.counters.sent.add(accepted);
        instance.counters.not_sent.add(refused);
        let since = instance.given();
        let Some(shunned) = &mut instance.shunned else {
            return;
        };
        let mut ended = ArrayVec::new();
        for shun in of_call.shuns() {
            let packet = bits(called).nth(shun.packet).and_then(|index| burst.get(index));
            if let Some(packet) = packet {
                shunned.add(packet, shun, (self.context.now, since), &mut ended);
            }
        }
        instance.counters.shunned_flows.set(shunned.len() as u64);
        if !ended.is_empty() {
            instance.end_shuns(&mut ended);
        }
    }

    /// Gives the packets at a hop to its processes.
    fn hand_over(
        &mut self,
        at: usize,
        position: usize,
        burst: &mut Burst<P>,
        outcomes: &mut Option<Outcomes>,
    ) {
        if let Some(group) = self.hops[at].group {
            return self.share(group, position, burst, outcomes);
        }
        let instances = self.hops[at].instances.len();
        if let [only] = self.hops[at].instances.as_slice()
            && outcomes.is_none()
            && !only.down
            && !only.shuns_now()
        {
            return self.give(at, 0, burst);
        }
        let mut treatments = ArrayVec::<Treatment, BURST>::new();
        if let [only] = self.hops[at].instances.as_mut_slice()
            && outcomes.is_none()
            && !only.down
        {
            let now = self.context.now;
            treatments.extend(burst.iter().map(|packet| shunned_by(only, packet, now)));
            if all_pass(only, &treatments) {
                only.counters.shunned_passed.add(burst.len() as u64);
                return;
            }
        }
        let kind = self.kind();
        let steer = self.hops[at].policy.steer;
        let spread = self.hops[at].policy.spread;
        let failed = self.failure_outcome(at, position);
        let mut staying = Burst::new();
        let mut stayed = Outcomes::new();
        let mut given: ArrayVec<(u16, P), BURST> = ArrayVec::new();
        let held = outcomes.take();
        for (index, packet) in burst.drain(..).enumerate() {
            let outcome = held
                .as_ref()
                .map_or(Outcome::At(position), |outcomes| outcomes[index]);
            if outcome != Outcome::At(position) {
                stayed.push(outcome);
                staying.push(packet);
                continue;
            }
            let pick = match instances {
                1 => 0,
                _ => pick(self.hash, spread, &packet, instances),
            };
            let instance = &mut self.hops[at].instances[usize::from(pick)];
            // Packets must not overtake those that a failed instance has not returned yet.
            if instance.down {
                if instance.in_flight() == 0 {
                    count_failed(instance, failed, 1);
                    stayed.push(failed);
                    staying.push(packet);
                } else {
                    given.push((pick, packet));
                }
                continue;
            }
            let treatment = match treatments.get(index) {
                Some(treatment) => *treatment,
                None => shunned_by(instance, &packet, self.context.now),
            };
            match treatment {
                None => given.push((pick, packet)),
                Some((ShunAction::Drop, _)) => {
                    instance.counters.shunned_dropped.add(1);
                    stayed.push(Outcome::Dropped);
                    staying.push(packet);
                }
                Some((ShunAction::Pass, since)) => {
                    instance.counters.shunned_passed.add(1);
                    if instance.may_pass(since) {
                        stayed.push(outcome_of(Verdict::Next, position, steer));
                        staying.push(packet);
                    } else {
                        instance.bypass(since, kind, packet);
                    }
                }
            }
        }
        for number in 0..instances {
            let mut own = Burst::new();
            let mut rest = ArrayVec::new();
            for (pick, packet) in given.drain(..) {
                match usize::from(pick) == number {
                    true => own.push(packet),
                    false => rest.push((pick, packet)),
                }
            }
            given = rest;
            if own.is_empty() {
                continue;
            }
            self.give(at, number, &mut own);
        }
        *burst = staying;
        if !stayed.is_empty() {
            *outcomes = Some(stayed);
        }
    }

    /// Gives packets to a process, in order.
    #[inline]
    fn give(&mut self, at: usize, number: usize, burst: &mut Burst<P>) {
        let (kind, load) = (self.kind(), self.context.load);
        let instance = &mut self.hops[at].instances[number];
        if instance.down {
            instance.hold_bypassing();
        }
        if let Runner::Remote(remote) = &mut instance.runner {
            if instance.down {
                return remote.hold(kind, burst);
            }
            let (len, bytes) = (burst.len(), burst.iter().map(Packet::len).sum::<usize>());
            remote.give(kind, load, burst);
            instance.counters.depth.set(remote.in_flight() as u64);
            let refused = burst.iter().map(Packet::len).sum::<usize>();
            instance.counters.bytes.add((bytes - refused) as u64);
            instance.gave(len - burst.len());
        }
        if !burst.is_empty() {
            // There was room when the packets entered the lane. The process has violated the protocol since, or a packet is
            // too long or in memory that the process has not mapped.
            instance.counters.lost.add(burst.len() as u64);
            self.outlet.discard(DropReason::HopDown, burst);
        }
    }

    /// Sends packets according to their outcomes, in order.
    #[cold]
    fn settle(&mut self, burst: &mut Burst<P>, outcomes: &[Outcome]) {
        let mut leaving = Burst::new();
        let mut port = self.exit;
        let (mut dropped, mut lost) = (Burst::new(), Burst::new());
        for (packet, outcome) in burst.drain(..).zip(outcomes) {
            let leaves = match *outcome {
                Outcome::At(_) => self.exit,
                Outcome::Leaves(port) => port,
                Outcome::ToPort(port) => {
                    self.outlet.transmit(port, packet);
                    continue;
                }
                Outcome::Dropped => {
                    dropped.push(packet);
                    continue;
                }
                Outcome::Lost => {
                    lost.push(packet);
                    continue;
                }
            };
            if leaves != port && !leaving.is_empty() {
                self.outlet.receive(port, &mut leaving);
            }
            port = leaves;
            leaving.push(packet);
        }
        if !leaving.is_empty() {
            self.outlet.receive(port, &mut leaving);
        }
        if !dropped.is_empty() {
            self.outlet.discard(DropReason::FunctionDrop, &mut dropped);
        }
        if !lost.is_empty() {
            self.outlet.discard(DropReason::HopDown, &mut lost);
        }
    }
}

/// Returns the packets of a burst at the hop at `position` that `picks` assigns to an instance.
#[inline]
fn packets_at(
    position: usize,
    len: usize,
    outcomes: &Option<Outcomes>,
    picks: Option<&[u16]>,
    instance: usize,
) -> Packets {
    if outcomes.is_none() && picks.is_none() {
        return Packets::MAX.checked_shr((BURST - len) as u32).unwrap_or(0);
    }
    let is_here = |index: usize| {
        outcomes
            .as_ref()
            .is_none_or(|outcomes| outcomes[index] == Outcome::At(position))
            && picks.is_none_or(|picks| usize::from(picks[index]) == instance)
    };
    (0..len).fold(0, |packets, index| {
        packets | Packets::from(is_here(index)) << index
    })
}

/// Returns the outcome of a verdict of the hop at `position`.
#[inline]
pub(crate) fn outcome_of(verdict: Verdict, position: usize, steer: Option<PortNo>) -> Outcome {
    match (verdict, steer) {
        (Verdict::Drop, _) => Outcome::Dropped,
        (Verdict::ToPort(port), _) => Outcome::ToPort(port),
        (_, Some(port)) => Outcome::Leaves(port),
        (Verdict::Next, None) => Outcome::At(position + 1),
        (Verdict::Skip(over), None) => Outcome::At(position + 1 + usize::from(over)),
    }
}

/// Counts packets that were dropped or forwarded because an instance is down.
pub(crate) fn count_failed<P>(instance: &Instance<P>, outcome: Outcome, packets: u64) {
    match outcome {
        Outcome::Lost => instance.counters.lost.add(packets),
        _ => instance.counters.passed.add(packets),
    }
}

/// Returns the instance for the flow of a packet.
#[inline]
pub(crate) fn pick<P: Packet>(hash: &FlowHash, spread: Spread, packet: &P, instances: usize) -> u16 {
    // The high bits of the hash select the worker, so the middle bits select the instance.
    let share = (hash_of(hash, spread, packet) >> 16) & 0xffff_ffff;
    ((share * instances as u64) >> 32) as u16
}
