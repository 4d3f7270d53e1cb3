//! Numbers of the headers that the flow hash parses.

pub(super) mod ether_type {
    /// The lowest EtherType; a lower value is a length.
    pub(crate) const MIN: u16 = crate::EtherType::MIN.0;
    pub(crate) const IPV4: u16 = 0x0800;
    pub(crate) const ARP: u16 = 0x0806;
    pub(crate) const TRANSPARENT_ETHERNET: u16 = 0x6558;
    pub(crate) const VLAN: u16 = 0x8100;
    pub(crate) const IPV6: u16 = 0x86dd;
    pub(crate) const MPLS: u16 = 0x8847;
    pub(crate) const MPLS_UPSTREAM: u16 = 0x8848;
    pub(crate) const SERVICE_VLAN: u16 = 0x88a8;
    pub(crate) const PBB: u16 = 0x88e7;
    /// The EtherType that some switches put in front of an outer tag, before IEEE 802.1ad.
    pub(crate) const OLD_SERVICE_VLAN: u16 = 0x9100;
}

pub(super) mod proto {
    pub(crate) const ICMPV4: u8 = 1;
    pub(crate) const IPV4: u8 = 4;
    pub(crate) const TCP: u8 = 6;
    pub(crate) const UDP: u8 = 17;
    pub(crate) const DCCP: u8 = 33;
    pub(crate) const IPV6: u8 = 41;
    pub(crate) const GRE: u8 = 47;
    pub(crate) const ICMPV6: u8 = 58;
    pub(crate) const SCTP: u8 = 132;
    pub(crate) const UDP_LITE: u8 = 136;
}

/// UDP destination ports of tunnels.
pub(super) mod port {
    pub(crate) const GTP_U: u16 = 2152;
    pub(crate) const VXLAN: u16 = 4789;
    pub(crate) const GENEVE: u16 = 6081;
    pub(crate) const MPLS: u16 = 6635;
    /// The default port of VXLAN in Linux.
    pub(crate) const VXLAN_LINUX: u16 = 8472;

    pub(crate) const TUNNELS: [u16; 5] = [GTP_U, VXLAN, GENEVE, MPLS, VXLAN_LINUX];
}
