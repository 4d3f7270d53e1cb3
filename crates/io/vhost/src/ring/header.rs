//! The virtio-net header ([`millrace_wire::virtio_net`]) under negotiated features.

use millrace_wire::virtio_net::{Accepted, LONG, SHORT};

use super::Limits;
use crate::Features;

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
