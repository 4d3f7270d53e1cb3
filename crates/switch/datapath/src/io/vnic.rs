//! Virtual NICs: vhost-user and memif, which the switch implements ([`super::vhost`], [`super::memif`]), and
//! `net_virtio_user` of DPDK.
//!
//! Peers come and go while the port exists, and the port's link is up while a peer is connected. Packets from
//! a peer are handled like packets from a wire.

use core::fmt;
use std::path::PathBuf;

/// The protocol by which packets are exchanged.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum VnicKind {
    /// vhost-user; the peer is the virtio driver.
    Vhost {
        /// True if the peer may leave TCP segmentation to the switch (TSO).
        tso: bool,
    },
    /// vhost-user; this switch is the virtio driver.
    VirtioUser {
        /// True for packed virtqueues (virtio 1.1, section 2.7), false for split ones.
        packed: bool,
    },
    Memif {
        /// The number of the interface at the socket.
        id: u32,
    },
}

/// The access rights of a socket that the switch creates.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct SocketAccess {
    /// A user's name or number; `None` for this process's user.
    pub owner: Option<String>,
    /// A group's name or number; `None` for this process's group.
    pub group: Option<String>,
    /// The permission bits; the bits for other users are 0.
    pub mode: u16,
}

/// The type and address of a virtual NIC.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct VnicSpec {
    /// The protocol by which packets are exchanged.
    pub kind: VnicKind,
    /// The path of the socket.
    pub path: PathBuf,
    /// The access rights of the socket if the switch creates it; `None` if the peer creates it.
    pub access: Option<SocketAccess>,
}

impl fmt::Display for VnicSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.display();
        match self.kind {
            VnicKind::Vhost { .. } => write!(f, "vhost:{path}"),
            VnicKind::VirtioUser { .. } => write!(f, "virtio-user:{path}"),
            VnicKind::Memif { id } => write!(f, "memif:{path},id={id}"),
        }
    }
}

/// Number of descriptors of a ring that the switch creates as a virtio driver.
#[cfg(feature = "dpdk")]
const VIRTIO_RING_LEN: u16 = 1024;

#[cfg(feature = "dpdk")]
impl VnicSpec {
    /// Returns DPDK's devargs of the device with this many queues; `None` for a device that DPDK does not
    /// drive. The device name is derived from the socket, as names must differ.
    pub(super) fn devargs(&self, queues: u16) -> Option<String> {
        use std::hash::{DefaultHasher, Hash, Hasher};

        let mut hasher = DefaultHasher::new();
        (&self.path, self.kind).hash(&mut hasher);
        let name = hasher.finish();
        let path = self.path.display();
        match self.kind {
            VnicKind::VirtioUser { packed } => Some(format!(
                "net_virtio_user_{name:016x},path={path},queues={queues},queue_size={VIRTIO_RING_LEN},\
                 mrg_rxbuf=1,in_order=1,packed_vq={}",
                u8::from(packed)
            )),
            VnicKind::Vhost { .. } | VnicKind::Memif { .. } => None,
        }
    }
}
