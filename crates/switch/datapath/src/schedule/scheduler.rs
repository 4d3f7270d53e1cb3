//! Selects the next packet of a port.

use arrayvec::ArrayVec;
use millrace_types::{QueueId, Time};
use millrace_wire::Packet;

use super::counters::QueueCountersMap;
use super::credit::{Credit, Delay};
use super::plan::{PortPlan, QUEUES_MAX, QueuePlan};
use super::queue::Queue;

/// Bytes that a turn adds to the queue with the smallest weight of its priority.
const QUANTUM: i64 = 2_048;
/// Number of queue numbers that are found without a search.
const DIRECT: usize = 64;

/// The queues of one priority.
#[derive(Debug)]
struct Level {
    /// A bit for each queue.
    queues: u64,
    /// Index of the queue whose turn it is.
    current: u32,
    /// Index of the queue that was served last for its guarantee.
    last_guaranteed: u32,
}

/// The scheduler of one port. One worker owns it.
#[derive(Debug)]
pub struct Scheduler<P> {
    /// Sorted by priority, the highest first; the index in this array is the bit number in all masks below.
    queues: Vec<Queue<P>>,
    levels: Vec<Level>,
    /// Index in `queues`, by queue number below [`DIRECT`].
    direct: [u8; DIRECT],
    /// Index of the queue for packets whose queue does not exist.
    default: usize,
    /// Bits of the queues that are not empty.
    waiting: u64,
    /// Bits of the queues with a limit, and of those with a guarantee.
    limited: u64,
    guaranteed: u64,
    rate: Option<Credit>,
    overhead: u32,
    /// No queued packet can be sent before this time.
    eligible_at: Time,
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
            let indexed = (0_u32..).zip(&plans).filter(|(_, queue)| wanted(queue));
            indexed.fold(0, |bits, (at, _)| bits | bit(at))
        };
        let index_of = |id: QueueId| plans.iter().position(|queue| queue.id == id);
        let default = index_of(PortPlan::DEFAULT_QUEUE);
        debug_assert!(default.is_some(), "each plan has the default queue");
        debug_assert!(plans.len() <= QUEUES_MAX, "an index is the number of a bit");
        let default = default.unwrap_or(0);
        let mut direct = [default as u8; DIRECT];
        for (id, direct) in (0..).zip(&mut direct) {
            if let Some(at) = index_of(QueueId(id)) {
                *direct = at as u8;
            }
        }
        let mut priorities: Vec<u8> = plans.iter().map(|queue| queue.priority).collect();
        priorities.dedup();
        let levels = priorities.iter().map(|priority| {
            let queues = bits(&|queue| queue.priority == *priority);
            let last = queues.ilog2();
            Level {
                queues,
                current: last,
                last_guaranteed: last,
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
            eligible_at: Time::ZERO,
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

    /// Takes the packets and the credits of the scheduler that this one replaces. Packets that do not fit are
    /// counted, and appended to `overflow`. Must be called before anything is enqueued.
    pub fn inherit(&mut self, mut old: Scheduler<P>, now: Time, overflow: &mut Vec<P>) {
        let same = |credit: &Option<Credit>, old: &Option<Credit>| match (credit, old) {
            (Some(credit), Some(old)) if credit.rate() == old.rate() => Some(*old),
            (credit, _) => *credit,
        };
        self.rate = same(&self.rate, &old.rate);
        for from in &mut old.queues {
            let at = self.index_of(Some(from.id));
            if self.queues[at].id == from.id {
                let queue = &mut self.queues[at];
                queue.limit = same(&queue.limit, &from.limit);
                queue.guarantee = same(&queue.guarantee, &from.guarantee);
            }
            while let Some((packet, _)) = from.pop(old.overhead) {
                if let Err(packet) = self.enqueue(Some(from.id), packet, now) {
                    overflow.push(packet);
                }
            }
            from.publish_len();
        }
        self.queues.iter().for_each(Queue::publish_len);
    }

    /// Removes all limits: queued packets leave as fast as the device takes them.
    pub fn lift_limits(&mut self) {
        (self.rate, self.limited, self.eligible_at) = (None, 0, Time::ZERO);
        self.queues.iter_mut().for_each(|queue| queue.limit = None);
    }

    #[inline]
    fn index_of(&self, queue: Option<QueueId>) -> usize {
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

    /// Appends a packet to a queue.
    ///
    /// # Errors
    /// Returns the packet if the queue is full; the queue counts it.
    #[inline]
    pub fn enqueue(&mut self, queue: Option<QueueId>, packet: P, now: Time) -> Result<(), P> {
        let at = self.index_of(queue);
        if self.waiting & bit(at as u32) == 0 {
            self.activate(at, now);
        }
        let queue = &mut self.queues[at];
        queue
            .push(packet, self.overhead)
            .inspect_err(|_| queue.counters.dropped.add(1))
    }

    /// Appends packets to a queue, in order. Packets that do not fit are counted, and stay in `burst`.
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
        let at = self.index_of(queue);
        if self.waiting & bit(at as u32) == 0 {
            self.activate(at, now);
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

    /// Prepares an empty queue for its first packet.
    fn activate(&mut self, at: usize, now: Time) {
        // The port was not late if nothing was queued, or if the queued packets wait for their own limits.
        if self.waiting == 0 || now < self.eligible_at {
            advance_rested(&mut self.rate, self.delay, now);
        }
        self.waiting |= bit(at as u32);
        self.eligible_at = Time::ZERO;
        let queue = &mut self.queues[at];
        queue.deficit = queue.deficit.min(0);
        advance_rested(&mut queue.limit, self.delay, now);
        advance_rested(&mut queue.guarantee, self.delay, now);
    }

    /// Records a poll by the worker; called at every poll, even if nothing is queued, to detect that the worker was
    /// late. Packets that could not leave meanwhile may leave in the next 20 ms.
    #[inline]
    pub fn note_poll(&mut self, now: Time) {
        self.delay.note_poll(now);
    }

    /// Returns true if nothing is queued.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.waiting == 0
    }

    /// Returns the number of queued packets.
    pub fn len(&self) -> usize {
        self.queues.iter().map(Queue::len).sum()
    }

    /// Returns the time at which a queued packet may leave, as of the last [`Scheduler::dequeue`]; `None` if nothing
    /// is queued. The time may be past.
    #[inline]
    pub fn eligible_at(&self) -> Option<Time> {
        (self.waiting != 0).then_some(self.eligible_at)
    }

    /// Appends packets that may leave now, in order, until `out` is full or no more may leave.
    pub fn dequeue<const N: usize>(&mut self, now: Time, out: &mut ArrayVec<P, N>) {
        if self.waiting == 0 || now < self.eligible_at {
            return;
        }
        let mut open = self.waiting;
        for at in Bits(self.waiting & self.limited) {
            open &= !exhausted(&mut self.queues[at as usize].limit, at, now);
        }
        let mut behind = open & self.guaranteed;
        for at in Bits(behind) {
            behind &= !exhausted(&mut self.queues[at as usize].guarantee, at, now);
        }
        let mut is_open = exhausted(&mut self.rate, 0, now) == 0;
        let mut touched = 0;
        while is_open && open != 0 && !out.is_full() {
            let is_guaranteed = behind != 0;
            let at = if is_guaranteed {
                self.next_guaranteed(behind)
            } else {
                self.next(open)
            };
            let queue = &mut self.queues[at as usize];
            let Some((packet, size)) = queue.pop(self.overhead) else {
                debug_assert!(false, "each queue whose bit is set has a packet");
                self.waiting &= !bit(at);
                break;
            };
            touched |= bit(at);
            queue.counters.tx_packets.add(1);
            queue.counters.tx_bytes.add(packet.len() as u64);
            out.push(packet);
            let credit = if is_guaranteed {
                &mut queue.guarantee
            } else {
                &mut None
            };
            behind &= !spend(credit, at, size);
            if !is_guaranteed {
                queue.deficit -= i64::from(size);
            }
            let mut closing = spend(&mut queue.limit, at, size);
            if queue.is_empty() {
                self.waiting &= !bit(at);
                closing |= bit(at);
            }
            open &= !closing;
            behind &= !closing;
            is_open = spend(&mut self.rate, 0, size) == 0;
        }
        for at in Bits(touched) {
            self.queues[at as usize].publish_len();
        }
        // A limit that did not hold packets back was not late, and saves one burst at most.
        if !is_open {
            for at in Bits(open & self.limited) {
                advance_rested(&mut self.queues[at as usize].limit, self.delay, now);
            }
        } else if open == 0 {
            advance_rested(&mut self.rate, self.delay, now);
        }
        self.eligible_at = if is_open && open != 0 {
            now
        } else {
            self.next_eligible()
        };
    }

    /// Publishes the lengths of all queues in their counters, after packets were enqueued.
    #[inline]
    pub fn publish_len(&self) {
        Bits(self.waiting).for_each(|at| self.queues[at as usize].publish_len());
    }

    /// Returns the time at which the limits let a queued packet pass. The credits of all queues with packets
    /// must be up to date.
    fn next_eligible(&self) -> Time {
        let limits = Bits(self.waiting).map(|at| match &self.queues[at as usize].limit {
            Some(limit) => limit.eligible_at(),
            None => Time::ZERO,
        });
        let queues = limits.min().unwrap_or(Time::ZERO);
        self.rate.map_or(queues, |rate| queues.max(rate.eligible_at()))
    }

    /// Returns the next queue of the highest priority, among the queues that are behind their guarantee.
    #[inline]
    fn next_guaranteed(&mut self, behind: u64) -> u32 {
        let Some(level) = self.levels.iter_mut().find(|level| level.queues & behind != 0) else {
            debug_assert!(false, "each queue has a level");
            return behind.trailing_zeros();
        };
        level.last_guaranteed = after(level.last_guaranteed, level.queues & behind);
        level.last_guaranteed
    }

    /// Returns the queue whose turn it is at the highest priority, among the queues that may send.
    #[inline]
    fn next(&mut self, open: u64) -> u32 {
        let Some(level) = self.levels.iter_mut().find(|level| level.queues & open != 0) else {
            debug_assert!(false, "each queue has a level");
            return open.trailing_zeros();
        };
        let candidates = level.queues & open;
        loop {
            if candidates & bit(level.current) != 0 && self.queues[level.current as usize].deficit > 0 {
                return level.current;
            }
            level.current = after(level.current, candidates);
            let queue = &mut self.queues[level.current as usize];
            queue.deficit = queue.deficit.min(0) + queue.quantum;
        }
    }
}

#[inline]
const fn bit(at: u32) -> u64 {
    1 << at
}

/// Returns the number of the lowest set bit above bit `at`, or else of the lowest set bit.
#[inline]
const fn after(at: u32, bits: u64) -> u32 {
    let above = bits & !(u64::MAX >> (63 - at));
    if above != 0 {
        above.trailing_zeros()
    } else {
        bits.trailing_zeros()
    }
}

/// Returns the bit `at` if there is a credit that is used up now, or else 0.
#[inline]
fn exhausted(credit: &mut Option<Credit>, at: u32, now: Time) -> u64 {
    match credit {
        Some(credit) => {
            credit.advance(now);
            u64::from(!credit.is_open()) << at
        }
        None => 0,
    }
}

/// Subtracts `size` from a credit. Returns the bit `at` if the credit is then used up, or else 0.
#[inline]
fn spend(credit: &mut Option<Credit>, at: u32, size: u32) -> u64 {
    match credit {
        Some(credit) => {
            credit.spend(size);
            u64::from(!credit.is_open()) << at
        }
        None => 0,
    }
}

#[inline]
fn advance_rested(credit: &mut Option<Credit>, delay: Delay, now: Time) {
    match credit {
        Some(credit) if delay.is_catching_up(now) => credit.advance(now),
        Some(credit) => credit.advance_idle(now),
        None => {}
    }
}

/// Iterates over the numbers of the bits that are set in a word, from the lowest.
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
