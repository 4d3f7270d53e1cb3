//! The frames of a capture, counted.

use std::time::Duration;

use millrace_types::Time;

/// The frames of a capture, counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CaptureSummary {
    pub frames: u64,
    /// Bytes of the frames.
    pub bytes: u64,
    /// Frames that are not forwarded in mode `ips`.
    pub dropped: u64,
    /// Time spent in the engine.
    pub engine: Duration,
    /// Time of the last frame, as passed to the engine.
    pub last: Time,
}
