//! Hops side by side that are given the same packets at the same time, as their functions only read.
//!
//! A packet that went to several processes one after the other went the way there and back as often. Functions that
//! declare that they write nothing are shown it at once, and it goes on when the last of them has answered. What becomes
//! of it is as if it had gone through them in order: the verdict of the first hop that has another one than *next*
//! counts, and a hop that it would not have come to counts nothing. Only the function has seen it.
//!
//! The packets wait here, and not at the hops, in one queue for each instance: flows fall to the same instance of each
//! hop, as each has as many. What a process did to bytes or bounds is not carried out, so that one that copies are given
//! to cannot change a packet. (One of class `ring` can, and is trusted not to.)
//!
//! What each hop has to do with a packet is noted when that comes, and stays so: a hop that was down then is over it by
//! its policy, and one that goes down later with the packets that it has not answered.

use std::collections::VecDeque;

use arrayvec::ArrayVec;
use millrace_datapath::io::Burst;
use millrace_flow::classify::BURST;
use millrace_nf::{Direction, Verdict};
use millrace_types::Time;
use millrace_wire::Packet;

use crate::hop::{Hop, IN_FLIGHT_MAX, Runner};
use crate::plan::OnFailure;
use crate::travel::{Fate, Fates, Road, count_failed, fate_of, index, pick};

/// Hops of a group at most: what each has to do with a packet is a bit. More hops are more groups.
pub(crate) const MEMBERS_MAX: usize = 8;

/// A bit for each hop of a group, in the order of the chain.
type Members = u8;
/// A bit for each packet of a burst.
type Packets = u64;
const _: () = assert!(BURST <= Packets::BITS as usize && MEMBERS_MAX <= Members::BITS as usize);

/// What hops have to do with a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Run {
    direction: Direction,
    /// The first one on its way.
    position: usize,
    /// Those that were shown it.
    asked: Members,
    /// Those that were down.
    failed: Members,
    /// The one that could not be shown it: it goes no further.
    refused: Members,
}

/// Packets that are with the same instance of each hop, the oldest first.
struct Queue<P> {
    held: VecDeque<P>,
    /// For how many in a row the same is so.
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
            // No more of these than of packets: there is room.
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

/// The oldest packets of a queue, as all hops that were asked have answered or never will.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answered {
    run: Run,
    len: usize,
    /// Hops that are gone without an answer.
    gone: Members,
}

impl Answered {
    /// The way that all of them go.
    pub(crate) fn direction(&self) -> Direction {
        self.run.direction
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }
}

/// Hops side by side, of class `ring` or `isolated`, whose functions only read.
pub(crate) struct Group<P> {
    /// The place of the first one in the list, and how many.
    first: usize,
    len: usize,
    /// One for each instance.
    queues: Vec<Queue<P>>,
    /// What each hop said of the packets that were looked at last; empty if all go on.
    verdicts: Vec<ArrayVec<Verdict, BURST>>,
}

impl<P> Group<P> {
    /// At most [`MEMBERS_MAX`] hops, each with so many instances.
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

    /// The places of its hops.
    pub(crate) fn hops(&self) -> core::ops::Range<usize> {
        self.first..self.first + self.len
    }

    pub(crate) fn instances(&self) -> usize {
        self.queues.len()
    }

    /// Packets that are with its hops: each counts once.
    pub(crate) fn in_flight(&self) -> usize {
        self.queues.iter().map(|queue| queue.held.len()).sum()
    }

    /// The last position of a way through so many hops that is one of these.
    fn last_position(&self, direction: Direction, hops: usize) -> usize {
        match direction {
            Direction::Forward => self.first + self.len - 1,
            Direction::Backward => index(direction, self.first, hops),
        }
    }
}

impl<P: Packet> Group<P> {
    /// Looks whether the oldest packets of a queue can go on.
    #[inline]
    pub(crate) fn answered(&mut self, number: usize, hops: &mut [Hop<P>], now: Time) -> Option<Answered> {
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
        let mut answered = Answered { run, len, gone };
        let (asked, members) = (run.asked & !gone, self.hops());
        for (member, (hop, verdicts)) in hops[members].iter_mut().zip(&mut self.verdicts).enumerate() {
            verdicts.clear();
            if asked & 1 << member != 0
                && let Runner::Remote(remote) = &mut hop.instances[number].runner
            {
                // Fewer, if it lies about one: what comes before that still counts.
                answered.len = remote.opinions(answered.len, verdicts);
            }
        }
        (answered.len != 0).then_some(answered)
    }
}

/// So many packets before one hop.
fn all_at(position: usize, packets: usize) -> Fates {
    (0..packets).map(|_| Fate::At(position)).collect()
}

/// A bit for each of these of which something is so.
fn places<T>(all: &[T], is_so: impl Fn(&T) -> bool) -> Packets {
    let bits = all.iter().enumerate();
    bits.fold(0, |bits, (place, one)| bits | Packets::from(is_so(one)) << place)
}

/// A bit for each of so many packets.
const fn all(packets: usize) -> Packets {
    match packets {
        0 => 0,
        len => Packets::MAX >> (Packets::BITS as usize - len),
    }
}

