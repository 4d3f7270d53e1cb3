//! One receive queue whose packets are spread: which bucket belongs to whom, and how that changes without tearing a
//! flow apart.
//!
//! # How a bucket moves
//! 1. The control side writes which worker it wants for which bucket, and raises a number ([`Lane::ask`]).
//! 2. The receiving worker sees the number before its next burst. From then on it parks packets of these buckets. It
//!    notes how much it has given to each worker so far.
//! 3. When every worker that loses a bucket has settled so much, and the receiving worker itself has nothing left to
//!    send, the buckets have new owners, and the parked packets go to them, in order.
//! 4. When that takes longer than the wish allows ([`Patience`]), or more packets come than can be parked, everything
//!    stays as it was, and the parked packets go where they would have gone, in order. Only where a worker is left that
//!    is kept from its core, so that its ring is full anyway, what cannot be parked is dropped instead.
//!
//! # Why nobody is overtaken
//! A worker settles at the end of a round in which its transmit buffers became empty, and nothing waits in its ways into
//! chains (`TxQueue::holds`): a lane would look at the new owner's way first. So what it took is then in a
//! device's queue, or in the inbox of the worker that sends for the port. In the first case it left by another queue
//! than what the new owner sends, or by the same device before it. In the second, the new owner pushes into the same
//! inbox later; and if the new owner is the one that reads that inbox, it does so after it took the packet from the
//! ring and before it processes it (`worker`), and what happened before the packet was put there it then sees.

use core::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};
use std::collections::VecDeque;
use std::sync::Arc;

use arrayvec::ArrayVec;
use millrace_flow::classify::BURST;
use millrace_pipeline::{Counters, DropReason};
use millrace_types::{Duration, PortNo, Time};
use millrace_wire::Packet;

use super::SpreadStats;
use super::hash::FlowHash;
use super::links::{Handed, Links};
use crate::counters::Counter;
use crate::io::Burst;

/// Into how many buckets the flows of a queue fall.
pub const BUCKETS: usize = 1024;
/// The highest bits of the hash that make a bucket's number.
const BUCKET_SHIFT: u32 = u64::BITS - BUCKETS.trailing_zeros();
/// Packets that can be parked while buckets move.
const PARKED_MAX: usize = 1024;
/// How long buckets may take to move: an old owner that was asleep or preempted needs that.
const MOVE_MAX: Duration = Duration::from_millis(20);
/// The same, away from a worker that is kept from its core and has a full ring before it.
const MOVE_MAX_LONG: Duration = Duration::from_millis(500);
/// Instead of a worker: the bucket moves.
const MOVING: u16 = u16::MAX;

/// What a wish is worth.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Patience {
    /// Give it up before a packet is lost.
    Short,
    /// Drop what cannot be parked: where it would go, it would be dropped, too.
    Long,
}

/// What the control side and the worker know of one queue.
#[derive(Debug)]
pub(crate) struct Lane {
    /// The worker that receives.
    worker: usize,
    /// Whether packets are hashed at all. A worker ignores that it became false while a bucket is elsewhere.
    is_on: AtomicBool,
    /// Raised with each wish; written by the control side.
    asked: AtomicU64,
    /// The wish that was dealt with last; written by the worker.
    answered: AtomicU64,
    buckets: Box<[Bucket]>,
    moved: Counter,
    stayed: Counter,
    /// Whether the last wish is one with [`Patience::Long`].
    is_urgent: AtomicBool,
    /// By worker, packets that its ring refused; written by the worker that receives.
    refused: Box<[Counter]>,
}

#[derive(Debug)]
struct Bucket {
    /// Written by the control side.
    wanted: AtomicU16,
    /// Written by the worker.
    owner: AtomicU16,
    /// Written by the worker.
    packets: Counter,
}

/// A bucket's owner and how many packets it had.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct BucketState {
    pub(crate) owner: u16,
    pub(crate) packets: u64,
}

impl Lane {
    /// Returns a queue that `worker` receives from. All buckets are its own, or spread `evenly` over so many workers.
    pub(crate) fn new(worker: usize, workers: usize, evenly: bool) -> Arc<Lane> {
        let bucket = |number: usize| {
            let owner = if evenly { number % workers.max(1) } else { worker } as u16;
            Bucket {
                wanted: AtomicU16::new(owner),
                owner: AtomicU16::new(owner),
                packets: Counter::default(),
            }
        };
        Arc::new(Lane {
            worker,
            is_on: AtomicBool::new(evenly),
            asked: AtomicU64::new(0),
            answered: AtomicU64::new(0),
            buckets: (0..BUCKETS).map(bucket).collect(),
            moved: Counter::default(),
            stayed: Counter::default(),
            is_urgent: AtomicBool::new(false),
            refused: (0..workers).map(|_| Counter::default()).collect(),
        })
    }

    /// Returns the worker that receives.
    pub(crate) fn worker(&self) -> usize {
        self.worker
    }

