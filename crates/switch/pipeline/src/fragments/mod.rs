//! What becomes of IP fragments before the tables see them (section 7.3.2): nothing, the end, or a whole packet.
//!
//! A bridge that does nothing with them pays one comparison for each burst. Putting together copies: a fragment's
//! bytes go into memory of the worker, which is bounded, and the packet's buffer goes back at once, so that whoever
//! sends fragments that never become whole holds no buffers.

mod assembler;
mod piece;

pub use assembler::{Assembled, Assembler};
pub use piece::{Piece, PieceError};

/// What becomes of fragments (`OFPC_FRAG_*`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum FragmentMode {
    /// They are packets like others; all but the first have no ports.
    #[default]
    Normal,
    /// They are dropped.
    Drop,
    /// Whole packets are made of them, and go through the tables.
    Reassemble,
}
