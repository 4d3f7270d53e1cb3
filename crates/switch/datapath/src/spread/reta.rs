//! The redirection table (RETA) of one receive queue: it maps each bucket of flows to a worker, and changes without
//! reordering packets of a flow.
//!
//! # How a bucket moves
//! 1. The control side writes the wanted worker of each bucket, and increments the request number ([`Reta::request`]).
//! 2. The receiving worker reads the number before its next burst. From then on it parks packets of these buckets. It
//!    records how many packets it has handed off to each worker so far (the marks).
//! 3. When every worker that loses a bucket has settled as many packets as its mark says, and no packet that the
//!    receiving worker itself sent can be overtaken, the buckets get their new owners. These get the parked packets,
//!    in order.
//! 4. If that takes longer than the request allows ([`Urgency`]), or more packets arrive than can be parked, all
//!    buckets keep their owners. These get the parked packets, in order. Packets that cannot be parked are
//!    dropped only if the move is urgent: the old owner is kept from its core, so its ring would drop them, too.
//!
//! ```text
//!              request                 every loser has settled its mark
//!   Idle ------------------> Moving --------------------------------------> Idle, new owners
//!                              |        deadline, or no room to park
//!                              +------------------------------------------> Idle, old owners
//! ```
//!
//! # Why no packet is overtaken
//! A worker settles at the end of a round in which its transmit buffers to devices with several queues became empty
//! and no packet waits in its queues into chains (`TxQueue::has_in_flight`): a lane of a chain could poll the new
//! owner's queue first. Each packet that the worker took is then in a device's queue, in the buffer of a device's only
//! queue, or in the inbox of the worker that sends for the port. In the first case, the device has the packet before the
//! new owner sends later packets of the flow. In the second case, later packets arrive through the inbox of this worker,
//! and go behind those in the buffer. In the third case, the new owner pushes later packets into the same inbox. The new
//! owner may also be the worker that reads that inbox. It reads the inbox after it takes a later packet from the ring
//! and before it processes that packet (`worker`), and therefore sees everything that was put into the inbox before.
//!
//! A device with one queue that takes nothing, such as that of a hung virtual machine, therefore delays no move.
//!
//! # Tables of devices
//! A device that dispatches has a table of its own, from buckets to queues. Its [`Reta`] belongs to the port, not to a queue;
//! owners are the workers that poll the queues, and the device's thread moves buckets ([`crate::io::nic`]) instead of a receiving
//! worker.

use core::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, AtomicUsize, Ordering};
use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};

use arrayvec::ArrayVec;
use millrace_flow::classify::BURST;
use millrace_pipeline::{Counters, DropReason};
use millrace_types::{Duration, PortNo, Time};
use millrace_wire::Packet;
use millrace_wire::flow_hash::FlowHash;

use super::links::{FlowHandoff, Links};
use super::policy::SpreadStats;
use crate::counters::Counter;
use crate::io::{BucketTable, Burst};

/// The number of buckets that the flows of a queue are hashed into.
pub const BUCKETS: usize = 1024;
/// Number of bits by which a hash is shifted right to get the number of its bucket.
const BUCKET_SHIFT: u32 = u64::BITS - BUCKETS.trailing_zeros();
/// Maximum number of packets that are parked while buckets move.
const PARKED_MAX: usize = 1024;
/// Time within which buckets must move: enough for an old owner that sleeps or is preempted.
const MOVE_MAX: Duration = Duration::from_millis(20);
/// Time within which buckets must move away from a worker that is kept from its core and has a full ring.
const MOVE_MAX_LONG: Duration = Duration::from_millis(500);
/// The value in place of an owner while the bucket moves.
const MOVING: u16 = u16::MAX;

/// The condition on which a request is given up, and the treatment of packets that cannot be parked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Urgency {
    /// The request is given up before a packet is dropped.
    Normal,
    /// Packets that cannot be parked are dropped, because the old owner's ring would drop them, too.
    Urgent,
}

