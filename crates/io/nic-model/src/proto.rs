//! Numbers of IP protocols and extension headers (IANA, "Protocol Numbers").

pub(crate) const HOP_BY_HOP: u8 = 0;
pub(crate) const ICMPV4: u8 = 1;
pub(crate) const IPV4: u8 = 4;
pub(crate) const TCP: u8 = 6;
pub(crate) const UDP: u8 = 17;
pub(crate) const DCCP: u8 = 33;
pub(crate) const IPV6: u8 = 41;
pub(crate) const ROUTING: u8 = 43;
pub(crate) const FRAGMENT: u8 = 44;
pub(crate) const GRE: u8 = 47;
pub(crate) const ESP: u8 = 50;
pub(crate) const AH: u8 = 51;
pub(crate) const ICMPV6: u8 = 58;
pub(crate) const NO_NEXT: u8 = 59;
pub(crate) const DEST_OPTIONS: u8 = 60;
pub(crate) const OSPF: u8 = 89;
pub(crate) const SCTP: u8 = 132;
pub(crate) const MOBILITY: u8 = 135;
pub(crate) const UDP_LITE: u8 = 136;
