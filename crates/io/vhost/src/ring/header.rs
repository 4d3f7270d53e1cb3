//! The virtio-net header ([`millrace_wire::virtio_net`]) under negotiated features, and the limits on the frames behind it.

use millrace_wire::virtio_net::{Accepted, LONG, SHORT};

use crate::Features;

/// The limits on received frames; a frame that exceeds them is dropped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// The largest frame that is not a GSO packet, in bytes.
    pub frame_size: usize,
    /// The largest IP packet after segmentation of a GSO packet, in bytes.
    pub mtu: usize,
    /// True if a frame may occupy several mbufs.
    pub is_segmented: bool,
}

/// Returns the size of the header in bytes under the negotiated features.
pub(super) fn size(features: Features) -> usize {
    let is_long = features.contains(Features::VERSION_1) || features.contains(Features::MRG_RXBUF);
    if is_long { LONG } else { SHORT }
}

/// Returns the frames that are accepted under the negotiated features. `VIRTIO_NET_F_HOST_USO` is never offered.
pub(super) fn accepted(features: Features, limits: Limits) -> Accepted {
    Accepted {
        tcpv4: features.contains(Features::HOST_TSO4),
        tcpv6: features.contains(Features::HOST_TSO6),
        udp: false,
        frame_size: limits.frame_size,
        mtu: limits.mtu,
    }
}