/// The redirection table of one queue, which the control side and the receiving worker share.
#[derive(Debug)]
pub(crate) struct Reta {
    /// The worker that receives from the queue; from the first one, if the table is the device's.
    worker: usize,
    device: Option<DeviceTable>,
    /// True if packets are hashed. The receiving worker ignores a change to false while it does not own all
    /// buckets.
    is_on: AtomicBool,
    /// The number of the last request; written by the control side.
    requested: AtomicU64,
    /// The number of the last completed request; written by the worker.
    completed: AtomicU64,
    buckets: Box<[Bucket]>,
    moved: Counter,
    aborted: Counter,
    /// True if the last request has [`Urgency::Urgent`].
    is_urgent: AtomicBool,
    /// Number of packets that the ring to each worker refused, by worker; written by the worker that receives.
    refused: Box<[Counter]>,
}

/// The queues of a device with a table of its own.
struct DeviceTable {
    /// The worker of each queue.
    workers: Box<[usize]>,
    /// Number of queues that the device has, as long as one is connected.
    queues: AtomicUsize,
    /// Wakes the thread of the device.
    waker: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

impl core::fmt::Debug for DeviceTable {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("DeviceTable")
            .field("workers", &self.workers)
            .field("queues", &self.queues)
            .finish_non_exhaustive()
    }
}

#[derive(Debug)]
struct Bucket {
    /// The owner that the control side wants; written by the control side.
    wanted: AtomicU16,
    /// The owner; written by the receiving worker.
    owner: AtomicU16,
    /// Number of packets that the bucket received; written by the receiving worker.
    packets: Counter,
}

/// A request that a worker becomes the owner of a bucket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BucketMove {
    pub bucket: u16,
    pub worker: u16,
}

/// The owner of a bucket, and the number of packets that the bucket received.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct BucketState {
    pub(crate) owner: u16,
    pub(crate) packets: u64,
}

impl Reta {
    /// Returns the table of a queue that `worker` receives from. The buckets are spread `evenly` over `workers`, or
    /// all belong to `worker`.
    pub(crate) fn new(worker: usize, workers: usize, evenly: bool) -> Arc<Reta> {
        Arc::new(Reta::at(worker, workers, evenly))
    }

    fn at(worker: usize, workers: usize, evenly: bool) -> Reta {
        let bucket = |number: usize| {
            let owner = if evenly { number % workers.max(1) } else { worker } as u16;
            Bucket {
                wanted: AtomicU16::new(owner),
                owner: AtomicU16::new(owner),
                packets: Counter::default(),
            }
        };
        Reta {
            worker,
            device: None,
            is_on: AtomicBool::new(evenly),
            requested: AtomicU64::new(0),
            completed: AtomicU64::new(0),
            buckets: (0..BUCKETS).map(bucket).collect(),
            moved: Counter::default(),
            aborted: Counter::default(),
            is_urgent: AtomicBool::new(false),
            refused: (0..workers).map(|_| Counter::default()).collect(),
        }
    }

    /// Returns the table of a device that dispatches to queues, which these workers poll.
    pub(crate) fn of_device(workers: &[usize], all: usize) -> Arc<Reta> {
        let first = workers.first().copied().unwrap_or_default();
        let device = DeviceTable {
            workers: workers.into(),
            queues: AtomicUsize::new(workers.len()),
            waker: OnceLock::new(),
        };
        let reta = Reta {
            device: Some(device),
            ..Reta::at(first, all, false)
        };
        reta.switch(true);
        reta.set_queues(workers.len());
        Arc::new(reta)
    }

    /// Returns the worker that receives from the queue; `None` if the table is the device's.
    pub(crate) fn receiver(&self) -> Option<usize> {
        self.device.is_none().then_some(self.worker)
    }

    /// Returns true if a worker may own buckets.
    pub(crate) fn reaches(&self, worker: usize) -> bool {
        self.device.as_ref().is_none_or(|device| {
            let queues = device.queues.load(Ordering::Relaxed);
            device.workers.iter().take(queues).any(|one| *one == worker)
        })
    }

