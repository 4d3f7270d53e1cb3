//! The classification of packets for a hybrid switch: those of some ports and VLANs pass no flow table (OpenFlow 1.3.5,
//! section 5.1.1, which leaves the rule to the switch).

use millrace_types::{PortNo, Vid};

use crate::VidSet;

/// The ports and VLANs whose packets NORMAL forwards without the flow tables.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct NormalIngress {
    /// Sorted.
    ports: Vec<PortNo>,
    /// `None` without VLANs.
    vlans: Option<Box<VidSet>>,
}

impl NormalIngress {
    /// Returns the classification for these ports and VLANs. The VLAN of a packet is that by which NORMAL classifies it.
    pub fn new(
        ports: impl IntoIterator<Item = PortNo>,
        vlans: impl IntoIterator<Item = Vid>,
    ) -> NormalIngress {
        let mut ports: Vec<PortNo> = ports.into_iter().collect();
        ports.sort_unstable();
        ports.dedup();
        let vlans: VidSet = vlans.into_iter().collect();
        NormalIngress {
            ports,
            vlans: (vlans != VidSet::EMPTY).then(|| Box::new(vlans)),
        }
    }

    /// Returns true if the flow tables get all packets.
    pub fn is_empty(&self) -> bool {
        self.ports.is_empty() && self.vlans.is_none()
    }

    #[inline]
    pub(crate) fn has_port(&self, port: PortNo) -> bool {
        self.ports.binary_search(&port).is_ok()
    }

    #[inline]
    pub(crate) fn vlans(&self) -> Option<&VidSet> {
        self.vlans.as_deref()
    }
}
