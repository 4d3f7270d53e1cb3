//! The rings between workers: one from each to each other.

use millrace_types::PortNo;
use millrace_wire::Packet;

use super::ring::{Receiver, Sender, ring};
use crate::io::Burst;

/// A packet on its way to the worker that its flow belongs to.
pub(crate) struct Handed<P> {
    pub(crate) bridge: u32,
    /// Where it was received.
    pub(crate) port: PortNo,
    pub(crate) packet: P,
}

/// Slots of a ring: what arrives while the other worker is away for some hundred microseconds.
const RING_LEN: usize = 2048;
/// Slots of all rings out of one worker, at most: with very many workers each ring is shorter.
const RINGS_LEN: usize = 64 * 1024;
/// Slots of a ring, at least: some bursts.
const RING_LEN_MIN: usize = 256;

/// One worker's ends.
pub(crate) struct Links<P> {
    /// By worker; none to itself.
    out: Vec<Option<Sender<Handed<P>>>>,
    incoming: Vec<Receiver<Handed<P>>>,
    /// Packets that were given away since this was asked last.
    given: u64,
}

/// Returns the ends of each worker.
pub(crate) fn mesh<P>(workers: usize) -> Vec<Links<P>> {
    let len = (RINGS_LEN / workers.max(1)).clamp(RING_LEN_MIN, RING_LEN);
    let mut all: Vec<Links<P>> = (0..workers)
        .map(|_| Links {
            out: Vec::new(),
            incoming: Vec::new(),
            given: 0,
        })
        .collect();
    for from in 0..workers {
        for to in 0..workers {
            let sender = (from != to).then(|| {
                let (sender, receiver) = ring(len);
                all[to].incoming.push(receiver);
                sender
            });
            all[from].out.push(sender);
        }
    }
    all
}

impl<P: Packet> Links<P> {
    /// Puts a packet on the ring to a worker, to be seen there after [`Self::publish`].
    ///
    /// # Errors
    /// The packet, if the ring is full.
    #[inline]
    pub(crate) fn give(&mut self, worker: usize, handed: Handed<P>) -> Result<(), P> {
        match self.out.get_mut(worker) {
            Some(Some(sender)) => {
                sender.push(handed).map_err(|handed| handed.packet)?;
                self.given += 1;
                Ok(())
            }
            _ => Err(handed.packet),
        }
    }

    /// Shows all workers what they were given.
    #[inline]
    pub(crate) fn publish(&mut self) {
        self.out.iter_mut().flatten().for_each(Sender::publish);
    }

    /// Packets that were given away since this was asked last.
    #[inline]
    pub(crate) fn take_given(&mut self) -> u64 {
        core::mem::take(&mut self.given)
    }

    /// How much a worker was given since the beginning.
    pub(crate) fn mark(&self, worker: usize) -> u64 {
        match self.out.get(worker) {
            Some(Some(sender)) => sender.mark(),
            _ => 0,
        }
    }

    /// Returns true if nothing that the worker was given before the mark is still on its way.
    pub(crate) fn is_settled(&self, worker: usize, mark: u64) -> bool {
        match self.out.get(worker) {
            Some(Some(sender)) => sender.is_settled(mark),
            _ => true,
        }
    }

    /// How many rings lead here.
    #[inline]
    pub(crate) fn incoming_len(&self) -> usize {
        self.incoming.len()
    }

    /// Fills `burst`, which is empty, with the next packets of one ring that came in at one port, and says which.
    #[inline]
    pub(crate) fn receive(&mut self, ring: usize, burst: &mut Burst<P>) -> Option<(u32, PortNo)> {
        let receiver = self.incoming.get_mut(ring)?;
        let first = receiver.pop_if(|_| true)?;
        let origin = (first.bridge, first.port);
        burst.push(first.packet);
        while !burst.is_full() {
            match receiver.pop_if(|handed| (handed.bridge, handed.port) == origin) {
                Some(handed) => burst.push(handed.packet),
                None => break,
            }
        }
        receiver.release();
        burst.iter().for_each(Packet::prefetch);
        burst.iter().for_each(Packet::prefetch_head);
        Some(origin)
    }

    /// Says to all workers that nothing of what they gave and was taken is still on its way.
    #[inline]
    pub(crate) fn settle(&mut self) {
        self.incoming.iter_mut().for_each(Receiver::settle);
    }
}
