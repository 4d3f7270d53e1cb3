//! What a process was given, until it is done with it: the switch's own list, which nobody else can write.
//!
//! Packets come in bursts and mostly go as they came, so they are kept so: to move a burst is a copy of a few cache lines,
//! where one packet after the other costs as many nanoseconds as there are packets.

use std::collections::VecDeque;

use millrace_datapath::io::Burst;
use millrace_flow::classify::BURST;
use millrace_nf::Direction;

use crate::hop::IN_FLIGHT_MAX;

/// Bursts that so many packets are at most: of two side by side, one could not have taken the other in. And one each at
/// the front that is left of one, and that was put back.
const BURSTS: usize = 2 * IN_FLIGHT_MAX / BURST + 3;

/// Packets in order, and which way they go.
pub(crate) struct Held<P> {
    bursts: VecDeque<Burst<P>>,
    /// For how many in a row the same way.
    ways: VecDeque<(Direction, usize)>,
    len: usize,
}

impl<P> Held<P> {
    pub(crate) fn new() -> Held<P> {
        Held {
            bursts: VecDeque::with_capacity(BURSTS),
            ways: VecDeque::with_capacity(IN_FLIGHT_MAX),
            len: 0,
        }
    }

    /// Packets.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Which way the oldest go, and how many of them in a row.
    #[inline]
    pub(crate) fn way(&self) -> Option<(Direction, usize)> {
        self.ways.front().copied()
    }

    /// Takes packets in, behind all others. Empties `burst`.
    #[inline]
    pub(crate) fn push(&mut self, direction: Direction, burst: &mut Burst<P>) {
        let packets = burst.len();
        if packets == 0 {
            return;
        }
        match self.ways.back_mut() {
            Some((way, run)) if *way == direction => *run += packets,
            // No more of these than of packets: there is room.
            _ => self.ways.push_back((direction, packets)),
        }
        match self.bursts.back_mut() {
            Some(last) if last.remaining_capacity() >= packets => last.extend(burst.drain(..)),
            _ => self.bursts.push_back(burst.take()),
        }
        self.len += packets;
    }

    /// Fills `burst`, which is empty, with so many of the oldest packets, or as many as go the same way.
    #[inline]
    pub(crate) fn take(&mut self, packets: usize, burst: &mut Burst<P>) {
        let run = self.ways.front().map_or(0, |(_, run)| *run);
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
        if let Some((_, run)) = self.ways.front_mut() {
            *run -= burst.len();
            if *run == 0 {
                self.ways.pop_front();
            }
        }
    }

    /// Takes packets in again, before all others.
    #[cold]
    pub(crate) fn put_back(&mut self, direction: Direction, packets: Burst<P>) {
        match self.ways.front_mut() {
            Some((way, run)) if *way == direction => *run += packets.len(),
            _ if packets.is_empty() => return,
            _ => self.ways.push_front((direction, packets.len())),
        }
        self.len += packets.len();
        self.bursts.push_front(packets);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WAYS: [Direction; 2] = [Direction::Forward, Direction::Backward];

    #[test]
    fn packets_go_in_the_order_in_which_they_came_and_ways_do_not_mix() {
        let (mut held, mut next, mut taken) = (Held::new(), 0_usize, 0_usize);
        let way = |number: usize| WAYS[number / 97 % 2];
        let mut random = 1_usize;
        for _ in 0..10_000 {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let (some, more) = (random >> 40 & 63, random >> 50 & 63);
            let mut burst = Burst::new();
            while burst.len() <= some
                && held.len() + burst.len() < IN_FLIGHT_MAX
                && way(next + burst.len()) == way(next)
            {
                burst.push(next + burst.len());
            }
            let direction = way(next);
            next += burst.len();
            held.push(direction, &mut burst);
            assert!(burst.is_empty());
            let Some((direction, run)) = held.way() else {
                continue;
            };
            held.take(more + 1, &mut burst);
            assert_eq!(burst.len(), run.min(more + 1));
            if random >> 60 == 0 {
                let rest: Burst<usize> = burst.drain(burst.len() / 2..).collect();
                held.put_back(direction, rest);
            }
            for number in &burst {
                assert_eq!((*number, way(taken)), (taken, direction));
                taken += 1;
            }
            assert_eq!(held.len(), next - taken);
            assert!(held.bursts.len() <= BURSTS, "{}", held.bursts.len());
        }
        assert!(taken > 100_000);
    }
}
