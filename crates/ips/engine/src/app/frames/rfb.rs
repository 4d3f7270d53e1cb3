//! Frames of RFB: the messages of the handshake.

use millrace_ips_rules::buffers::Buffer;

use super::units::{Found, Step, Units};
use crate::app::heap::heap;
use crate::app::rfb::Handshake;
use crate::flow::Direction;

/// The handshake of a connection; no frames follow it.
#[derive(Debug, Default)]
pub(super) struct Rfb {
    handshake: Handshake,
}

heap!(Rfb {});

impl Units for Rfb {
    fn unit(&mut self, direction: Direction, bytes: &[u8], found: &mut Found<'_>) -> Step {
        match self.handshake.direction() {
            None => return Step::Stop,
            Some(turn) if turn != direction => return Step::Turn,
            Some(_) => {}
        }
        let size = self.handshake.size(bytes);
        let Some(message) = bytes.get(..size) else {
            return Step::More;
        };
        self.handshake.advance(message);
        // The name may be longer than the bytes that wait.
        let size = (size + self.handshake.take_name().unwrap_or(0)) as u64;
        found.frame(Buffer::FrameRfbPdu, 0, size);
        Step::Unit(size)
    }

    fn takes_turns(&self) -> bool {
        true
    }
}
