//! The kinds of tunnels.

use core::fmt;

/// An encapsulation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum TunnelKind {
    /// VXLAN: an Ethernet frame in UDP, with a 24-bit network identifier.
    Vxlan,
    /// GRE: an Ethernet frame, with an optional 32-bit key.
    Gre,
    /// GTP-U: an IP packet in UDP, with a 32-bit tunnel endpoint identifier.
    GtpU,
    /// MPLS over UDP: a label stack, which identifies the tunnel.
    MplsUdp,
}

impl TunnelKind {
    /// All encapsulations.
    pub const ALL: [TunnelKind; 4] = [
        TunnelKind::Vxlan,
        TunnelKind::Gre,
        TunnelKind::GtpU,
        TunnelKind::MplsUdp,
    ];

    /// Returns the name in the configuration.
    pub const fn name(self) -> &'static str {
        match self {
            TunnelKind::Vxlan => "vxlan",
            TunnelKind::Gre => "gre",
            TunnelKind::GtpU => "gtpu",
            TunnelKind::MplsUdp => "mplsudp",
        }
    }

    /// Returns the UDP destination port that IANA assigned, or `None` for GRE.
    pub const fn udp_port(self) -> Option<u16> {
        match self {
            TunnelKind::Vxlan => Some(4789),
            TunnelKind::GtpU => Some(2152),
            TunnelKind::MplsUdp => Some(6635),
            TunnelKind::Gre => None,
        }
    }

    /// Returns the largest key.
    pub const fn key_max(self) -> u32 {
        match self {
            TunnelKind::Vxlan => 0xff_ffff,
            TunnelKind::Gre | TunnelKind::GtpU => u32::MAX,
            TunnelKind::MplsUdp => 0,
        }
    }

    /// Returns true if the payload is an Ethernet frame.
    pub const fn carries_ethernet(self) -> bool {
        matches!(self, TunnelKind::Vxlan | TunnelKind::Gre)
    }
}

impl fmt::Display for TunnelKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
