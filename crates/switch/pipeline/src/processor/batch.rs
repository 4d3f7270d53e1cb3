//! Packets that fare alike in a row, until somebody disposes of them together.
//!
//! Most bursts leave by one port, or by a few in long runs. An egress that gets a run at once looks up its port
//! once and need not touch the packets; and a run of dropped packets is freed with one call.

use arrayvec::ArrayVec;
use millrace_flow::classify::BURST;
use millrace_types::{PortNo, QueueId};

use crate::{DropReason, Egress};

/// A run of packets, and what is to become of them.
pub(crate) struct Batch<F, P> {
    fate: F,
    packets: ArrayVec<P, BURST>,
}

impl<F: Copy + PartialEq, P> Batch<F, P> {
    #[inline(always)]
    pub(crate) fn new(fate: F) -> Batch<F, P> {
        Batch {
            fate,
            packets: ArrayVec::new(),
        }
    }

    /// Adds a packet. What was there is disposed of first, if its fate is another or there is no room.
    #[inline(always)]
    pub(crate) fn push(&mut self, fate: F, packet: P, dispose: impl FnOnce(F, &mut ArrayVec<P, BURST>)) {
        if fate != self.fate || self.packets.is_full() {
            self.flush(dispose);
            self.fate = fate;
        }
        self.packets.push(packet);
    }

    /// Disposes of what is there.
    #[inline(always)]
    pub(crate) fn flush(&mut self, dispose: impl FnOnce(F, &mut ArrayVec<P, BURST>)) {
        if !self.packets.is_empty() {
            dispose(self.fate, &mut self.packets);
        }
    }
}

/// How many ports have packets wait for them at once.
pub(crate) const EXITS: usize = 4;

/// What becomes of packets that do not leave by a port as they are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Block {
    /// They are dropped.
    Drop(DropReason),
    /// They go into a tunnel.
    Tunnel,
}

/// Packets that leave by one port, until there are as many as a burst, or the burst is over, or another port
/// needs the place. So packets that leave by two ports in turn leave in two runs.
pub(crate) struct Exit<P> {
    /// The port, while packets leave by it as they are and by no queue; else none that packets leave by.
    open: PortNo,
    pub(crate) port: PortNo,
    pub(crate) queue: Option<QueueId>,
    /// Why packets do not leave here as they are, if so.
    pub(crate) block: Option<Block>,
    pub(crate) packets: ArrayVec<P, BURST>,
}

impl<P> Exit<P> {
    /// No port.
    #[inline(always)]
    pub(crate) fn none() -> Exit<P> {
        Exit {
            open: PortNo::ANY,
            port: PortNo::ANY,
            queue: None,
            block: Some(Block::Drop(DropReason::NoSuchPort)),
            packets: ArrayVec::new(),
        }
    }

    /// Makes it the exit for a port from now on.
    pub(crate) fn turn_to(&mut self, port: PortNo, queue: Option<QueueId>, block: Option<Block>) {
        let is_open = queue.is_none() && block.is_none();
        self.open = if is_open { port } else { PortNo::ANY };
        (self.port, self.queue, self.block) = (port, queue, block);
    }

    /// Whether it is that of an ordinary port, and packets leave by it as they are and by no queue.
    #[inline(always)]
    pub(crate) fn is_open_for(&self, port: PortNo) -> bool {
        self.open == port
    }

    /// Sends what is there.
    #[inline(always)]
    pub(crate) fn flush(&mut self, egress: &mut impl Egress<P>) {
        if !self.packets.is_empty() {
            egress.transmit_burst(self.port, self.queue, &mut self.packets);
        }
    }
}

/// The place of a port among the exits.
#[inline(always)]
pub(crate) const fn place(port: PortNo) -> usize {
    port.raw() as usize % EXITS
}
