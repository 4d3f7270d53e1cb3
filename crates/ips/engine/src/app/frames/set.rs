//! The set of the kinds of frames that rules or events ask for.

use millrace_ips_rules::buffers::{BUFFERS, Buffer};

/// Each kind has a bit.
const _: () = assert!(BUFFERS.len() - Buffer::FrameHttp1Request as usize <= 128);

/// The kinds of frames that rules or events ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FrameSet(u128);

impl FrameSet {
    /// All kinds.
    pub const ALL: FrameSet = FrameSet(u128::MAX);

    /// Returns the bit of a kind; none if the buffer is no frame.
    fn bit(kind: Buffer) -> u128 {
        match kind.is_frame() {
            true => 1u128 << (kind as usize - Buffer::FrameHttp1Request as usize),
            false => 0,
        }
    }

    /// Adds a kind.
    pub(crate) fn add(&mut self, kind: Buffer) {
        self.0 |= FrameSet::bit(kind);
    }

    /// Returns true if rules ask for a kind.
    pub(super) fn has(self, kind: Buffer) -> bool {
        self.0 & FrameSet::bit(kind) != 0
    }

    /// Returns the kinds between two.
    pub(super) fn between(self, first: Buffer, last: Buffer) -> FrameSet {
        let below = |kind| FrameSet::bit(kind) - 1;
        FrameSet(self.0 & (below(last) << 1 | 1) & !below(first))
    }

    pub(super) fn is_empty(self) -> bool {
        self.0 == 0
    }
}
