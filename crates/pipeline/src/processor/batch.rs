//! Packets that fare alike in a row, until somebody disposes of them together.
//!
//! Most bursts leave by one port, or by a few in long runs. An egress that gets a run at once looks up its port
//! once and need not touch the packets; and a run of dropped packets is freed with one call.

use arrayvec::ArrayVec;
use millrace_flow::classify::BURST;

/// A run of packets, and what is to become of them.
pub(crate) struct Batch<F, P> {
    fate: F,
    packets: ArrayVec<P, BURST>,
}

impl<F: Copy + PartialEq, P> Batch<F, P> {
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
