//! Runs of packets with the same output or drop reason. The packets of a run are sent or dropped together.
//!
//! Most bursts leave by one port, or by a few in long runs. An egress that gets a run looks its port up once and does
//! not touch the packets; a run of dropped packets is freed with one call.

use arrayvec::ArrayVec;
use millrace_flow::classify::BURST;
use millrace_types::{PortNo, QueueId};

use crate::{DropReason, Egress};

/// A run of packets and their common outcome.
pub(crate) struct Batch<F, P> {
    outcome: F,
    packets: ArrayVec<P, BURST>,
}

impl<F: Copy + PartialEq, P> Batch<F, P> {
    #[inline(always)]
    pub(crate) fn new(outcome: F) -> Batch<F, P> {
        Batch {
            outcome,
            packets: ArrayVec::new(),
        }
    }

    /// Adds a packet. The run is flushed first if its outcome differs or it is full.
    #[inline(always)]
    pub(crate) fn push(&mut self, outcome: F, packet: P, dispose: impl FnOnce(F, &mut ArrayVec<P, BURST>)) {
        if outcome != self.outcome || self.packets.is_full() {
            self.flush(dispose);
            self.outcome = outcome;
        }
        self.packets.push(packet);
    }

    /// Passes the run to `dispose`, if it is not empty.
    #[inline(always)]
    pub(crate) fn flush(&mut self, dispose: impl FnOnce(F, &mut ArrayVec<P, BURST>)) {
        if !self.packets.is_empty() {
            dispose(self.outcome, &mut self.packets);
        }
    }
}

/// The number of ports that collect packets at the same time.
pub(crate) const PORT_BATCHES: usize = 4;

/// The reason why a port does not send packets as they are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum OutputRestriction {
    /// Packets are dropped for this reason.
    Drop(DropReason),
    /// Packets are encapsulated.
    Tunnel,
}

/// The packets that leave by one port. They are sent when the batch is full, when the burst ends, or when
/// another port needs the batch. If packets for two ports alternate, the ports thus get two runs.
pub(crate) struct PortBatch<P> {
    /// The port, if it sends packets unchanged and without a queue; otherwise [`PortNo::ANY`], which is never
    /// an output port.
    open: PortNo,
    pub(crate) port: PortNo,
    pub(crate) queue: Option<QueueId>,
    /// The reason why packets are not sent as they are; `None` if they are.
    pub(crate) restriction: Option<OutputRestriction>,
    pub(crate) packets: ArrayVec<P, BURST>,
}

impl<P> PortBatch<P> {
    /// Returns a batch without a port.
    #[inline(always)]
    pub(crate) fn none() -> PortBatch<P> {
        PortBatch {
            open: PortNo::ANY,
            port: PortNo::ANY,
            queue: None,
            restriction: Some(OutputRestriction::Drop(DropReason::NoSuchPort)),
            packets: ArrayVec::new(),
        }
    }

    /// Assigns the batch to a port.
    pub(crate) fn assign(
        &mut self,
        port: PortNo,
        queue: Option<QueueId>,
        restriction: Option<OutputRestriction>,
    ) {
        let is_open = queue.is_none() && restriction.is_none();
        self.open = if is_open { port } else { PortNo::ANY };
        (self.port, self.queue, self.restriction) = (port, queue, restriction);
    }

    /// Returns true if the batch belongs to this ordinary port, which sends packets as they are and without a queue.
    #[inline(always)]
    pub(crate) fn is_open_for(&self, port: PortNo) -> bool {
        self.open == port
    }

    /// Sends the packets, if there are any.
    #[inline(always)]
    pub(crate) fn flush(&mut self, egress: &mut impl Egress<P>) {
        if !self.packets.is_empty() {
            egress.transmit_burst(self.port, self.queue, &mut self.packets);
        }
    }
}

/// Returns the index of the batch that a port uses.
#[inline(always)]
pub(crate) const fn batch_index(port: PortNo) -> usize {
    port.raw() as usize % PORT_BATCHES
}
