//! Packets that wait for the MAC address of a neighbour: three for each, of a bounded number of neighbours.
//!
//! Three are what Linux long kept and what a connection's first packets need; more would serve floods only. When all
//! places are taken, the neighbour that waited longest goes: one that exists answers within milliseconds.

use arrayvec::ArrayVec;
use millrace_types::{Duration, Time};

use crate::forward::Waiting;
use crate::glean::Glean;

/// The greatest number of packets that wait for one neighbour.
const PACKETS_MAX: usize = 3;
/// The greatest number of neighbours that packets wait for, in one worker and bridge.
const NEIGHBOURS_MAX: usize = 256;
/// The time after which the sender is told "host unreachable": three requests, one each second (RFC 4861, section 10).
const PATIENCE: Duration = Duration::from_secs(3);

/// The packets that wait for one neighbour, in order.
pub(crate) struct Queue<P> {
    glean: Glean,
    since: Time,
    pub(crate) packets: ArrayVec<(Waiting, P), PACKETS_MAX>,
}

impl<P> Queue<P> {
    /// Returns the first packet's origin and destination.
    pub(crate) fn first(&self) -> Option<&Waiting> {
        self.packets.first().map(|(waiting, _)| waiting)
    }

    pub(crate) fn is_over(&self, now: Time) -> bool {
        now.since(self.since) >= PATIENCE
    }
}

/// The outcome of [`WaitingRoom::add`].
pub(crate) enum Added<P> {
    /// The first packet for its neighbour, which the kernel has to ask for. A queue may have gone to make room.
    First(Option<Queue<P>>),
    /// Others wait for the neighbour already.
    Later,
    /// The packet, because too many wait for the neighbour.
    Full(P),
}

/// All packets that wait.
pub(crate) struct WaitingRoom<P> {
    queues: Vec<Queue<P>>,
}

impl<P> WaitingRoom<P> {
    pub(crate) fn new() -> WaitingRoom<P> {
        WaitingRoom {
            queues: Vec::with_capacity(NEIGHBOURS_MAX),
        }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.queues.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.queues.len()
    }

    pub(crate) fn queue(&self, at: usize) -> Option<&Queue<P>> {
        self.queues.get(at)
    }

    /// Removes a queue; the last one takes its place.
    pub(crate) fn remove(&mut self, at: usize) -> Queue<P> {
        self.queues.swap_remove(at)
    }

    pub(crate) fn add(&mut self, waiting: Waiting, packet: P, now: Time) -> Added<P> {
        let glean = waiting.glean;
        if let Some(queue) = self.queues.iter_mut().find(|queue| queue.glean == glean) {
            return match queue.packets.try_push((waiting, packet)) {
                Ok(()) => Added::Later,
                Err(full) => Added::Full(full.element().1),
            };
        }
        let evicted = (self.queues.len() >= NEIGHBOURS_MAX).then(|| {
            let oldest = self
                .queues
                .iter()
                .enumerate()
                .min_by_key(|(_, queue)| queue.since);
            let at = oldest.map_or(0, |(at, _)| at);
            self.queues.swap_remove(at)
        });
        let mut packets = ArrayVec::new();
        packets.push((waiting, packet));
        self.queues.push(Queue {
            glean,
            since: now,
            packets,
        });
        Added::First(evicted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::forward::Arrival;
    use std::net::{IpAddr, Ipv4Addr};

    fn waiting(number: u32) -> Waiting {
        let destination = IpAddr::V4(Ipv4Addr::from_bits(number));
        Waiting {
            arrival: Arrival::of_bridge(0),
            glean: Glean {
                interface: 1,
                neighbour: destination,
            },
            vrf: 0,
            destination,
        }
    }

    #[test]
    fn three_packets_wait_for_each_neighbour_and_a_flood_evicts_the_oldest() {
        let mut room = WaitingRoom::new();
        let at = Time::from_secs(1);
        assert!(matches!(room.add(waiting(1), 0, at), Added::First(None)));
        assert!(matches!(room.add(waiting(1), 1, at), Added::Later));
        assert!(matches!(room.add(waiting(1), 2, at), Added::Later));
        assert!(matches!(room.add(waiting(1), 3, at), Added::Full(3)));
        let mut evicted = Vec::new();
        for number in 2..1000 {
            let now = at + Duration::from_millis(u64::from(number));
            match room.add(waiting(number), 0, now) {
                Added::First(Some(queue)) => evicted.push(queue.packets.len()),
                Added::First(None) => {}
                _ => panic!("each is the first"),
            }
            assert!(room.len() <= NEIGHBOURS_MAX);
        }
        assert_eq!((evicted.len(), evicted[0]), (999 - NEIGHBOURS_MAX, 3));
        assert!(!room.queue(0).unwrap().is_over(at + Duration::from_secs(3)));
        assert!(room.queue(0).unwrap().is_over(at + Duration::from_secs(5)));
    }
}