    pub(crate) fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    /// Switches hashing on or off.
    pub(crate) fn switch(&self, on: bool) {
        self.is_on.store(on, Ordering::Relaxed);
    }

    /// Returns true if the last request is completed or given up.
    pub(crate) fn is_idle(&self) -> bool {
        self.completed.load(Ordering::Acquire) == self.requested.load(Ordering::Relaxed)
    }

    /// Requests other owners for some buckets. Only one control thread calls this, and only while [`Self::is_idle`] returns
    /// true.
    pub(crate) fn request(&self, moves: &[BucketMove], urgency: Urgency) {
        self.is_urgent
            .store(urgency == Urgency::Urgent, Ordering::Relaxed);
        for bucket in &self.buckets {
            bucket
                .wanted
                .store(bucket.owner.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        for BucketMove { bucket, worker } in moves {
            debug_assert!(usize::from(*worker) < self.refused.len(), "no worker {worker}");
            let bucket = self.buckets.get(usize::from(*bucket));
            debug_assert!(bucket.is_some(), "buckets have numbers below {BUCKETS}");
            if let Some(bucket) = bucket {
                bucket.wanted.store(*worker, Ordering::Relaxed);
            }
        }
        self.requested.fetch_add(1, Ordering::Release);
        if let Some(waker) = self.device.as_ref().and_then(|device| device.waker.get()) {
            waker();
        }
    }

    /// Returns the number of packets that the ring to each worker refused, by worker.
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
            buckets[usize::from(state.owner)] += 1;
        }
        SpreadStats {
            worker: self.worker,
            is_on: self.is_on(),
            buckets,
            moved: self.moved.read(),
            aborted: self.aborted.read(),
            has_completed: self.is_idle(),
        }
    }
}

/// The side of a device's thread, for the table of the device.
impl BucketTable for Reta {
    fn set_waker(&self, waker: Box<dyn Fn() + Send + Sync>) {
        if let Some(device) = &self.device {
            let _was_set = device.waker.set(waker);
        }
    }

    fn set_queues(&self, queues: usize) {
        let Some(device) = &self.device else { return };
        let queues = queues.clamp(1, device.workers.len().max(1));
        device.queues.store(queues, Ordering::Relaxed);
        for (number, bucket) in self.buckets.iter().enumerate() {
            let owner = usize::from(bucket.owner.load(Ordering::Relaxed));
            let is_first = device.workers.iter().take(queues).any(|worker| *worker == owner);
            // A table that was just made has all buckets at one worker.
            if let Some(worker) = device.workers.get(number % queues)
                && (!is_first || self.moved.read() == 0)
            {
                bucket.owner.store(*worker as u16, Ordering::Relaxed);
            }
        }
        let requested = self.requested.load(Ordering::Acquire);
        self.completed.store(requested, Ordering::Release);
    }

    fn queues(&self) -> Vec<u8> {
        let owners = self
            .buckets
            .iter()
            .map(|bucket| bucket.owner.load(Ordering::Relaxed));
        owners.map(|owner| self.queue_of(owner.into())).collect()
    }

    fn wanted_queues(&self) -> Option<Vec<u8>> {
        if self.is_idle() {
            return None;
        }
        let wanted = self.buckets.iter().map(|bucket| {
            let wanted = usize::from(bucket.wanted.load(Ordering::Relaxed));
            let owner = usize::from(bucket.owner.load(Ordering::Relaxed));
            self.queue_of(if self.reaches(wanted) { wanted } else { owner })
        });
        Some(wanted.collect())
    }

    fn complete(&self, queues: Option<&[u8]>) {
        let workers = self.device.as_ref().map_or(&[][..], |device| &device.workers);
        for (number, bucket) in self.buckets.iter().enumerate() {
            let owner = bucket.owner.load(Ordering::Relaxed);
            let queue = queues.and_then(|queues| queues.get(number));
            match queue.and_then(|queue| workers.get(usize::from(*queue))) {
                Some(worker) if *worker != usize::from(owner) => {
                    bucket.owner.store(*worker as u16, Ordering::Relaxed);
                    self.moved.add(1);
                }
                None if bucket.wanted.load(Ordering::Relaxed) != owner => self.aborted.add(1),
                _ => {}
            }
        }
        let requested = self.requested.load(Ordering::Acquire);
        self.completed.store(requested, Ordering::Release);
    }

