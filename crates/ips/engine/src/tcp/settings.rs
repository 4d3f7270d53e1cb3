//! Settings of TCP.

use super::normalize::Normalizer;
use crate::mode::Mode;
use crate::packet::IpVersion;
use crate::pieces::OverlapPolicy;

/// Limits and policies of TCP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TcpSettings {
    /// Mode of the engine: `ips` inspects data at once, `ids` after their acknowledgment.
    pub mode: Mode,
    /// Bytes of each direction that are reassembled; 0 means no limit.
    pub depth: u64,
    /// Bytes of raw stream data that are inspected at a time, by [`Direction::index`](crate::Direction::index).
    pub chunk: [usize; 2],
    /// True if connections without a handshake that was seen are followed.
    pub accepts_midstream: bool,
    /// True if connections with segments of one direction only are followed.
    pub accepts_async: bool,
    /// Overlap policy for segments over IPv4. In mode `ips` it is always the first copy.
    pub policy_v4: OverlapPolicy,
    /// Overlap policy for segments over IPv6. In mode `ips` it is always the first copy.
    pub policy_v6: OverlapPolicy,
    /// The parts of the normaliser.
    pub normalizer: Normalizer,
}

impl TcpSettings {
    /// Returns the overlap policy for segments over a version of IP.
    pub(super) fn overlap_policy(&self, version: IpVersion) -> OverlapPolicy {
        match (self.mode, version) {
            (Mode::Ips, _) => OverlapPolicy::First,
            (Mode::Ids, IpVersion::V4) => self.policy_v4,
            (Mode::Ids, IpVersion::V6) => self.policy_v6,
        }
    }
}
