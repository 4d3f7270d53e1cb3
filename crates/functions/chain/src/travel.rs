//! A burst's way through the hops of a lane.
//!
//! While all packets go on, nothing is moved: each hop is one call over the same buffers. When verdicts differ, each
//! packet has a fate, packets stay where they are until the end, and hops are called with those that are at them.

use arrayvec::ArrayVec;
use millrace_datapath::io::Burst;
use millrace_datapath::service::Outlet;
use millrace_datapath::spread::FlowHash;
use millrace_flow::classify::BURST;
use millrace_nf::{Buffer, Context, Direction, Verdict};
use millrace_pipeline::DropReason;
use millrace_types::PortNo;
use millrace_wire::Packet;

use crate::hop::{Hop, Instance, Runner};
use crate::plan::OnFailure;
use crate::together::Group;

/// Where a packet is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fate {
    /// Before the hop at this position.
    At(usize),
    /// Leaves the chain at this port.
    Leaves(PortNo),
    /// Goes out of this port.
    ToPort(PortNo),
    Dropped,
    /// Dropped because a hop was down.
    Lost,
}

pub(crate) type Fates = ArrayVec<Fate, BURST>;

/// A lane's hops and what is around them.
pub(crate) struct Road<'a, P> {
    pub(crate) hops: &'a mut [Hop<P>],
    pub(crate) groups: &'a mut [Group<P>],
    pub(crate) context: Context,
    /// Where packets of this direction leave.
    pub(crate) exit: PortNo,
    pub(crate) hash: &'a FlowHash,
    pub(crate) outlet: &'a mut dyn Outlet<P>,
}