    pub(crate) fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    /// Has the worker hash packets, or not.
    pub(crate) fn switch(&self, on: bool) {
        self.is_on.store(on, Ordering::Relaxed);
    }

    /// Returns true if the worker has dealt with all that it was asked.
    pub(crate) fn is_answered(&self) -> bool {
        self.answered.load(Ordering::Acquire) == self.asked.load(Ordering::Relaxed)
    }

    /// Asks for other owners. For one control thread, and only when what was asked before is answered.
    pub(crate) fn ask(&self, moves: &[(u16, u16)], patience: Patience) {
        self.is_urgent
            .store(patience == Patience::Long, Ordering::Relaxed);
        for bucket in &self.buckets {
            bucket
                .wanted
                .store(bucket.owner.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        for (bucket, worker) in moves {
            if let Some(bucket) = self.buckets.get(usize::from(*bucket)) {
                bucket.wanted.store(*worker, Ordering::Relaxed);
            }
        }
        self.asked.fetch_add(1, Ordering::Release);
    }

    /// How many packets the ring to each worker refused.
    pub(crate) fn refused(&self) -> impl Iterator<Item = u64> + '_ {
        self.refused.iter().map(Counter::read)
    }

    pub(crate) fn buckets(&self) -> impl Iterator<Item = BucketState> + '_ {
        self.buckets.iter().map(|bucket| BucketState {
            owner: bucket.owner.load(Ordering::Relaxed),
            packets: bucket.packets.read(),
        })
    }

    pub(crate) fn stats(&self, workers: usize) -> SpreadStats {
        let mut buckets = vec![0; workers];
        for state in self.buckets() {
            if let Some(count) = buckets.get_mut(usize::from(state.owner)) {
                *count += 1;
            }
        }
        SpreadStats {
            worker: self.worker,
            is_on: self.is_on(),
            buckets,
            moved: self.moved.read(),
            stayed: self.stayed.read(),
            is_settled: self.is_answered(),
        }
    }
}

/// The receiving worker's side of a [`Lane`].
pub(crate) struct Spreader<P> {
    lane: Arc<Lane>,
    hash: FlowHash,
    me: u16,
    /// The owner of each bucket, or [`MOVING`].
    owners: Box<[u16; BUCKETS]>,
    /// Buckets that are not ours.
    away: usize,
    /// The wish that was begun last.
    seen: u64,
    moving: Vec<Move>,
    /// Until when.
    deadline: Time,
    /// True if packets that cannot be parked are dropped.
    is_urgent: bool,
    /// What each worker was given when the move began; `None` where it loses nothing.
    marks: Vec<Option<u64>>,
    parked: Vec<(u16, P)>,
    /// Packets for this worker itself that came before all that it has yet to receive.
    ready: VecDeque<P>,
}

#[derive(Clone, Copy)]
struct Move {
    bucket: u16,
    from: u16,
    to: u16,
}

/// Where a worker gives packets away to, and where it counts those that it could not.
pub(crate) struct Way<'a, P> {
    pub(crate) bridge: u32,
    pub(crate) port: PortNo,
    pub(crate) links: &'a mut Links<P>,
    pub(crate) counters: &'a Counters,
}

impl<P: Packet> Way<'_, P> {
    #[inline]
    fn give(&mut self, worker: u16, packet: P, lane: &Lane, refused: &mut Burst<P>) {
        let handed = Handed {
            bridge: self.bridge,
            port: self.port,
            packet,
        };
        if let Err(packet) = self.links.give(usize::from(worker), handed) {
            if let Some(count) = lane.refused.get(usize::from(worker)) {
                count.add(1);
            }
            self.refuse(packet, refused);
        }
    }

    #[cold]
    fn refuse(&self, packet: P, refused: &mut Burst<P>) {
        if refused.is_full() {
            P::discard(refused);
        }
        self.counters.drops.add(DropReason::WorkerFull, 1);
        refused.push(packet);
    }
}

impl<P: Packet> Spreader<P> {
    pub(crate) fn new(lane: Arc<Lane>, workers: usize, hash: FlowHash) -> Spreader<P> {
        let me = lane.worker as u16;
        let mut owners = Box::new([me; BUCKETS]);
        for (owner, bucket) in owners.iter_mut().zip(&lane.buckets) {
            *owner = bucket.owner.load(Ordering::Relaxed);
        }
        Spreader {
            hash,
            me,
            away: owners.iter().filter(|owner| **owner != me).count(),
            owners,
            seen: lane.asked.load(Ordering::Relaxed),
            moving: Vec::with_capacity(BUCKETS),
            deadline: Time::ZERO,
            is_urgent: false,
            marks: vec![None; workers],
            parked: Vec::with_capacity(PARKED_MAX),
            ready: VecDeque::with_capacity(PARKED_MAX + BURST),
            lane,
        }
    }

