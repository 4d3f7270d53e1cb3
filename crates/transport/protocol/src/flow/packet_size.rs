//! The packet size of a flow, which follows the path MTU.

use super::{Flow, Piece};
use crate::sender::Grid;
use millrace_types::Time;

impl Flow {
    /// Returns the payload of a full packet now, in bytes.
    pub fn payload(&self) -> u16 {
        self.mtu.payload()
    }

    /// Returns the size of a full IP packet now, in bytes. The path is known to pass this size.
    pub fn path_mtu(&self) -> u64 {
        u64::from(self.mtu.payload()) + self.overhead
    }

    /// Learns the largest IP packet that the interface sends to the receiver, or that a router reported.
    pub fn set_mtu_limit(&mut self, mtu: u16) {
        self.mtu.on_limit(mtu);
        self.resize();
    }

    /// Changes the packet size to the size that the path passes.
    pub(super) fn resize(&mut self) {
        let payload = self.mtu.payload();
        if self.grid.payload() != payload {
            self.grid = Grid::new(self.layout, payload);
            self.duplicate = None;
            let size = self.path_mtu();
            self.pacer.set_packet_size(size);
            self.controller.set_packet_size(size);
        }
    }

    /// Returns the piece for a probe of a larger packet size, if a probe is due and the piece is ready. Some
    /// bytes of the piece may have been sent before.
    pub(super) fn mtu_probe(&mut self, now: Time, ready: &dyn Fn(Piece) -> bool) -> Option<Piece> {
        let payload = self.mtu.probe(now)?;
        let next = self.plan.next_address()?;
        let known = self.mtu_probe.filter(|(grid, _)| grid.payload() == payload);
        let (grid, piece) = known.unwrap_or_else(|| {
            let grid = Grid::new(self.layout, payload);
            (grid, grid.piece_at(next))
        });
        // The end of an extent may leave less than the size that is to be tried.
        if piece.len != payload {
            self.mtu_probe = None;
            return None;
        }
        self.mtu_probe = Some((grid, piece));
        if !ready(piece) {
            return None;
        }
        self.mtu_probe = None;
        self.mtu.on_probe(now, self.sent.next_number());
        self.plan.take(piece);
        Some(piece)
    }
}