impl<P: Packet> Road<'_, P> {
    pub(crate) fn index(&self, position: usize) -> usize {
        index(self.context.direction, position, self.hops.len())
    }

    /// Carries a burst from the hop at `position` on. It is empty then.
    pub(crate) fn travel(&mut self, burst: &mut Burst<P>, position: usize) {
        let mut fates = None;
        for position in position..self.hops.len() {
            let at = self.index(position);
            if self.hops[at].is_remote() {
                self.hand_over(at, position, burst, &mut fates);
            } else {
                self.call(at, position, burst, &mut fates);
            }
            let steer = self.hops[at].manner.steer;
            if let (Some(port), None) = (steer, &fates) {
                return self.outlet.receive(port, burst);
            }
            if burst.is_empty() {
                return;
            }
        }
        match fates {
            None => self.outlet.receive(self.exit, burst),
            Some(fates) => self.settle(burst, &fates),
        }
    }

    /// Goes on with packets that a process has given back.
    pub(crate) fn resume(&mut self, burst: &mut Burst<P>, verdicts: &[Verdict], at: usize) {
        let position = index(self.context.direction, at, self.hops.len());
        let steer = self.hops[at].manner.steer;
        if steer.is_none() && verdicts.iter().all(|verdict| *verdict == Verdict::Next) {
            return self.travel(burst, position + 1);
        }
        let fates: Fates = verdicts
            .iter()
            .map(|verdict| fate_of(*verdict, position, steer))
            .collect();
        self.travel_apart(burst, fates, position + 1);
    }

    /// Goes on with packets of an instance that is down.
    pub(crate) fn rescue(&mut self, burst: &mut Burst<P>, at: usize, instance: usize) {
        let position = index(self.context.direction, at, self.hops.len());
        let fate = self.fate_of_failed(at, position);
        let len = burst.len() as u64;
        count_failed(&self.hops[at].instances[instance], fate, len);
        let fates = burst.iter().map(|_| fate).collect();
        self.travel_apart(burst, fates, position + 1);
    }

    pub(crate) fn travel_apart(&mut self, burst: &mut Burst<P>, fates: Fates, from: usize) {
        let mut fates = Some(fates);
        for position in from..self.hops.len() {
            let at = self.index(position);
            if self.hops[at].is_remote() {
                self.hand_over(at, position, burst, &mut fates);
            } else {
                self.call(at, position, burst, &mut fates);
            }
        }
        if let Some(fates) = fates {
            self.settle(burst, &fates);
        }
    }

    pub(crate) fn fate_of_failed(&self, at: usize, position: usize) -> Fate {
        let manner = self.hops[at].manner;
        match manner.on_failure {
            OnFailure::Closed => Fate::Lost,
            OnFailure::Open => fate_of(Verdict::Next, position, manner.steer),
            OnFailure::Bypass => Fate::Leaves(self.exit),
        }
    }

    /// Calls the functions of an inline hop.
    #[inline]
    fn call(&mut self, at: usize, position: usize, burst: &mut Burst<P>, fates: &mut Option<Fates>) {
        let instances = self.hops[at].instances.len();
        if instances == 0 {
            // Drained: they pass over it.
            return self.pass(at, position, fates);
        }
        if instances == 1 {
            return self.call_one(at, 0, position, burst, fates, None);
        }
        let picks: ArrayVec<u16, BURST> = burst
            .iter()
            .map(|packet| pick(self.hash, packet, instances))
            .collect();
        for instance in 0..instances {
            self.call_one(at, instance, position, burst, fates, Some(&picks));
        }
        let next = Fate::At(position + 1);
        if fates
            .as_ref()
            .is_some_and(|fates| fates.iter().all(|fate| *fate == next))
        {
            *fates = None;
        }
    }

    /// Has packets pass over a hop that has no function.
    fn pass(&mut self, at: usize, position: usize, fates: &mut Option<Fates>) {
        let next = fate_of(Verdict::Next, position, self.hops[at].manner.steer);
        let here = fates
            .iter_mut()
            .flatten()
            .filter(|fate| **fate == Fate::At(position));
        here.for_each(|fate| *fate = next);
    }

    #[inline]
    fn call_one(
        &mut self,
        at: usize,
        instance: usize,
        position: usize,
        burst: &mut Burst<P>,
        fates: &mut Option<Fates>,
        picks: Option<&[u16]>,
    ) {
        let is_here = |place: usize, fates: &Option<Fates>| {
            fates
                .as_ref()
                .is_none_or(|fates| fates[place] == Fate::At(position))
                && picks.is_none_or(|picks| usize::from(picks[place]) == instance)
        };
        let mut packets: ArrayVec<&mut dyn Buffer, BURST> = ArrayVec::new();
        let all = fates.is_none() && picks.is_none();
        let mut bytes = 0;
        for (place, packet) in burst.iter_mut().enumerate() {
            if all || is_here(place, fates) {
                bytes += Packet::len(packet) as u64;
                packets.push(packet);
            }
        }
        if packets.is_empty() {
            return;
        }
        let mut verdicts: ArrayVec<Verdict, BURST> = packets.iter().map(|_| Verdict::Next).collect();
        let manner = self.hops[at].manner;
        let failed = self.fate_of_failed(at, position);
        let called = &mut self.hops[at].instances[instance];
        let worked = called.process(&self.context, &mut packets, &mut verdicts);
        drop(packets);
        let all_go_on = worked && called.count(&verdicts);
        called.counters.bytes.add(bytes);
        if !worked {
            count_failed(called, failed, verdicts.len() as u64);
        }
        if all_go_on && fates.is_none() && picks.is_none() {
            return;
        }
        let places = burst.len();
        let here: ArrayVec<usize, BURST> = (0..places).filter(|place| is_here(*place, fates)).collect();
        let fates = fates.get_or_insert_with(|| (0..places).map(|_| Fate::At(position)).collect());
        for (place, verdict) in here.into_iter().zip(verdicts) {
            fates[place] = match worked {
                true => fate_of(verdict, position, manner.steer),
                false => failed,
            };
        }
    }

    /// Gives the packets that are at a hop to its processes.
    fn hand_over(&mut self, at: usize, position: usize, burst: &mut Burst<P>, fates: &mut Option<Fates>) {
        if let Some(group) = self.hops[at].group {
            return self.share(group, position, burst, fates);
        }
        let instances = self.hops[at].instances.len();
        if instances == 1 && fates.is_none() && !self.hops[at].instances[0].down {
            return self.give(at, 0, burst);
        }
        let failed = self.fate_of_failed(at, position);
        let mut staying = Burst::new();
        let mut stayed = Fates::new();
        let mut given: ArrayVec<(u16, P), BURST> = ArrayVec::new();
        let held = fates.take();
        for (place, packet) in burst.drain(..).enumerate() {
            let fate = held.as_ref().map_or(Fate::At(position), |fates| fates[place]);
            if fate != Fate::At(position) {
                stayed.push(fate);
                staying.push(packet);
                continue;
            }
            let pick = match instances {
                1 => 0,
                _ => pick(self.hash, &packet, instances),
            };
            let instance = &self.hops[at].instances[usize::from(pick)];
            // Nothing overtakes what one that is down has not given back yet.
            if instance.down && instance.in_flight() == 0 {
                count_failed(instance, failed, 1);
                stayed.push(failed);
                staying.push(packet);
            } else {
                given.push((pick, packet));
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
            *fates = Some(stayed);
        }
    }

    /// Gives packets to a process, in order.
    #[inline]
    fn give(&mut self, at: usize, number: usize, burst: &mut Burst<P>) {
        let instance = &mut self.hops[at].instances[number];
        if let Runner::Remote(remote) = &mut instance.runner {
            if instance.down {
                return remote.hold(self.context.direction, burst);
            }
            let (len, bytes) = (burst.len(), burst.iter().map(Packet::len).sum::<usize>());
            remote.give(self.context.direction, burst);
            instance.counters.depth.set(remote.in_flight() as u64);
            let refused = burst.iter().map(Packet::len).sum::<usize>();
            instance.counters.bytes.add((bytes - refused) as u64);
            instance.gave(len - burst.len());
        }
        if !burst.is_empty() {
            // There was room when they entered; a process that took it away since is at fault.
            instance.counters.lost.add(burst.len() as u64);
            self.outlet.discard(DropReason::HopDown, burst);
        }
    }

    /// Sends packets where their fates say, in order.
    #[cold]
    fn settle(&mut self, burst: &mut Burst<P>, fates: &[Fate]) {
        let mut leaving = Burst::new();
        let mut port = self.exit;
        let (mut dropped, mut lost) = (Burst::new(), Burst::new());
        for (packet, fate) in burst.drain(..).zip(fates) {
            let leaves = match *fate {
                Fate::At(_) => self.exit,
                Fate::Leaves(port) => port,
                Fate::ToPort(port) => {
                    self.outlet.transmit(port, packet);
                    continue;
                }
                Fate::Dropped => {
                    dropped.push(packet);
                    continue;
                }
                Fate::Lost => {
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

/// The place of a hop in the list from its place on the way, and the other way round.
#[inline]
pub(crate) fn index(direction: Direction, position: usize, len: usize) -> usize {
    match direction {
        Direction::Forward => position,
        Direction::Backward => len.wrapping_sub(1).wrapping_sub(position),
    }
}

#[inline]
pub(crate) fn fate_of(verdict: Verdict, position: usize, steer: Option<PortNo>) -> Fate {
    match (verdict, steer) {
        (Verdict::Drop, _) => Fate::Dropped,
        (Verdict::ToPort(port), _) => Fate::ToPort(port),
        (_, Some(port)) => Fate::Leaves(port),
        (Verdict::Next, None) => Fate::At(position + 1),
        (Verdict::Skip(over), None) => Fate::At(position + 1 + usize::from(over)),
    }
}

pub(crate) fn count_failed<P>(instance: &Instance<P>, fate: Fate, packets: u64) {
    match fate {
        Fate::Lost => instance.counters.lost.add(packets),
        _ => instance.counters.passed.add(packets),
    }
}

#[inline]
pub(crate) fn pick<P: Packet>(hash: &FlowHash, packet: &P, instances: usize) -> u16 {
    // The high bits choose the bucket of a worker; these are others.
    let share = (hash.of(packet.head()) >> 16) & 0xffff_ffff;
    ((share * instances as u64) >> 32) as u16
}
