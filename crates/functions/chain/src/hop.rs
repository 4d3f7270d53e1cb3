//! A hop in a lane: its functions, and the policy while one of them is down.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

use arrayvec::ArrayVec;
use millrace_datapath::io::Burst;
use millrace_flow::classify::BURST;
use millrace_nf::shm::BurstKind;
use millrace_nf::{
    Buffer, Context, Direction, Effects, Function, SharedValue, ShunnedFlow, Spread, Verdict, reason_of,
};
use millrace_types::{PortNo, Time};

use crate::counters::InstanceCounters;
use crate::plan::OnFailure;
use crate::shunned::ShunnedFlows;

/// Sampling interval of time measurements, in bursts.
const SAMPLE: u32 = 64;

/// Maximum number of a lane's packets in all processes together. Each process has room for all of them, so packets from one
/// process always find room in the next, in either direction. No packet is lost between hops, and no deadlock is possible.
pub(crate) const IN_FLIGHT_MAX: usize = 1024;

/// A function in another process. It holds the packets that it was given until they are taken back.
pub(crate) trait Remote<P>: Send {
    /// Gives packets to the process, in order. Packets that do not fit stay in `burst`. `load` is the fill level of the chain's
    /// entry.
    fn give(&mut self, kind: BurstKind, load: u8, burst: &mut Burst<P>);
    /// Returns whether [`give`](Remote::give) reads the bytes of packets.
    fn copies(&self) -> bool;
    /// Prefetches for about `packets` packets that will be given or shown next.
    fn expect(&self, packets: usize);
    /// Prefetches for a call of [`take`](Remote::take) or [`answered`](Remote::answered).
    fn expect_done(&self);
    /// Returns the kind of the oldest packets that the process has answered, if there are any.
    fn ready(&mut self) -> Option<BurstKind>;
    /// Fills the empty `burst` with the oldest answered packets of one kind, and `verdicts` with a verdict for each.
    fn take(&mut self, burst: &mut Burst<P>, verdicts: &mut ArrayVec<Verdict, BURST>) -> Option<BurstKind>;
    /// Fills the empty `burst` with the oldest packets of one kind that a dead process will not answer.
    fn reclaim(&mut self, burst: &mut Burst<P>) -> Option<BurstKind>;
    /// Appends packets to those that a dead process holds, so that they are reclaimed in order. Empties `burst`.
    fn hold(&mut self, kind: BurstKind, burst: &mut Burst<P>);
    /// Returns whether the process has written effects or messages.
    fn has_effects(&self) -> bool;
    /// Fills `effects` with the effects on the last `packets` packets that were taken back, and forwards
    /// messages to the control side. If `packets` is 0, it only forwards messages.
    fn collect(&mut self, packets: usize, effects: &mut Effects);
    /// Reports to the function that a flow is no longer shunned.
    fn shun_ended(&mut self, flow: &ShunnedFlow);
    /// Shows the packets that have a bit in `which` to the process, in order. The packets must stay in memory until
    /// [`forget`](Remote::forget). Returns the bits of those that were shown.
    fn show(&mut self, kind: BurstKind, load: u8, packets: &[P], which: u64) -> u64;
    /// Returns the number of shown packets, from the oldest on, that the process has answered.
    fn answered(&mut self) -> usize;
    /// Fills `verdicts` with the verdicts on the oldest `most` shown packets, which the process has answered,
    /// or leaves it empty if all are *next*. Returns the number of packets, which is smaller than `most` if
    /// an answer violates the protocol.
    fn verdicts(&mut self, most: usize, verdicts: &mut ArrayVec<Verdict, BURST>) -> usize;
    /// Forgets the oldest shown packets.
    fn forget(&mut self, packets: usize);
    /// Returns whether a process that is down can no longer access packets.
    fn is_gone(&self) -> bool;
    /// Returns the number of packets that were given and not taken, or shown and not forgotten.
    fn in_flight(&self) -> usize;
    /// Returns whether the process works: it has not ended, violated the protocol, or missed its heartbeats. An ended
    /// process counts as alive until its answers are taken.
    fn is_alive(&mut self, now: Time) -> bool;
    /// Returns whether the process has sent a heartbeat since it was started.
    fn has_begun(&self) -> bool;
    /// Returns two source numbers: that of the value in use, and that of the last source that could not be
    /// compiled.
    fn value(&self) -> [u64; 2];
    /// Returns the reason why the process does not work.
    fn failure(&self) -> String;
}

