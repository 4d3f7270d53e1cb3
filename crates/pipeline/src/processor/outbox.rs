//! Packets that leave by the same port in a row, until somebody sends them together.
//!
//! Most bursts leave by one port, or by a few in long runs. An egress that gets a run at once looks up its port
//! once and need not touch the packets.

use arrayvec::ArrayVec;
use millrace_flow::classify::BURST;
use millrace_types::{PortNo, QueueId};

use crate::Egress;

/// A run of packets that is not sent yet.
pub(crate) struct Outbox<P> {
    port: PortNo,
    queue: Option<QueueId>,
    packets: ArrayVec<P, BURST>,
}

impl<P> Outbox<P> {
    pub(crate) fn new() -> Outbox<P> {
        Outbox {
            port: PortNo::ANY,
            queue: None,
            packets: ArrayVec::new(),
        }
    }

    /// Adds a packet. Sends what was there, if that goes elsewhere or there is no room.
    #[inline]
    pub(crate) fn push<E: Egress<P>>(
        &mut self,
        egress: &mut E,
        port: PortNo,
        queue: Option<QueueId>,
        packet: P,
    ) {
        if (port, queue) != (self.port, self.queue) || self.packets.is_full() {
            self.flush(egress);
            (self.port, self.queue) = (port, queue);
        }
        self.packets.push(packet);
    }

    /// Sends what is there.
    #[inline]
    pub(crate) fn flush<E: Egress<P>>(&mut self, egress: &mut E) {
        if !self.packets.is_empty() {
            egress.transmit_burst(self.port, self.queue, &mut self.packets);
        }
    }
}