    /// Returns true if packets have to go through [`Self::spread`].
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.lane.is_on() || self.away != 0 || !self.moving.is_empty()
    }

    /// Fills `burst`, which is empty, with packets that have waited here. Nothing may be received while there are some.
    #[inline]
    pub(crate) fn take_ready(&mut self, burst: &mut Burst<P>) {
        if !self.ready.is_empty() {
            let len = self.ready.len().min(burst.remaining_capacity());
            burst.extend(self.ready.drain(..len));
        }
    }

    /// To be called before each round: begins, ends or gives up a move. `flushed` says that this worker has nothing
    /// left to send.
    #[inline]
    pub(crate) fn tick(&mut self, now: Time, flushed: bool, way: &mut Way<'_, P>) {
        if self.moving.is_empty() && self.lane.asked.load(Ordering::Relaxed) == self.seen {
            return;
        }
        self.go_on_moving(now, flushed, way);
    }

    #[cold]
    fn go_on_moving(&mut self, now: Time, flushed: bool, way: &mut Way<'_, P>) {
        if self.moving.is_empty() {
            // Packets of ours that have waited are on their way, too.
            if !self.ready.is_empty() {
                return;
            }
            self.begin(now, way.links);
        }
        let is_quiet = |(worker, mark): (usize, &Option<u64>)| match mark {
            Some(_) if worker == usize::from(self.me) => flushed,
            Some(mark) => way.links.is_settled(worker, *mark),
            None => true,
        };
        if self.marks.iter().enumerate().all(is_quiet) {
            self.end(true, way);
        } else if now >= self.deadline {
            self.end(false, way);
        }
    }

    fn begin(&mut self, now: Time, links: &Links<P>) {
        self.seen = self.lane.asked.load(Ordering::Acquire);
        self.is_urgent = self.lane.is_urgent.load(Ordering::Relaxed);
        self.deadline = now + if self.is_urgent { MOVE_MAX_LONG } else { MOVE_MAX };
        self.marks.fill(None);
        for (number, (owner, bucket)) in (0..).zip(self.owners.iter_mut().zip(&self.lane.buckets)) {
            let wanted = bucket.wanted.load(Ordering::Relaxed);
            if wanted != *owner && usize::from(wanted) < self.marks.len() {
                self.moving.push(Move {
                    bucket: number,
                    from: *owner,
                    to: wanted,
                });
                let loser = usize::from(*owner);
                self.marks[loser] = Some(links.mark(loser));
                *owner = MOVING;
            }
        }
    }

    /// Ends a move: buckets have their new owners, or their old ones again, and what was parked goes on.
    fn end(&mut self, moved: bool, way: &mut Way<'_, P>) {
        for Move { bucket, from, to } in self.moving.drain(..) {
            let (bucket, owner) = (usize::from(bucket), if moved { to } else { from });
            self.owners[bucket] = owner;
            self.lane.buckets[bucket].owner.store(owner, Ordering::Relaxed);
            let count = if moved {
                &self.lane.moved
            } else {
                &self.lane.stayed
            };
            count.add(1);
        }
        self.away = self.owners.iter().filter(|owner| **owner != self.me).count();
        let mut refused = ArrayVec::new();
        for (bucket, packet) in self.parked.drain(..) {
            match self.owners[usize::from(bucket)] {
                owner if owner == self.me => self.ready.push_back(packet),
                owner => way.give(owner, packet, &self.lane, &mut refused),
            }
        }
        way.links.publish();
        P::discard(&mut refused);
        self.lane.answered.store(self.seen, Ordering::Release);
    }

    /// Gives packets of other workers' buckets away; those that stay in `burst` are to be processed here, in order.
    #[inline]
    pub(crate) fn spread(&mut self, burst: &mut Burst<P>, way: &mut Way<'_, P>) {
        let mut buckets = ArrayVec::<u16, BURST>::new();
        let mut all_ours = self.ready.is_empty();
        for packet in burst.iter() {
            let hash = match packet.mark() {
                Some(mark) => FlowHash::of_mark(mark),
                None => self.hash.of(packet.head()),
            };
            let bucket = (hash >> BUCKET_SHIFT) as u16;
            all_ours &= self.owners[usize::from(bucket)] == self.me;
            self.lane.buckets[usize::from(bucket)].packets.add(1);
            buckets.push(bucket);
        }
        if all_ours {
            return;
        }
        let mut ours = ArrayVec::new();
        let mut refused = ArrayVec::new();
        for (packet, bucket) in burst.drain(..).zip(buckets) {
            let mut owner = self.owners[usize::from(bucket)];
            if owner == MOVING {
                if self.parked.len() < PARKED_MAX {
                    self.parked.push((bucket, packet));
                    continue;
                }
                if self.is_urgent {
                    way.refuse(packet, &mut refused);
                    continue;
                }
                self.end(false, way);
                owner = self.owners[usize::from(bucket)];
            }
            if owner != self.me {
                way.give(owner, packet, &self.lane, &mut refused);
            } else if self.ready.is_empty() {
                ours.push(packet);
            } else {
                // What waits there came before it.
                self.ready.push_back(packet);
            }
        }
        way.links.publish();
        P::discard(&mut refused);
        *burst = ours;
    }
}
