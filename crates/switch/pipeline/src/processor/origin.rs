//! The pipeline fields that the bytes of packets do not contain.

use millrace_flow::{Field, FlowKey};
use millrace_types::PortNo;

/// The origin of packets: the pipeline fields that their bytes do not contain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Origin {
    /// The ingress port.
    pub in_port: PortNo,
    /// The physical port under a logical one; otherwise the ingress port.
    pub in_phy_port: PortNo,
    /// The metadata of a logical port; zero otherwise.
    pub tunnel_id: u64,
    /// The initial metadata; zero for packets that come from a port.
    pub metadata: u64,
}

impl From<PortNo> for Origin {
    fn from(in_port: PortNo) -> Origin {
        Origin {
            in_port,
            in_phy_port: in_port,
            tunnel_id: 0,
            metadata: 0,
        }
    }
}

impl Origin {
    /// Returns a key with the pipeline fields only.
    #[inline]
    pub(crate) fn key(&self) -> FlowKey {
        let mut key = FlowKey::default();
        key.set_field(Field::InPort, u128::from(self.in_port.raw()));
        key.set_field(Field::InPhyPort, u128::from(self.in_phy_port.raw()));
        key.set_field(Field::Metadata, u128::from(self.metadata));
        key.set_field(Field::TunnelId, u128::from(self.tunnel_id));
        key
    }
}