    #[inline]
    fn count(&self, bucket: u16) {
        if let Some(bucket) = self.buckets.get(usize::from(bucket)) {
            bucket.packets.add(1);
        }
    }
}

impl Reta {
    fn queue_of(&self, worker: usize) -> u8 {
        let device = self.device.as_ref();
        let at = device.and_then(|device| device.workers.iter().position(|one| *one == worker));
        at.unwrap_or_default() as u8
    }
}

/// The receiving worker's side of a [`Reta`].
pub(crate) struct Spreader<P> {
    reta: Arc<Reta>,
    hash: FlowHash,
    me: u16,
    /// The owner of each bucket, or [`MOVING`].
    owners: Box<[u16; BUCKETS]>,
    /// Number of buckets that other workers own.
    foreign_buckets: usize,
    /// The number of the request that was begun last.
    seen: u64,
    moving: Vec<Move>,
    /// The time at which the move is given up.
    deadline: Time,
    /// True if packets that cannot be parked are dropped.
    is_urgent: bool,
    /// Number of packets that were handed off to each worker when the move began; `None` for a worker that loses no
    /// bucket.
    marks: Vec<Option<u64>>,
    parked: Vec<(u16, P)>,
    /// Formerly parked packets of this worker's buckets. They arrived before all packets that are still in
    /// the queue.
    ready: VecDeque<P>,
}

#[derive(Clone, Copy)]
struct Move {
    bucket: u16,
    from: u16,
    to: u16,
}

/// The bridge and port of packets that a worker hands off, the rings that they go to, and the counters of drops.
pub(crate) struct HandoffContext<'a, P> {
    pub(crate) bridge: u32,
    pub(crate) port: PortNo,
    pub(crate) links: &'a mut Links<P>,
    pub(crate) counters: &'a Counters,
}

