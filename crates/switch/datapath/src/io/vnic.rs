//! Virtual NICs: vhost-user and memif, which are ours ([`super::vhost`], [`super::memif`]), and `net_virtio_user` of DPDK.
//!
//! Peers come, go and come back while the port stays, and the port's link says whether somebody is there. What a peer sends
//! is taken as it is on a wire.

use core::fmt;
use std::path::PathBuf;

/// How packets are handed over.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum VnicKind {
    /// The peer is the virtio driver.
    Vhost {
        /// True if it may leave the cutting of TCP into segments to the switch.
        tso: bool,
    },
    /// This switch is the virtio driver.
    VirtioUser {
        /// True if descriptors are in one ring rather than three.
        packed: bool,
    },
    /// memif.
    Memif {
        /// Which interface of the socket.
        id: u32,
    },
}

/// Who may connect to a socket that the switch makes.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct SocketAccess {
    /// A user's name or number; this process's user where `None`.
    pub owner: Option<String>,
    /// A group's name or number; this process's group where `None`.
    pub group: Option<String>,
    /// Permissions: of others there are none.
    pub mode: u16,
}

/// A virtual NIC.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct VnicSpec {
    /// How packets are handed over.
    pub kind: VnicKind,
    /// The socket.
    pub path: PathBuf,
    /// Of the socket that the switch makes; `None` where the peer makes it.
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

/// Descriptors of a ring that the switch makes as a virtio driver.
#[cfg(feature = "dpdk")]
const VIRTIO_RING_LEN: u16 = 1024;

#[cfg(feature = "dpdk")]
impl VnicSpec {
    /// DPDK's text for it, with so many queues; none for what is no device of DPDK. The name says which socket it is, as
    /// names must differ.
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
