//! The driver at the other end of a vhost-user port: what it said that it takes.

use std::sync::Arc;

use millrace_dpdk_sys as sys;

use super::PortError;
use super::attach::Device;
use crate::Errno;

/// What a virtio driver takes that receives (`VIRTIO_NET_F_GUEST_TSO4`, `_TSO6`: virtio 1.1, section 5.1.3).
const TSO4: u64 = 1 << 7;
const TSO6: u64 = 1 << 8;

/// The peer of a port of `net_vhost`, whoever it is at the time. The port stays attached while this lives.
#[derive(Debug)]
pub struct VhostPeer {
    device: Arc<Device>,
}

impl VhostPeer {
    pub(super) fn watch(device: &Arc<Device>) -> Result<Self, PortError> {
        // SAFETY: the port is attached as long as `device` lives.
        device.check("watch its peer", unsafe { sys::shim_vhost_watch(device.id().0) })?;
        Ok(Self {
            device: Arc::clone(device),
        })
    }

    /// Whether it takes TCP packets longer than its MTU, and cuts them itself where it needs to; none does that is not
    /// connected. Takes no lock: a worker may ask.
    #[inline]
    #[must_use]
    pub fn takes_uncut(&self, is_ipv6: bool) -> bool {
        // SAFETY: the number is that of a port which is attached as long as `device` lives.
        let features = unsafe { sys::shim_vhost_features(self.device.id().0) };
        features & if is_ipv6 { TSO6 } else { TSO4 } != 0
    }
}

impl Drop for VhostPeer {
    fn drop(&mut self) {
        // SAFETY: the port is attached as long as `device` lives.
        let code = unsafe { sys::shim_vhost_unwatch(self.device.id().0) };
        if let Err(error) = Errno::check(code) {
            tracing::warn!(port = self.device.name(), %error, "its peer is watched on");
        }
    }
}
