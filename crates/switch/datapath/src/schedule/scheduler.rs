//! Which packet of a port leaves next.

use arrayvec::ArrayVec;
use millrace_types::{QueueId, Time};
use millrace_wire::Packet;

use super::counters::QueueCountersMap;
use super::credit::{Credit, Delay};
use super::plan::{PortPlan, QueuePlan};
use super::queue::Queue;

/// Bytes that a turn of the queue with the least weight of its priority adds.
const QUANTUM: i64 = 2_048;
/// Numbers of queues that are found without search.
const DIRECT: usize = 64;

/// The queues of one priority.
#[derive(Debug)]
struct Level {
    /// A bit for each.
    queues: u64,
    /// Whose turn it is.
    turn: u32,
    /// Which was served last for what it is owed.
    owed: u32,
}

/// The scheduler of one port. One worker owns it.
#[derive(Debug)]
pub struct Scheduler<P> {
    /// Those of a higher priority first.
    queues: Vec<Queue<P>>,
    levels: Vec<Level>,
    /// Place in `queues` by number.
    direct: [u8; DIRECT],
    /// Where packets go whose queue is not there.
    default: usize,
    /// Bits of the queues in which packets wait.
    waiting: u64,
    /// Bits of those with a limit, and with a guarantee.
    limited: u64,
    guaranteed: u64,
    rate: Option<Credit>,
    overhead: u32,
    /// Before this nothing can be sent that waits now.
    opens: Time,
    delay: Delay,
}

impl<P: Packet> Scheduler<P> {
    /// Returns a scheduler with empty queues. A queue without counters in `counters` gets new ones, which nobody
    /// reads.
    pub fn new(plan: &PortPlan, counters: &QueueCountersMap, now: Time) -> Scheduler<P> {
        let mut plans = plan.all_queues();
        plans.sort_by_key(|queue| (core::cmp::Reverse(queue.priority), queue.id));
        let queues: Vec<Queue<P>> = plans
            .iter()
            .map(|queue| Queue::new(queue, counters.get(&queue.id).cloned().unwrap_or_default(), now))
            .collect();
        let bits = |wanted: &dyn Fn(&QueuePlan) -> bool| {
            let places = (0_u32..).zip(&plans).filter(|(_, queue)| wanted(queue));
            places.fold(0, |bits, (at, _)| bits | bit(at))
        };
        let place = |id: QueueId| plans.iter().position(|queue| queue.id == id);
        let default = place(PortPlan::DEFAULT_QUEUE).unwrap_or(0);
        let mut direct = [u8::try_from(default).unwrap_or(0); DIRECT];
        for (id, direct) in (0..).zip(&mut direct) {
            if let Some(at) = place(QueueId(id)).and_then(|at| u8::try_from(at).ok()) {
                *direct = at;
            }
        }
        let mut priorities: Vec<u8> = plans.iter().map(|queue| queue.priority).collect();
        priorities.dedup();
        let levels = priorities.iter().map(|priority| {
            let queues = bits(&|queue| queue.priority == *priority);
            let last = queues.ilog2();
            Level {
                queues,
                turn: last,
                owed: last,
            }
        });
        let mut scheduler = Scheduler {
            levels: levels.collect(),
            direct,
            default,
            waiting: 0,
            limited: bits(&|queue| queue.max_rate.is_some()),
            guaranteed: bits(&|queue| queue.min_rate.is_some()),
            rate: plan.rate.map(|rate| Credit::new(rate, now)),
            overhead: plan.overhead.into(),
            opens: Time::ZERO,
            delay: Delay::new(now),
            queues,
        };
        for priority in priorities {
            let of_level = |queue: &&QueuePlan| queue.priority == priority;
            let least = plans.iter().filter(of_level).map(|queue| queue.weight).min();
            let least = i64::from(least.unwrap_or(1).max(1));
            for (queue, plan) in scheduler.queues.iter_mut().zip(&plans) {
                if plan.priority == priority {
                    queue.quantum = QUANTUM * i64::from(plan.weight.max(1)) / least;
                }
            }
        }
        scheduler
    }

