//! Limits of a connection of HTTP/2.

/// Largest size of the table of headers of a direction; browsers ask for as much.
pub(super) const TABLE_SIZE: usize = 64 << 10;

/// Largest number of streams without end that are followed.
pub(super) const STREAMS: usize = 128;