/// A function in the worker, or in another process.
pub(crate) enum Runner<P> {
    Inline(Box<dyn Function>),
    Remote(Box<dyn Remote<P>>),
}

/// One function of a hop in one lane.
pub(crate) struct Instance<P> {
    pub(crate) runner: Runner<P>,
    pub(crate) counters: Arc<InstanceCounters>,
    /// The function is down. The lane's copy of the state in `counters`.
    pub(crate) down: bool,
    /// The function runs in a process that has not sent a heartbeat yet.
    is_starting: bool,
    /// The number of bursts, for sampling.
    bursts: u32,
    /// The number of packets given to a process.
    given: u64,
    /// The number of packets taken back from a process.
    taken: u64,
    /// The number of a packet whose latency is being measured, and the time at which it was given.
    awaited: Option<(u64, Instant)>,
    /// The flows that the function shuns; `None` for functions that shun none.
    pub(crate) shunned: Option<Box<ShunnedFlows>>,
    /// Packets of shunned flows that wait for earlier packets of their flows: each with the number of packets that the process
    /// must have returned before it.
    bypassing: VecDeque<(u64, BurstKind, P)>,
}

impl<P> Instance<P> {
    pub(crate) fn new(
        runner: Runner<P>,
        counters: Arc<InstanceCounters>,
        shunned: Option<Box<ShunnedFlows>>,
    ) -> Instance<P> {
        let is_starting = matches!(runner, Runner::Remote(_));
        counters.set_value([0; 2]);
        match is_starting {
            true => counters.set_starting(),
            false => counters.set_up(),
        }
        let bypasses = is_starting && shunned.is_some();
        Instance {
            bypassing: VecDeque::with_capacity(if bypasses { IN_FLIGHT_MAX } else { 0 }),
            runner,
            counters,
            down: false,
            is_starting,
            bursts: 0,
            given: 0,
            taken: 0,
            awaited: None,
            shunned,
        }
    }

    /// Returns the instance in state down.
    pub(crate) fn in_state_down(mut self, reason: String) -> Instance<P> {
        self.fail(reason);
        self
    }

    /// Sets the state to up once the process has sent a heartbeat.
    pub(crate) fn note_begin(&mut self) {
        if self.is_starting
            && !self.down
            && let Runner::Remote(remote) = &self.runner
            && remote.has_begun()
        {
            self.is_starting = false;
            self.counters.set_up();
        }
    }

    /// Sets the state to down.
    #[cold]
    pub(crate) fn fail(&mut self, reason: String) {
        self.down = true;
        self.counters.set_down(reason);
    }

    pub(crate) fn in_flight(&self) -> usize {
        match &self.runner {
            Runner::Inline(_) => 0,
            Runner::Remote(remote) => remote.in_flight() + self.bypassing.len(),
        }
    }

    /// Returns whether the function shuns any flow now.
    #[inline]
    pub(crate) fn shuns_now(&self) -> bool {
        self.shunned.as_ref().is_some_and(|shunned| shunned.len() != 0)
    }

    /// Returns whether the function's process has written effects or messages.
    #[inline]
    pub(crate) fn has_effects(&self) -> bool {
        match &self.runner {
            Runner::Inline(_) => false,
            Runner::Remote(remote) => remote.has_effects(),
        }
    }

    /// Returns the number of packets that the process was given.
    #[inline]
    pub(crate) fn given(&self) -> u64 {
        self.given
    }

    /// Returns whether a packet of a shunned flow may bypass the process now. If not, [`bypass`](Instance::bypass)
    /// keeps it.
    #[inline]
    pub(crate) fn may_pass(&self, since: u64) -> bool {
        self.bypassing.is_empty() && self.taken >= since
    }

