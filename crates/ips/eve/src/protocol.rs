//! Numbers of IP protocols (IANA, "Protocol Numbers").

pub(crate) const ICMP: u8 = 1;
pub(crate) const TCP: u8 = 6;
pub(crate) const UDP: u8 = 17;
pub(crate) const ICMPV6: u8 = 58;
pub(crate) const SCTP: u8 = 132;

/// Returns true for TCP, UDP and SCTP.
pub(crate) fn has_ports(protocol: u8) -> bool {
    matches!(protocol, TCP | UDP | SCTP)
}
