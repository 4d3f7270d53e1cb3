//! The layout of a buffer.
//!
//! ```text
//!  0            FRAME_AT - HEADER     FRAME_AT                     BUFFER
//!  |  headroom  |  virtio-net header  |  frame, at most FRAME_MAX  |
//! ```

/// Size of the virtio-net header in bytes.
pub(super) const HEADER: usize = 12;
/// Offset of a received frame in its buffer, in bytes: the headroom.
pub const FRAME_AT: usize = 128;
/// Distance between buffers, in bytes: an odd number of cache lines, since with a power of two all frames would map to
/// a few cache sets.
pub const BUFFER: usize = 35 * 64;
/// Size of the largest frame, in bytes.
pub const FRAME_MAX: usize = BUFFER - FRAME_AT;
