//! A hop as a lane runs it: its functions, and what happens when one of them is down.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

use arrayvec::ArrayVec;
use millrace_datapath::io::Burst;
use millrace_flow::classify::BURST;
use millrace_nf::{Buffer, Context, Direction, Function, Verdict, reason_of};
use millrace_types::{PortNo, Time};

use crate::counters::InstanceCounters;
use crate::plan::OnFailure;

/// One burst in so many is measured.
const SAMPLE: u32 = 64;

/// Packets of a lane that are with processes at most. Each process has room for all of them, so that what comes out of
/// one always finds room in the next, whichever way it goes: nothing is lost between hops, and nothing waits in a circle.
pub(crate) const IN_FLIGHT_MAX: usize = 1024;

/// A function in another process. It owns what it was given until it is taken back.
pub(crate) trait Remote<P>: Send {
    /// Hands packets over, in order; what does not fit stays in `burst`.
    fn give(&mut self, direction: Direction, burst: &mut Burst<P>);
    /// Whether the bytes of packets are read when they are given.
    fn copies(&self) -> bool;
    /// About so many packets are about to be given, or shown.
    fn expect(&self, packets: usize);
    /// The process is about to be asked how far it is, by [`take`](Remote::take) or [`answered`](Remote::answered).
    fn expect_done(&self);
    /// Which way the oldest packets go that are done, if any are.
    fn ready(&mut self) -> Option<Direction>;
    /// Fills `burst`, which is empty, with the oldest packets that are done and go one way, and a verdict for each.
    fn take(&mut self, burst: &mut Burst<P>, verdicts: &mut ArrayVec<Verdict, BURST>) -> Option<Direction>;
    /// The same for packets that nothing will be heard of any more, as the process is gone.
    fn reclaim(&mut self, burst: &mut Burst<P>) -> Option<Direction>;
    /// Keeps packets behind those that it still holds, without giving them to anybody: they are reclaimed in order. Empties
    /// `burst`.
    fn hold(&mut self, direction: Direction, burst: &mut Burst<P>);
    /// Shows those of these packets that have a bit in `which` to the process, in order, and leaves them where they are:
    /// they must stay there until [`forget`](Remote::forget). Returns which it could.
    fn show(&mut self, direction: Direction, packets: &[P], which: u64) -> u64;
    /// How many of the packets that it was shown the process has answered: the oldest.
    fn answered(&mut self) -> usize;
    /// What is to become of the oldest packets that it was shown, of `most` that are answered; nothing, if all are to go
    /// on. Returns of how many: fewer, if it lies about the next one.
    fn opinions(&mut self, most: usize, verdicts: &mut ArrayVec<Verdict, BURST>) -> usize;
    /// So many packets that it was shown, the oldest, are its business no more.
    fn forget(&mut self, packets: usize);
    /// Whether a process that does not work has lost its hold on packets.
    fn is_gone(&self) -> bool;
    /// Packets that were given and not taken, or shown and not forgotten.
    fn in_flight(&self) -> usize;
    /// Whether the process works, as far as is known at this time.
    fn is_alive(&mut self, now: Time) -> bool;
    /// Whether the process has shown life since it was started.
    fn has_begun(&self) -> bool;
    /// Why it does not work.
    fn failure(&self) -> String;
}

/// Where a function runs.
pub(crate) enum Runner<P> {
    Inline(Box<dyn Function>),
    Remote(Box<dyn Remote<P>>),
}

/// One function of a hop in one lane.
pub(crate) struct Instance<P> {
    pub(crate) runner: Runner<P>,
    pub(crate) counters: Arc<InstanceCounters>,
    /// As in `counters`, for this thread.
    pub(crate) down: bool,
    /// The function runs in a process that has not shown life yet.
    is_starting: bool,
    bursts: u32,
    /// Packets that a process was given and has given back, and the number and time of one that is awaited.
    given: u64,
    taken: u64,
    awaited: Option<(u64, Instant)>,
}

impl<P> Instance<P> {
    pub(crate) fn new(runner: Runner<P>, counters: Arc<InstanceCounters>) -> Instance<P> {
        let is_starting = matches!(runner, Runner::Remote(_));
        match is_starting {
            true => counters.set_starting(),
            false => counters.set_up(),
        }
        Instance {
            runner,
            counters,
            down: false,
            is_starting,
            bursts: 0,
            given: 0,
            taken: 0,
            awaited: None,
        }
    }

    /// Notes that a process that was started has shown life.
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

    #[cold]
    pub(crate) fn fail(&mut self, reason: String) {
        self.down = true;
        self.counters.set_down(reason);
    }

    pub(crate) fn in_flight(&self) -> usize {
        match &self.runner {
            Runner::Inline(_) => 0,
            Runner::Remote(remote) => remote.in_flight(),
        }
    }

    /// A process was given packets.
    #[inline]
    pub(crate) fn gave(&mut self, packets: usize) {
        self.bursts = self.bursts.wrapping_add(1);
        if self.bursts.is_multiple_of(SAMPLE) && self.awaited.is_none() {
            self.awaited = Some((self.given, Instant::now()));
        }
        self.given += packets as u64;
    }

    /// A process gave packets back.
    #[inline]
    pub(crate) fn took(&mut self, packets: usize) {
        self.taken += packets as u64;
        self.saw(0);
    }

    /// A process is done with so many packets that are not taken back yet.
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

    /// Has an inline function look at packets. Returns false if it is down, or went down over them.
    #[inline]
    pub(crate) fn process(
        &mut self,
        context: &Context,
        packets: &mut [&mut dyn Buffer],
        verdicts: &mut [Verdict],
    ) -> bool {
        let Runner::Inline(function) = &mut self.runner else {
            return false;
        };
        if self.down {
            return false;
        }
        self.bursts = self.bursts.wrapping_add(1);
        let started = self.bursts.is_multiple_of(SAMPLE).then(Instant::now);
        let outcome = catch_unwind(AssertUnwindSafe(|| function.process(context, packets, verdicts)));
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
                // What it left behind may be anything; it is not called again.
                self.fail(reason_of(&*payload));
                false
            }
        }
    }

    /// Counts what became of packets. Returns whether all go on to the next hop.
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

/// What may be changed while the functions stay.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Manner {
    pub(crate) on_failure: OnFailure,
    /// The port at which its packets come in, if the tables are to say where they go.
    pub(crate) steer: Option<PortNo>,
}

/// A hop in one lane.
pub(crate) struct Hop<P> {
    pub(crate) id: u32,
    pub(crate) manner: Manner,
    /// The group of hops that it is shown packets together with, if there is one.
    pub(crate) group: Option<usize>,
    /// At least one.
    pub(crate) instances: Vec<Instance<P>>,
}

impl<P> Hop<P> {
    /// Packets that are with its processes. Of a group's hops the group knows them.
    pub(crate) fn in_flight(&self) -> usize {
        if self.group.is_some() {
            return 0;
        }
        self.instances.iter().map(Instance::in_flight).sum()
    }

    /// A burst is about to come: what its processes read and this thread writes is fetched meanwhile.
    #[inline]
    pub(crate) fn expect(&self) {
        let packets = BURST / self.instances.len().max(1);
        for instance in &self.instances {
            if let Runner::Remote(remote) = &instance.runner {
                remote.expect(packets);
            }
        }
    }

    /// Whether this thread reads the bytes of packets that come here.
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

    /// Whether its functions are in processes.
    #[inline]
    pub(crate) fn is_remote(&self) -> bool {
        matches!(
            self.instances.first().map(|instance| &instance.runner),
            Some(Runner::Remote(_))
        )
    }
}
