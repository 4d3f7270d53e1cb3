//! The inbox of a worker: packets for ports that this worker sends for, from all other workers and from the control
//! side.
//!
//! All senders share one queue, instead of one ring each. When a flow moves to a new worker, packets that the
//! old worker queued therefore leave before those that the new worker queues (`spread::reta`). Such
//! a queue costs each end tens of nanoseconds for each value, and more when both ends are active. A value is
//! therefore not one packet, but up to eight packets of a burst.

use std::sync::Arc;

use arrayvec::ArrayVec;
use crossbeam_queue::ArrayQueue;
use millrace_types::{PortNo, QueueId};

/// Maximum number of packets of one handoff.
const PACKETS_MAX: usize = 8;
/// Maximum number of handoffs that wait in an inbox.
const INBOX_LEN: usize = 2048;

/// The port and queue through which packets are to leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Destination {
    pub(crate) bridge: u32,
    pub(crate) port: PortNo,
    pub(crate) queue: Option<QueueId>,
}

/// One or more packets with the same destination.
#[derive(Debug)]
pub(crate) struct Handoff<P> {
    pub(crate) to: Destination,
    pub(crate) packets: ArrayVec<P, PACKETS_MAX>,
}

/// A worker's inbox.
#[derive(Debug)]
pub(crate) struct Inbox<P>(Arc<ArrayQueue<Handoff<P>>>);

impl<P> Clone for Inbox<P> {
    fn clone(&self) -> Inbox<P> {
        Inbox(Arc::clone(&self.0))
    }
}

impl<P> Inbox<P> {
    pub(crate) fn new() -> Inbox<P> {
        Inbox(Arc::new(ArrayQueue::new(INBOX_LEN)))
    }

    /// Puts packets in, in order. Packets for which there is no room stay in `burst`.
    #[inline]
    pub(crate) fn put<const N: usize>(&self, to: Destination, burst: &mut ArrayVec<P, N>) {
        let mut waiting = burst.take().into_iter();
        loop {
            let packets: ArrayVec<P, PACKETS_MAX> = waiting.by_ref().take(PACKETS_MAX).collect();
            if packets.is_empty() {
                return;
            }
            if let Err(refused) = self.0.push(Handoff { to, packets }) {
                // The other packets do not fit either, or would overtake these.
                burst.extend(refused.packets);
                burst.extend(waiting);
                return;
            }
        }
    }

    /// Puts a packet in.
    ///
    /// # Errors
    /// Returns the packet if there is no room.
    #[inline]
    pub(crate) fn put_one(&self, to: Destination, packet: P) -> Result<(), P> {
        let mut one = ArrayVec::from([packet]);
        self.put(to, &mut one);
        one.pop().map_or(Ok(()), Err)
    }

    /// Returns the number of handoffs that wait.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns the next handoff.
    #[inline]
    pub(crate) fn take(&self) -> Option<Handoff<P>> {
        self.0.pop()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TO: Destination = Destination {
        bridge: 0,
        port: PortNo::from_raw(1),
        queue: None,
    };

    fn taken(inbox: &Inbox<usize>) -> Vec<usize> {
        core::iter::from_fn(|| inbox.take())
            .flat_map(|handoff| handoff.packets)
            .collect()
    }

    #[test]
    fn packets_come_out_in_the_order_in_which_they_went_in() {
        let inbox = Inbox::new();
        let mut burst: ArrayVec<usize, 64> = (0..61).collect();
        inbox.put(TO, &mut burst);
        assert_eq!(burst.len(), 0);
        assert_eq!(inbox.put_one(TO, 61), Ok(()));
        assert_eq!(inbox.len(), 9);
        assert_eq!(taken(&inbox), (0..62).collect::<Vec<usize>>());
    }

    #[test]
    fn what_finds_no_room_stays_and_nothing_overtakes_it() {
        let inbox = Inbox::new();
        for packet in 0..INBOX_LEN - 2 {
            assert_eq!(inbox.put_one(TO, packet), Ok(()));
        }
        let mut burst: ArrayVec<usize, 64> = (0..64).collect();
        inbox.put(TO, &mut burst);
        assert_eq!(burst.as_slice(), (16..64).collect::<Vec<usize>>());
        assert_eq!(inbox.put_one(TO, 7), Err(7));
        assert_eq!(taken(&inbox).len(), INBOX_LEN - 2 + 16);
    }
}
