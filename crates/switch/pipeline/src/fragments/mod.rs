//! IP fragments before the first table (OpenFlow 1.3.5, section 7.3.2): passed on, dropped, or reassembled.
//!
//! A bridge that passes fragments on pays one comparison for each burst. Reassembly copies the bytes of a
//! fragment into bounded memory of the worker and frees the packet's buffer at once, so that fragments which
//! never become a packet hold no buffers.

mod assembler;
mod view;

pub use assembler::{Assembled, Assembler};
pub use view::{FragmentError, FragmentView};

/// The treatment of fragments (`OFPC_FRAG_*`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum FragmentMode {
    /// Fragments are processed like other packets; all but the first have no ports.
    #[default]
    Normal,
    /// Fragments are dropped.
    Drop,
    /// Fragments are reassembled, and the packet is processed.
    Reassemble,
}