    /// Takes over the packets, and what they may still send, from the scheduler that this one replaces. What finds no
    /// room is appended to `homeless`, and counted. To be called before anything is put into a queue.
    pub fn inherit(&mut self, mut old: Scheduler<P>, now: Time, homeless: &mut Vec<P>) {
        let same = |credit: &Option<Credit>, old: &Option<Credit>| match (credit, old) {
            (Some(credit), Some(old)) if credit.rate() == old.rate() => Some(*old),
            (credit, _) => *credit,
        };
        self.rate = same(&self.rate, &old.rate);
        for from in &mut old.queues {
            let at = self.place(Some(from.id));
            if self.queues[at].id == from.id {
                let queue = &mut self.queues[at];
                queue.limit = same(&queue.limit, &from.limit);
                queue.guarantee = same(&queue.guarantee, &from.guarantee);
            }
            while let Some((packet, _)) = from.pop(old.overhead) {
                if let Err(packet) = self.enqueue(Some(from.id), packet, now) {
                    homeless.push(packet);
                }
            }
            from.tell();
        }
        self.queues.iter().for_each(Queue::tell);
    }

    /// Takes away all limits and bounds: what waits leaves as fast as the device takes it.
    pub fn release(&mut self) {
        (self.rate, self.limited, self.opens) = (None, 0, Time::ZERO);
        self.queues.iter_mut().for_each(|queue| queue.limit = None);
    }

    #[inline]
    fn place(&self, queue: Option<QueueId>) -> usize {
        let Some(id) = queue else { return self.default };
        match self.direct.get(id.0 as usize) {
            Some(at) => usize::from(*at),
            None => self
                .queues
                .iter()
                .position(|queue| queue.id == id)
                .unwrap_or(self.default),
        }
    }

    /// Puts a packet into a queue.
    ///
    /// # Errors
    /// The packet, if the queue is full: counted there.
    #[inline]
    pub fn enqueue(&mut self, queue: Option<QueueId>, packet: P, now: Time) -> Result<(), P> {
        let at = self.place(queue);
        if self.waiting & bit(at as u32) == 0 {
            self.begin(at, now);
        }
        let queue = &mut self.queues[at];
        queue
            .push(packet, self.overhead)
            .inspect_err(|_| queue.counters.dropped.add(1))
    }

    /// Puts packets into a queue, in order. Those that find no room, counted there, stay in `burst`.
    #[inline]
    pub fn enqueue_burst<const N: usize>(
        &mut self,
        queue: Option<QueueId>,
        burst: &mut ArrayVec<P, N>,
        now: Time,
    ) {
        if burst.is_empty() {
            return;
        }
        let at = self.place(queue);
        if self.waiting & bit(at as u32) == 0 {
            self.begin(at, now);
        }
        let queue = &mut self.queues[at];
        let mut left = ArrayVec::<P, N>::new();
        for packet in burst.drain(..) {
            if let Err(packet) = queue.push(packet, self.overhead) {
                left.push(packet);
            }
        }
        queue.counters.dropped.add(left.len() as u64);
        core::mem::swap(burst, &mut left);
    }

    /// A queue that was empty is about to get a packet.
    fn begin(&mut self, at: usize, now: Time) {
        // Also if what waits waits for its own limits: the port has not been late.
        if self.waiting == 0 || now < self.opens {
            rested(&mut self.rate, self.delay, now);
        }
        self.waiting |= bit(at as u32);
        self.opens = Time::ZERO;
        let queue = &mut self.queues[at];
        queue.turn = queue.turn.min(0);
        rested(&mut queue.limit, self.delay, now);
        rested(&mut queue.guarantee, self.delay, now);
    }

    /// To be called each time that the worker comes by, whether something waits or not: it finds out when the worker was
    /// late. What could not leave meanwhile may leave in the next 20 ms.
    #[inline]
    pub fn attend(&mut self, now: Time) {
        self.delay.see(now);
    }

