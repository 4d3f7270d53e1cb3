//! The rings between workers: one from each worker to each other worker.

use millrace_types::PortNo;
use millrace_wire::Packet;

use super::ring::{Receiver, Sender, ring};
use crate::io::Burst;

/// A packet on its way to the worker that owns its flow.
pub(crate) struct FlowHandoff<P> {
    pub(crate) bridge: u32,
    /// The port at which the packet was received.
    pub(crate) port: PortNo,
    pub(crate) packet: P,
}

/// Number of slots of a ring: enough for the packets that arrive while the other worker does not poll for
/// some hundred microseconds.
const RING_LEN: usize = 2048;
/// Maximum total number of slots of the rings out of one worker: with very many workers each ring is shorter.
const RINGS_LEN: usize = 64 * 1024;
/// Minimum number of slots of a ring: a few bursts.
const RING_LEN_MIN: usize = 256;

/// One worker's ends of the rings.
pub(crate) struct Links<P> {
    /// The ring to each worker, by worker; `None` for the worker itself.
    out: Vec<Option<Sender<FlowHandoff<P>>>>,
    incoming: Vec<Receiver<FlowHandoff<P>>>,
    /// Number of packets handed off since the last [`Self::take_handed_off`].
    handed_off: u64,
}

/// Returns the ring ends of each worker, by worker.
pub(crate) fn mesh<P>(workers: usize) -> Vec<Links<P>> {
    let len = (RINGS_LEN / workers.max(1)).clamp(RING_LEN_MIN, RING_LEN);
    let mut all: Vec<Links<P>> = (0..workers)
        .map(|_| Links {
            out: Vec::new(),
            incoming: Vec::new(),
            handed_off: 0,
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
    /// Puts a packet into the ring to a worker, which sees it after [`Self::publish`].
    ///
    /// # Errors
    /// Returns the packet if the ring is full.
    #[inline]
    pub(crate) fn hand_off(&mut self, worker: usize, handoff: FlowHandoff<P>) -> Result<(), P> {
        match self.out.get_mut(worker) {
            Some(Some(sender)) => {
                sender.push(handoff).map_err(|handoff| handoff.packet)?;
                self.handed_off += 1;
                Ok(())
            }
            _ => {
                debug_assert!(false, "worker {worker} is this one, or does not exist");
                Err(handoff.packet)
            }
        }
    }

    /// Makes all packets that were handed off visible to the other workers.
    #[inline]
    pub(crate) fn publish(&mut self) {
        self.out.iter_mut().flatten().for_each(Sender::publish);
    }

    /// Returns the number of packets handed off since the last call.
    #[inline]
    pub(crate) fn take_handed_off(&mut self) -> u64 {
        core::mem::take(&mut self.handed_off)
    }

    /// Returns the number of packets handed off to a worker since the start; 0 for the worker itself.
    pub(crate) fn mark(&self, worker: usize) -> u64 {
        match self.out.get(worker) {
            Some(Some(sender)) => sender.mark(),
            _ => 0,
        }
    }

    /// Returns true if the worker has settled all packets that it was handed before the mark.
    pub(crate) fn is_settled(&self, worker: usize, mark: u64) -> bool {
        match self.out.get(worker) {
            Some(Some(sender)) => sender.is_settled(mark),
            _ => {
                debug_assert!(false, "worker {worker} is this one, or does not exist");
                true
            }
        }
    }

    /// Returns the number of incoming rings.
    #[inline]
    pub(crate) fn incoming_len(&self) -> usize {
        self.incoming.len()
    }

    /// Fills the empty `burst` with the next packets of a ring that were received at the same port. Returns
    /// the bridge and this port.
    #[inline]
    pub(crate) fn receive(&mut self, ring: usize, burst: &mut Burst<P>) -> Option<(u32, PortNo)> {
        let receiver = self.incoming.get_mut(ring)?;
        let first = receiver.pop_if(|_| true)?;
        let origin = (first.bridge, first.port);
        burst.push(first.packet);
        while !burst.is_full() {
            match receiver.pop_if(|handoff| (handoff.bridge, handoff.port) == origin) {
                Some(handoff) => burst.push(handoff.packet),
                None => break,
            }
        }
        receiver.release();
        burst.iter().for_each(Packet::prefetch);
        burst.iter().for_each(Packet::prefetch_head);
        Some(origin)
    }

    /// Acknowledges to all workers that all packets that were taken from their rings have left this worker.
    #[inline]
    pub(crate) fn settle(&mut self) {
        self.incoming.iter_mut().for_each(Receiver::settle);
    }
}