    /// Keeps a packet of a shunned flow until the process has returned `since` packets, so that it does not overtake earlier
    /// packets of its flow.
    pub(crate) fn bypass(&mut self, since: u64, kind: BurstKind, packet: P) {
        self.bypassing.push_back((since, kind, packet));
    }

    /// Fills the empty `burst` with the oldest packets of one kind that may bypass the process now.
    #[inline]
    pub(crate) fn take_bypassing(&mut self, burst: &mut Burst<P>) -> Option<BurstKind> {
        let (_, kind, _) = self.bypassing.front()?;
        let kind = *kind;
        while !burst.is_full()
            && let Some((since, next, _)) = self.bypassing.front()
            && (*since <= self.taken && *next == kind)
            && let Some((_, _, packet)) = self.bypassing.pop_front()
        {
            burst.push(packet);
        }
        (!burst.is_empty()).then_some(kind)
    }

    /// Appends the packets that bypass a process that is down to the packets of the process, so that they are
    /// reclaimed in order.
    #[cold]
    pub(crate) fn hold_bypassing(&mut self) {
        let Runner::Remote(remote) = &mut self.runner else {
            return;
        };
        for (_, kind, packet) in self.bypassing.drain(..) {
            let mut burst = Burst::new();
            burst.push(packet);
            remote.hold(kind, &mut burst);
        }
    }

    /// Counts packets that a process was given.
    #[inline]
    pub(crate) fn gave(&mut self, packets: usize) {
        self.bursts = self.bursts.wrapping_add(1);
        if self.bursts.is_multiple_of(SAMPLE) && self.awaited.is_none() {
            self.awaited = Some((self.given, Instant::now()));
        }
        self.given += packets as u64;
    }

    /// Counts packets that a process has returned.
    #[inline]
    pub(crate) fn took(&mut self, packets: usize) {
        self.taken += packets as u64;
        self.saw(0);
    }

    /// Ends the latency measurement if the awaited packet has been answered. The process has answered `packets` packets that are
    /// not taken back yet.
    #[inline]
    pub(crate) fn saw(&mut self, packets: usize) {
        if let Some((number, since)) = self.awaited
            && self.taken + packets as u64 > number
        {
            self.awaited = None;
            self.counters.latency_samples.add(1);
            self.counters.latency_nanos.add(since.elapsed().as_nanos() as u64);
        }
    }