    /// Returns true if nothing waits.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.waiting == 0
    }

    /// Packets that wait.
    pub fn len(&self) -> usize {
        self.queues.iter().map(Queue::len).sum()
    }

    /// When something that waits now may leave, as far as the last [`Scheduler::dequeue`] knows; `None` if nothing
    /// waits. It may be past.
    #[inline]
    pub fn opens(&self) -> Option<Time> {
        (self.waiting != 0).then_some(self.opens)
    }

    /// Appends packets that leave now, in order, until `out` is full or nothing more may leave.
    pub fn dequeue<const N: usize>(&mut self, now: Time, out: &mut ArrayVec<P, N>) {
        if self.waiting == 0 || now < self.opens {
            return;
        }
        let mut open = self.waiting;
        for at in Bits(self.waiting & self.limited) {
            open &= !closed(&mut self.queues[at as usize].limit, at, now);
        }
        let mut owed = open & self.guaranteed;
        for at in Bits(owed) {
            owed &= !closed(&mut self.queues[at as usize].guarantee, at, now);
        }
        let mut is_open = closed(&mut self.rate, 0, now) == 0;
        let mut touched = 0;
        while is_open && open != 0 && !out.is_full() {
            let is_owed = owed != 0;
            let at = if is_owed {
                self.next_owed(owed)
            } else {
                self.next(open)
            };
            let queue = &mut self.queues[at as usize];
            let Some((packet, size)) = queue.pop(self.overhead) else {
                // There is one in every queue whose bit is set.
                self.waiting &= !bit(at);
                break;
            };
            touched |= bit(at);
            queue.counters.tx_packets.add(1);
            queue.counters.tx_bytes.add(packet.len() as u64);
            out.push(packet);
            let credit = if is_owed { &mut queue.guarantee } else { &mut None };
            owed &= !spent(credit, at, size);
            if !is_owed {
                queue.turn -= i64::from(size);
            }
            let mut shut = spent(&mut queue.limit, at, size);
            if queue.is_empty() {
                self.waiting &= !bit(at);
                shut |= bit(at);
            }
            open &= !shut;
            owed &= !shut;
            is_open = spent(&mut self.rate, 0, size) == 0;
        }
        for at in Bits(touched) {
            self.queues[at as usize].tell();
        }
        // Who was not the one that held packets back has not been late, and saves up no more than a burst.
        if !is_open {
            for at in Bits(open & self.limited) {
                rested(&mut self.queues[at as usize].limit, self.delay, now);
            }
        } else if open == 0 {
            rested(&mut self.rate, self.delay, now);
        }
        self.opens = if is_open && open != 0 {
            now
        } else {
            self.next_opening()
        };
    }

    /// Tells how much waits in each queue, after packets were put in.
    #[inline]
    pub fn tell(&self) {
        Bits(self.waiting).for_each(|at| self.queues[at as usize].tell());
    }

    /// When the limits let something pass that waits. All credits of what waits are of now.
    fn next_opening(&self) -> Time {
        let limits = Bits(self.waiting).map(|at| match &self.queues[at as usize].limit {
            Some(limit) => limit.opens(),
            None => Time::ZERO,
        });
        let queues = limits.min().unwrap_or(Time::ZERO);
        self.rate.map_or(queues, |rate| queues.max(rate.opens()))
    }

    /// Of queues that are owed something, the next of the highest priority.
    #[inline]
    fn next_owed(&mut self, owed: u64) -> u32 {
        let Some(level) = self.levels.iter_mut().find(|level| level.queues & owed != 0) else {
            return owed.trailing_zeros();
        };
        level.owed = after(level.owed, level.queues & owed);
        level.owed
    }

    /// Of queues that may send, the one of the highest priority whose turn it is.
    #[inline]
    fn next(&mut self, open: u64) -> u32 {
        let Some(level) = self.levels.iter_mut().find(|level| level.queues & open != 0) else {
            return open.trailing_zeros();
        };
        let candidates = level.queues & open;
        loop {
            if candidates & bit(level.turn) != 0 && self.queues[level.turn as usize].turn > 0 {
                return level.turn;
            }
            level.turn = after(level.turn, candidates);
            let queue = &mut self.queues[level.turn as usize];
            queue.turn = queue.turn.min(0) + queue.quantum;
        }
    }
}

#[inline]
const fn bit(at: u32) -> u64 {
    1 << at
}

/// Returns the lowest of some bits above one, or else the lowest.
#[inline]
const fn after(at: u32, bits: u64) -> u32 {
    let above = bits & !(u64::MAX >> (63 - at));
    if above != 0 {
        above.trailing_zeros()
    } else {
        bits.trailing_zeros()
    }
}

/// The bit, if there is a credit and it is used up by now.
#[inline]
fn closed(credit: &mut Option<Credit>, at: u32, now: Time) -> u64 {
    match credit {
        Some(credit) => {
            credit.pass(now);
            u64::from(!credit.is_open()) << at
        }
        None => 0,
    }
}

/// The bit, if there is a credit and this uses it up.
#[inline]
fn spent(credit: &mut Option<Credit>, at: u32, size: u32) -> u64 {
    match credit {
        Some(credit) => {
            credit.spend(size);
            u64::from(!credit.is_open()) << at
        }
        None => 0,
    }
}

#[inline]
fn rested(credit: &mut Option<Credit>, delay: Delay, now: Time) {
    match credit {
        Some(credit) if delay.holds(now) => credit.pass(now),
        Some(credit) => credit.rest(now),
        None => {}
    }
}

/// The places of the bits of a word, from the lowest.
struct Bits(u64);

impl Iterator for Bits {
    type Item = u32;

    #[inline]
    fn next(&mut self) -> Option<u32> {
        let lowest = (self.0 != 0).then(|| self.0.trailing_zeros())?;
        self.0 &= self.0 - 1;
        Some(lowest)
    }
}