impl<P: Packet> Road<'_, P> {
    /// Shows packets that are before one of the hops of a group to all of them.
    pub(crate) fn share(
        &mut self,
        group: usize,
        position: usize,
        burst: &mut Burst<P>,
        fates: &mut Option<Fates>,
    ) {
        if burst.is_empty() {
            return;
        }
        let instances = self.groups[group].instances();
        let Some(held) = fates
            .take()
            .or_else(|| (instances != 1).then(|| all_at(position, burst.len())))
        else {
            return self.show(group, 0, burst, None, position);
        };
        let last = self.groups[group].last_position(self.context.direction, self.hops.len());
        let mut staying = Burst::new();
        let mut stayed = Fates::new();
        let mut shown: ArrayVec<(u16, usize, P), BURST> = ArrayVec::new();
        for (packet, fate) in burst.drain(..).zip(held) {
            match fate {
                Fate::At(from) if from <= last => {
                    let pick = match instances {
                        1 => 0,
                        _ => pick(self.hash, &packet, instances),
                    };
                    shown.push((pick, from, packet));
                }
                _ => {
                    stayed.push(fate);
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
            *fates = Some(stayed);
        }
    }

    /// Shows packets to an instance of each hop of a group, and keeps them until these have answered. `from` has the
    /// position of each; without it all are at `position`.
    fn show(
        &mut self,
        group: usize,
        number: usize,
        burst: &mut Burst<P>,
        from: Option<&[usize]>,
        position: usize,
    ) {
        let (direction, len) = (self.context.direction, burst.len());
        let first = self.groups[group].first;
        let last = self.groups[group].last_position(direction, self.hops.len());
        let mut goes_on = all(len);
        let (mut asked, mut failed, mut refused) = ([0; MEMBERS_MAX], [0; MEMBERS_MAX], [0; MEMBERS_MAX]);
        for position in position..=last {
            let at = self.index(position);
            let member = at - first;
            let here = match from {
                None => goes_on,
                Some(from) => goes_on & places(from, |from| *from <= position),
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
                if hop.manner.on_failure != OnFailure::Open {
                    goes_on &= !here;
                }
                continue;
            }
            let told = remote.show(direction, burst, here);
            instance.counters.depth.set(remote.in_flight() as u64);
            asked[member] = told;
            refused[member] = here & !told;
            goes_on &= !(here & !told);
            if told != 0 {
                instance.gave(told.count_ones() as usize);
            }
        }
        let run_of = |place: usize| {
            let bits = |masks: &[Packets; MEMBERS_MAX]| -> Members {
                let members = masks.iter().enumerate();
                members.fold(0, |bits, (member, mask)| {
                    bits | ((mask >> place & 1) as Members) << member
                })
            };
            Run {
                direction,
                position: from.map_or(position, |from| from[place]),
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
            (0..len).for_each(|place| queue.push(run_of(place), 1));
        }
        queue.held.extend(burst.drain(..));
    }

    /// Goes on with packets of which all hops of a group have said what they have to say. `burst` is empty.
    pub(crate) fn gather(&mut self, group: usize, number: usize, answered: &Answered, burst: &mut Burst<P>) {
        let Answered { run, len, gone } = *answered;
        let first = self.groups[group].first;
        let last = self.groups[group].last_position(run.direction, self.hops.len());
        self.groups[group].queues[number].take(len, burst);
        let bytes: usize = burst.iter().map(Packet::len).sum();
        // Unless there are any, all packets are at the position.
        let mut fates: Option<Fates> = None;
        for position in run.position..=last {
            let at = self.index(position);
            let (member, failed_fate) = (at - first, self.fate_of_failed(at, position));
            let is_in = |members: Members| members & 1 << member != 0;
            let instance = &mut self.hops[at].instances[number];
            if is_in(run.asked) {
                if let Runner::Remote(remote) = &mut instance.runner {
                    remote.forget(len);
                    instance.counters.depth.set(remote.in_flight() as u64);
                }
                instance.took(len);
            }
            let fate = match () {
                () if is_in(run.refused) => Some(Fate::Lost),
                () if is_in(run.failed | gone) => Some(failed_fate),
                () => None,
            };
            let verdicts = &self.groups[group].verdicts[member];
            match fate {
                None if fates.is_none() && verdicts.is_empty() => {
                    instance.counters.packets.add(len as u64);
                    instance.counters.next.add(len as u64);
                    instance.counters.bytes.add(bytes as u64);
                }
                Some(fate) if fates.is_none() => {
                    count_failed(instance, fate, len as u64);
                    if fate != Fate::At(position + 1) {
                        fates = Some((0..len).map(|_| fate).collect());
                    }
                }
                _ => {
                    let fates = fates.get_or_insert_with(|| all_at(position, len));
                    let mut said = ArrayVec::<Verdict, BURST>::new();
                    let here = fates.iter_mut().zip(burst.iter()).enumerate();
                    for (place, (here, packet)) in here.filter(|(_, (held, _))| **held == Fate::At(position))
                    {
                        if let Some(fate) = fate {
                            count_failed(instance, fate, 1);
                            *here = fate;
                            continue;
                        }
                        let verdict = verdicts.get(place).copied().unwrap_or_default();
                        said.push(verdict);
                        instance.counters.bytes.add(packet.len() as u64);
                        *here = fate_of(verdict, position, None);
                    }
                    instance.count(&said);
                }
            }
        }
        match fates {
            None => self.travel(burst, last + 1),
            Some(fates) => self.travel_apart(burst, fates, last + 1),
        }
    }
}

#[cfg(test)]
mod tests;
