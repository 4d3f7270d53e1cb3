//! The packets that a process was given, in a list that only the switch can write.
//!
//! Packets are kept in the bursts in which they arrived, because they mostly leave in the same bursts. Moving
//! a burst copies a few cache lines, while moving packets one by one costs about a nanosecond each.

use std::collections::VecDeque;

use millrace_datapath::io::Burst;
use millrace_flow::classify::BURST;
use millrace_nf::shm::BurstKind;

use crate::hop::IN_FLIGHT_MAX;

/// Limit of the number of bursts. Two adjacent bursts hold more than [`BURST`] packets together, because they would have been
/// merged otherwise; the first burst may be partial, and one may have been put back before it.
const BURSTS: usize = 2 * IN_FLIGHT_MAX / BURST + 3;

/// A queue of packets with the kinds of their bursts.
pub(crate) struct InFlight<P> {
    bursts: VecDeque<Burst<P>>,
    /// The kinds of the packets, run-length encoded.
    runs: VecDeque<Run>,
    len: usize,
}

/// Packets in a row that have one kind.
struct Run {
    kind: BurstKind,
    len: usize,
}

impl<P> InFlight<P> {
    pub(crate) fn new() -> InFlight<P> {
        InFlight {
            bursts: VecDeque::with_capacity(BURSTS),
            runs: VecDeque::with_capacity(IN_FLIGHT_MAX),
            len: 0,
        }
    }

    /// Returns the number of packets.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Returns the kind of the oldest packets.
    #[inline]
    pub(crate) fn first_kind(&self) -> Option<BurstKind> {
        self.runs.front().map(|run| run.kind)
    }

    /// Appends packets. Empties `burst`.
    #[inline]
    pub(crate) fn push(&mut self, kind: BurstKind, burst: &mut Burst<P>) {
        let packets = burst.len();
        if packets == 0 {
            return;
        }
        match self.runs.back_mut() {
            Some(run) if run.kind == kind => run.len += packets,
            // There are at most as many runs as packets, so this does not allocate.
            _ => self.runs.push_back(Run { kind, len: packets }),
        }
        match self.bursts.back_mut() {
            Some(last) if last.remaining_capacity() >= packets => last.extend(burst.drain(..)),
            _ => self.bursts.push_back(burst.take()),
        }
        self.len += packets;
    }

    /// Fills the empty `burst` with the oldest packets of one kind, `packets` at most.
    #[inline]
    pub(crate) fn take(&mut self, packets: usize, burst: &mut Burst<P>) {
        let run = self.runs.front().map_or(0, |run| run.len);
        let packets = packets.min(run).min(BURST);
        while burst.len() < packets {
            let wanted = packets - burst.len();
            match self.bursts.front_mut() {
                None => break,
                Some(front) if front.len() > wanted => burst.extend(front.drain(..wanted)),
                Some(_) => {
                    let Some(mut front) = self.bursts.pop_front() else {
                        break;
                    };
                    match burst.is_empty() {
                        true => *burst = front,
                        false => burst.extend(front.drain(..)),
                    }
                }
            }
        }
        self.len -= burst.len();
        if let Some(run) = self.runs.front_mut() {
            run.len -= burst.len();
            if run.len == 0 {
                self.runs.pop_front();
            }
        }
    }

    /// Puts packets back before all others.
    #[cold]
    pub(crate) fn put_back(&mut self, kind: BurstKind, packets: Burst<P>) {
        match self.runs.front_mut() {
            Some(run) if run.kind == kind => run.len += packets.len(),
            _ if packets.is_empty() => return,
            _ => self.runs.push_front(Run {
                kind,
                len: packets.len(),
            }),
        }
        self.len += packets.len();
        self.bursts.push_front(packets);
    }
}

#[cfg(test)]
mod tests {
    use millrace_nf::Direction;

    use super::*;

    const DIRECTIONS: [Direction; 2] = [Direction::Forward, Direction::Backward];

    #[test]
    fn packets_leave_in_order_and_a_burst_has_one_direction() {
        let (mut held, mut next, mut taken) = (InFlight::new(), 0_usize, 0_usize);
        let direction_of = |number: usize| BurstKind::from(DIRECTIONS[number / 97 % 2]);
        let mut random = 1_usize;
        for _ in 0..10_000 {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let (some, more) = (random >> 40 & 63, random >> 50 & 63);
            let mut burst = Burst::new();
            while burst.len() <= some
                && held.len() + burst.len() < IN_FLIGHT_MAX
                && direction_of(next + burst.len()) == direction_of(next)
            {
                burst.push(next + burst.len());
            }
            let direction = direction_of(next);
            next += burst.len();
            held.push(direction, &mut burst);
            assert!(burst.is_empty());
            let Some(&Run {
                kind: direction,
                len: run,
            }) = held.runs.front()
            else {
                continue;
            };
            held.take(more + 1, &mut burst);
            assert_eq!(burst.len(), run.min(more + 1));
            if random >> 60 == 0 {
                let rest: Burst<usize> = burst.drain(burst.len() / 2..).collect();
                held.put_back(direction, rest);
            }
            for number in &burst {
                assert_eq!((*number, direction_of(taken)), (taken, direction));
                taken += 1;
            }
            assert_eq!(held.len(), next - taken);
            assert!(held.bursts.len() <= BURSTS, "{}", held.bursts.len());
        }
        assert!(taken > 100_000);
    }
}
