//! Feature bits of virtio 1.2 (sections 5.1.3 and 6) and of vhost-user.

use core::ops::{BitAnd, BitOr};

/// A set of feature bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Features(u64);

impl Features {
    /// The empty set.
    pub const NONE: Features = Features(0);
    /// `VIRTIO_NET_F_CSUM`: the driver may leave partial checksums for the device to complete.
    pub const CSUM: Features = Features(1 << 0);
    /// `VIRTIO_NET_F_GUEST_CSUM`: the device may leave partial checksums for the driver to complete.
    pub const GUEST_CSUM: Features = Features(1 << 1);
    /// `VIRTIO_NET_F_GUEST_TSO4`: the driver accepts unsegmented TCP over IPv4 (GSO packets).
    pub const GUEST_TSO4: Features = Features(1 << 7);
    /// `VIRTIO_NET_F_GUEST_TSO6`: the driver accepts unsegmented TCP over IPv6 (GSO packets).
    pub const GUEST_TSO6: Features = Features(1 << 8);
    /// `VIRTIO_NET_F_HOST_TSO4`: the device accepts unsegmented TCP over IPv4 (GSO packets).
    pub const HOST_TSO4: Features = Features(1 << 11);
    /// `VIRTIO_NET_F_HOST_TSO6`: the device accepts unsegmented TCP over IPv6 (GSO packets).
    pub const HOST_TSO6: Features = Features(1 << 12);
    /// `VIRTIO_NET_F_MRG_RXBUF`: the device may spread one frame over several chains.
    pub const MRG_RXBUF: Features = Features(1 << 15);
    /// `VIRTIO_NET_F_CTRL_VQ`: the driver has a control queue, which the front-end serves.
    pub const CTRL_VQ: Features = Features(1 << 17);
    /// `VIRTIO_NET_F_CTRL_RX`: the control queue accepts receive-mode commands.
    pub const CTRL_RX: Features = Features(1 << 18);
    /// `VIRTIO_NET_F_MQ`: several queue pairs.
    pub const MQ: Features = Features(1 << 22);
    /// `VIRTIO_F_ANY_LAYOUT`: header and frame may share a buffer, for drivers older than virtio 1.0.
    pub const ANY_LAYOUT: Features = Features(1 << 27);
    /// `VIRTIO_F_INDIRECT_DESC`: a chain may be in a separate descriptor table.
    pub const INDIRECT_DESC: Features = Features(1 << 28);
    /// `VIRTIO_F_EVENT_IDX`: each side says after which buffer it wants to be notified.
    pub const EVENT_IDX: Features = Features(1 << 29);
    /// `VHOST_USER_F_PROTOCOL_FEATURES`: the front-end negotiates protocol features, too.
    pub const PROTOCOL_FEATURES: Features = Features(1 << 30);
    /// `VIRTIO_F_VERSION_1`: virtio 1.0 or later.
    pub const VERSION_1: Features = Features(1 << 32);
    /// `VIRTIO_F_RING_PACKED`: packed rings.
    pub const RING_PACKED: Features = Features(1 << 34);
    /// `VIRTIO_F_IN_ORDER`: the device uses buffers in the order in which they were made available.
    pub const IN_ORDER: Features = Features(1 << 35);

    /// Returns the features that the device offers. With `tso`, they include those for GSO packets in both
    /// directions.
    ///
    /// `VHOST_F_LOG_ALL` (live migration) is not offered. Neither is `VIRTIO_NET_F_HOST_ECN`: the packet metadata
    /// cannot express that only the first segment carries CWR.
    #[must_use]
    pub fn offered(tso: bool) -> Features {
        let plain = Features::CSUM
            | Features::GUEST_CSUM
            | Features::MRG_RXBUF
            | Features::CTRL_VQ
            | Features::CTRL_RX
            | Features::MQ
            | Features::ANY_LAYOUT
            | Features::INDIRECT_DESC
            | Features::EVENT_IDX
            | Features::PROTOCOL_FEATURES
            | Features::VERSION_1
            | Features::RING_PACKED
            | Features::IN_ORDER;
        let long = Features::GUEST_TSO4 | Features::GUEST_TSO6 | Features::HOST_TSO4 | Features::HOST_TSO6;
        if tso { plain | long } else { plain }
    }

    /// Returns the set with these bits, as a message carries them.
    #[must_use]
    pub const fn from_bits(bits: u64) -> Features {
        Features(bits)
    }

    /// Returns the bits, as a message carries them.
    #[must_use]
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// Returns true if all of `others` are in this set.
    #[must_use]
    pub const fn contains(self, others: Features) -> bool {
        self.0 & others.0 == others.0
    }
}

impl BitOr for Features {
    type Output = Features;

    fn bitor(self, other: Features) -> Features {
        Features(self.0 | other.0)
    }
}

impl BitAnd for Features {
    type Output = Features;

    fn bitand(self, other: Features) -> Features {
        Features(self.0 & other.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_packets_are_offered_to_ports_that_asked_for_them_only() {
        assert!(!Features::offered(false).contains(Features::HOST_TSO4));
        assert!(Features::offered(true).contains(Features::HOST_TSO6 | Features::GUEST_TSO4));
        let more = Features::offered(true).bits() & !Features::offered(false).bits();
        assert_eq!(more.count_ones(), 4);
    }
}