    /// Passes packets to an inline function. Returns false if the function is down or fails.
    #[inline]
    pub(crate) fn process(
        &mut self,
        context: &Context,
        packets: &mut [&mut dyn Buffer],
        verdicts: &mut [Verdict],
        effects: &mut Effects,
    ) -> bool {
        let Runner::Inline(function) = &mut self.runner else {
            return false;
        };
        if self.down {
            return false;
        }
        self.bursts = self.bursts.wrapping_add(1);
        let started = self.bursts.is_multiple_of(SAMPLE).then(Instant::now);
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            function.process_with_effects(context, packets, verdicts, effects);
        }));
        if let Some(started) = started {
            let nanos = started.elapsed().as_nanos() as u64;
            self.counters.sampled_nanos.add(nanos);
            self.counters.sampled_packets.add(packets.len() as u64);
            self.counters.latency_samples.add(1);
            self.counters.latency_nanos.add(nanos);
        }
        match outcome {
            Ok(()) => true,
            Err(payload) => {
                // The state of a function that panicked is undefined, so it is not called again.
                self.fail(reason_of(&*payload));
                false
            }
        }
    }

    /// Gives an inline function another shared value. Returns its old value.
    #[cold]
    pub(crate) fn share(&mut self, value: SharedValue) -> Option<SharedValue> {
        let Runner::Inline(function) = &mut self.runner else {
            return None;
        };
        if self.down {
            return None;
        }
        match catch_unwind(AssertUnwindSafe(|| function.share(value))) {
            Ok(old) => {
                self.shunned.iter_mut().for_each(|shunned| shunned.renew());
                old
            }
            Err(payload) => {
                self.fail(reason_of(&*payload));
                None
            }
        }
    }

    /// Passes the counters of flows that are no longer shunned to the function. Empties `ended`.
    #[cold]
    pub(crate) fn end_shuns(&mut self, ended: &mut ArrayVec<ShunnedFlow, BURST>) {
        let ended = ended.drain(..);
        let function = match &mut self.runner {
            Runner::Inline(function) => function,
            Runner::Remote(remote) => return ended.into_iter().for_each(|flow| remote.shun_ended(&flow)),
        };
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            ended.for_each(|flow| function.shun_ended(&flow));
        }));
        if let Err(payload) = outcome {
            self.fail(reason_of(&*payload));
        }
    }

    /// Forgets shunned flows that were idle for too long.
    pub(crate) fn age_shunned(&mut self, now: Time) {
        let Some(shunned) = &mut self.shunned else { return };
        if shunned.len() == 0 {
            self.counters.shunned_flows.set(0);
            return;
        }
        let runner = &mut self.runner;
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            shunned.sweep(now, |flow| match runner {
                Runner::Inline(function) => function.shun_ended(&flow),
                Runner::Remote(remote) => remote.shun_ended(&flow),
            });
        }));
        self.counters.shunned_flows.set(shunned.len() as u64);
        if let Err(payload) = outcome {
            self.fail(reason_of(&*payload));
        }
    }

    /// Counts verdicts. Returns whether all are *next*.
    #[inline]
    pub(crate) fn count(&self, verdicts: &[Verdict]) -> bool {
        let next = verdicts
            .iter()
            .filter(|verdict| **verdict == Verdict::Next)
            .count();
        self.counters.packets.add(verdicts.len() as u64);
        self.counters.next.add(next as u64);
        if next == verdicts.len() {
            return true;
        }
        for verdict in verdicts {
            match verdict {
                Verdict::Next => {}
                Verdict::Skip(_) => self.counters.skipped.add(1),
                Verdict::Drop => self.counters.dropped.add(1),
                Verdict::ToPort(_) => self.counters.to_port.add(1),
            }
        }
        false
    }
}

/// The settings of a hop that can change while its functions keep running.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct HopPolicy {
    pub(crate) on_failure: OnFailure,
    /// The `in_port` with which packets go to the flow tables after the hop; `None` if they go to the next
    /// hop.
    pub(crate) steer: Option<PortNo>,
    /// The packets that reach the same instance.
    pub(crate) spread: Spread,
}

/// A hop in one lane.
pub(crate) struct Hop<P> {
    pub(crate) id: u32,
    pub(crate) policy: HopPolicy,
    /// The index of the group of hops that process packets in parallel with this hop.
    pub(crate) group: Option<usize>,
    /// The functions; none if the hop is drained.
    pub(crate) instances: Vec<Instance<P>>,
}

impl<P> Hop<P> {
    /// Returns the number of packets that the hop's processes have; 0 for a hop of a group, because the group counts them.
    pub(crate) fn in_flight(&self) -> usize {
        if self.group.is_some() {
            return 0;
        }
        self.instances.iter().map(Instance::in_flight).sum()
    }

    /// Prefetches the memory that a burst for the hop's processes will be written to.
    #[inline]
    pub(crate) fn expect(&self) {
        let packets = BURST / self.instances.len().max(1);
        for instance in &self.instances {
            if let Runner::Remote(remote) = &instance.runner {
                remote.expect(packets);
            }
        }
    }

    /// Returns whether the lane reads the bytes of packets at this hop.
    #[inline]
    pub(crate) fn reads(&self) -> bool {
        match self.instances.as_slice() {
            [
                Instance {
                    runner: Runner::Remote(remote),
                    ..
                },
            ] => remote.copies(),
            _ => true,
        }
    }

    /// Returns whether the hop's functions run in processes.
    #[inline]
    pub(crate) fn is_remote(&self) -> bool {
        matches!(
            self.instances.first().map(|instance| &instance.runner),
            Some(Runner::Remote(_))
        )
    }
}

/// Converts the position of a hop in a direction into its index in the list, or the index into the position.
#[inline]
pub(crate) fn index(direction: Direction, position: usize, len: usize) -> usize {
    match direction {
        Direction::Forward => position,
        Direction::Backward => len.wrapping_sub(1).wrapping_sub(position),
    }
}