impl<P: Packet> HandoffContext<'_, P> {
    #[inline]
    fn hand_off(&mut self, worker: u16, packet: P, reta: &Reta, refused: &mut Burst<P>) {
        let handoff = FlowHandoff {
            bridge: self.bridge,
            port: self.port,
            packet,
        };
        if let Err(packet) = self.links.hand_off(usize::from(worker), handoff) {
            reta.refused[usize::from(worker)].add(1);
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
    pub(crate) fn new(reta: Arc<Reta>, workers: usize, hash: FlowHash) -> Spreader<P> {
        let me = reta.worker as u16;
        let mut owners = Box::new([me; BUCKETS]);
        debug_assert_eq!(reta.buckets.len(), BUCKETS);
        debug_assert_eq!(reta.refused.len(), workers);
        for (owner, bucket) in owners.iter_mut().zip(&reta.buckets) {
            *owner = bucket.owner.load(Ordering::Relaxed);
        }
        Spreader {
            hash,
            me,
            foreign_buckets: owners.iter().filter(|owner| **owner != me).count(),
            owners,
            seen: reta.requested.load(Ordering::Relaxed),
            moving: Vec::with_capacity(BUCKETS),
            deadline: Time::ZERO,
            is_urgent: false,
            marks: vec![None; workers],
            parked: Vec::with_capacity(PARKED_MAX),
            ready: VecDeque::with_capacity(PARKED_MAX + BURST),
            reta,
        }
    }

    /// Returns true if packets must go through [`Self::spread`].
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.reta.is_on() || self.foreign_buckets != 0 || !self.moving.is_empty()
    }

    /// Moves formerly parked packets of this worker's buckets into the empty `burst`. The queue must not be
    /// polled while this returns packets.
    #[inline]
    pub(crate) fn take_ready(&mut self, burst: &mut Burst<P>) {
        if !self.ready.is_empty() {
            let len = self.ready.len().min(burst.remaining_capacity());
            burst.extend(self.ready.drain(..len));
        }
    }

    /// Begins, completes or gives up a move. The worker calls this before each round; `flushed` is true if packets of
    /// other workers can overtake no packet that this worker sent.
    #[inline]
    pub(crate) fn tick(&mut self, now: Time, flushed: bool, handoff: &mut HandoffContext<'_, P>) {
        if self.moving.is_empty() && self.reta.requested.load(Ordering::Relaxed) == self.seen {
            return;
        }
        self.continue_move(now, flushed, handoff);
    }

    #[cold]
    fn continue_move(&mut self, now: Time, flushed: bool, handoff: &mut HandoffContext<'_, P>) {
        if self.moving.is_empty() {
            // Formerly parked packets of this worker have not left yet.
            if !self.ready.is_empty() {
                return;
            }
            self.begin(now, handoff.links);
        }
        let is_quiet = |(worker, mark): (usize, &Option<u64>)| match mark {
            Some(_) if worker == usize::from(self.me) => flushed,
            Some(mark) => handoff.links.is_settled(worker, *mark),
            None => true,
        };
        if self.marks.iter().enumerate().all(is_quiet) {
            self.end(true, handoff);
        } else if now >= self.deadline {
            self.end(false, handoff);
        }
    }

    fn begin(&mut self, now: Time, links: &Links<P>) {
        self.seen = self.reta.requested.load(Ordering::Acquire);
        self.is_urgent = self.reta.is_urgent.load(Ordering::Relaxed);
        self.deadline = now + if self.is_urgent { MOVE_MAX_LONG } else { MOVE_MAX };
        self.marks.fill(None);
        for (number, (owner, bucket)) in (0..).zip(self.owners.iter_mut().zip(&self.reta.buckets)) {
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

    /// Ends a move. Buckets get their new owners if `moved`, else they keep the old ones. Then hands the parked packets
    /// to the owners.
    fn end(&mut self, moved: bool, handoff: &mut HandoffContext<'_, P>) {
        for Move { bucket, from, to } in self.moving.drain(..) {
            let (bucket, owner) = (usize::from(bucket), if moved { to } else { from });
            self.owners[bucket] = owner;
            self.reta.buckets[bucket].owner.store(owner, Ordering::Relaxed);
            let count = if moved {
                &self.reta.moved
            } else {
                &self.reta.aborted
            };
            count.add(1);
        }
        self.foreign_buckets = self.owners.iter().filter(|owner| **owner != self.me).count();
        let mut refused = ArrayVec::new();
        for (bucket, packet) in self.parked.drain(..) {
            match self.owners[usize::from(bucket)] {
                owner if owner == self.me => self.ready.push_back(packet),
                owner => handoff.hand_off(owner, packet, &self.reta, &mut refused),
            }
        }
        handoff.links.publish();
        P::discard(&mut refused);
        self.reta.completed.store(self.seen, Ordering::Release);
    }

    /// Hands off packets of other workers' buckets. Packets of this worker's buckets stay in `burst`, in
    /// order.
    #[inline]
    pub(crate) fn spread(&mut self, burst: &mut Burst<P>, handoff: &mut HandoffContext<'_, P>) {
        let mut buckets = ArrayVec::<u16, BURST>::new();
        let mut all_ours = self.ready.is_empty();
        for packet in burst.iter() {
            let bucket = (self.hash.of(packet.head()) >> BUCKET_SHIFT) as u16;
            all_ours &= self.owners[usize::from(bucket)] == self.me;
            self.reta.buckets[usize::from(bucket)].packets.add(1);
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
                    handoff.refuse(packet, &mut refused);
                    continue;
                }
                self.end(false, handoff);
                owner = self.owners[usize::from(bucket)];
            }
            if owner != self.me {
                handoff.hand_off(owner, packet, &self.reta, &mut refused);
            } else if self.ready.is_empty() {
                ours.push(packet);
            } else {
                // Packets in `ready` arrived before this one.
                self.ready.push_back(packet);
            }
        }
        handoff.links.publish();
        P::discard(&mut refused);
        *burst = ours;
    }
}
