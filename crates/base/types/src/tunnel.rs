//! How a tunnel puts packets into others: what its configuration names and its packets show.

use core::fmt;

/// How a packet is put into another.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum TunnelKind {
    /// An Ethernet frame in UDP, with a network of 24 bits.
    Vxlan,
    /// An Ethernet frame in GRE, perhaps with a key of 32 bits.
    Gre,
    /// An IP packet in UDP, with a tunnel endpoint of 32 bits.
    GtpU,
    /// An MPLS label stack in UDP, which tells by itself where it belongs.
    MplsUdp,
}

impl TunnelKind {
    /// All kinds.
    pub const ALL: [TunnelKind; 4] = [
        TunnelKind::Vxlan,
        TunnelKind::Gre,
        TunnelKind::GtpU,
        TunnelKind::MplsUdp,
    ];

    /// The name in a configuration.
    pub const fn name(self) -> &'static str {
        match self {
            TunnelKind::Vxlan => "vxlan",
            TunnelKind::Gre => "gre",
            TunnelKind::GtpU => "gtpu",
            TunnelKind::MplsUdp => "mplsudp",
        }
    }

    /// The destination port that IANA assigned, where it is UDP.
    pub const fn udp_port(self) -> Option<u16> {
        match self {
            TunnelKind::Vxlan => Some(4789),
            TunnelKind::GtpU => Some(2152),
            TunnelKind::MplsUdp => Some(6635),
            TunnelKind::Gre => None,
        }
    }

    /// The greatest key.
    pub const fn key_max(self) -> u32 {
        match self {
            TunnelKind::Vxlan => 0xff_ffff,
            TunnelKind::Gre | TunnelKind::GtpU => u32::MAX,
            TunnelKind::MplsUdp => 0,
        }
    }

    /// Whether Ethernet frames are inside; otherwise what is inside them is.
    pub const fn carries_ethernet(self) -> bool {
        matches!(self, TunnelKind::Vxlan | TunnelKind::Gre)
    }
}

impl fmt::Display for TunnelKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
