//! The packets that a group of parallel hops holds until all of them have answered; [`parallel`](crate::parallel)
//! shows packets to the hops.

use std::collections::VecDeque;

use arrayvec::ArrayVec;
use millrace_datapath::io::Burst;
use millrace_flow::classify::BURST;
use millrace_nf::shm::BurstKind;
use millrace_nf::{Direction, Verdict};
use millrace_types::Time;
use millrace_wire::Packet;

use crate::hop::{Hop, IN_FLIGHT_MAX, Runner, index};

/// Maximum number of hops in a group, which has a bit for each hop. A longer sequence is split into several groups.
pub(crate) const MEMBERS_MAX: usize = 8;

/// A bit for each hop of a group, in the order of the chain.
pub(crate) type Members = u8;
const _: () = assert!(MEMBERS_MAX <= Members::BITS as usize);

/// The state of a group's hops when a packet arrived.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Run {
    pub(crate) kind: BurstKind,
    /// The position of the first hop that processes the packet.
    pub(crate) position: usize,
    /// The hops to which the packet was shown.
    pub(crate) asked: Members,
    /// The hops that were down.
    pub(crate) failed: Members,
    /// The hops to which the packet could not be shown. The packet is dropped when it reaches one of them.
    pub(crate) refused: Members,
}

/// The packets of one instance of each hop, the oldest first.
pub(crate) struct Queue<P> {
    pub(crate) held: VecDeque<P>,
    /// The states of the hops for the packets, run-length encoded.
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
    pub(crate) fn push(&mut self, run: Run, packets: usize) {
        match self.runs.back_mut() {
            Some((last, len)) if *last == run => *len += packets,
            // There are at most as many runs as packets, so this does not allocate.
            _ => self.runs.push_back((run, packets)),
        }
    }

    #[inline]
    pub(crate) fn take(&mut self, packets: usize, burst: &mut Burst<P>) {
        burst.extend(self.held.drain(..packets.min(self.held.len())));
        if let Some((_, len)) = self.runs.front_mut() {
            *len = len.saturating_sub(packets);
            if *len == 0 {
                self.runs.pop_front();
            }
        }
    }
}

/// The oldest packets of a queue, which all hops have answered or never will.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CompletedPackets {
    pub(crate) run: Run,
    pub(crate) len: usize,
    /// The hops whose process ended without an answer.
    pub(crate) gone: Members,
}

impl CompletedPackets {
    /// Returns the kind of the packets.
    pub(crate) fn kind(&self) -> BurstKind {
        self.run.kind
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }
}

/// A group of adjacent hops, of class `ring` or `isolated`, whose functions only read.
pub(crate) struct Group<P> {
    /// The index of the first hop.
    pub(crate) first: usize,
    /// The number of hops.
    pub(crate) len: usize,
    /// One queue for each instance.
    pub(crate) queues: Vec<Queue<P>>,
    /// The verdicts of each hop on the packets of the last [`CompletedPackets`]; empty if all are *next*.
    pub(crate) verdicts: Vec<ArrayVec<Verdict, BURST>>,
}

impl<P> Group<P> {
    /// Returns a group of `len` hops, [`MEMBERS_MAX`] at most, with `instances` instances each.
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

    /// Returns the indices of the hops.
    pub(crate) fn hops(&self) -> core::ops::Range<usize> {
        self.first..self.first + self.len
    }

    pub(crate) fn instances(&self) -> usize {
        self.queues.len()
    }

    /// Returns the number of packets that the group holds.
    pub(crate) fn in_flight(&self) -> usize {
        self.queues.iter().map(|queue| queue.held.len()).sum()
    }

    /// Returns the last position of the group in a direction, in a chain of `hops` hops.
    pub(crate) fn last_position(&self, direction: Direction, hops: usize) -> usize {
        match direction {
            Direction::Forward => self.first + self.len - 1,
            Direction::Backward => index(direction, self.first, hops),
        }
    }
}

impl<P: Packet> Group<P> {
    /// Returns the oldest packets of a queue if they can continue.
    #[inline]
    pub(crate) fn answered(
        &mut self,
        number: usize,
        hops: &mut [Hop<P>],
        now: Time,
    ) -> Option<CompletedPackets> {
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
        let mut answered = CompletedPackets { run, len, gone };
        let (asked, members) = (run.asked & !gone, self.hops());
        for (member, (hop, verdicts)) in hops[members].iter_mut().zip(&mut self.verdicts).enumerate() {
            verdicts.clear();
            if asked & 1 << member != 0
                && let Runner::Remote(remote) = &mut hop.instances[number].runner
            {
                // The number shrinks if an answer violates the protocol. Packets before it still continue.
                answered.len = remote.verdicts(answered.len, verdicts);
            }
        }
        (answered.len != 0).then_some(answered)
    }
}
