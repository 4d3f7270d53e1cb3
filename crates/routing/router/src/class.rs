//! The classes of packets for the kernel. Each has a rate of its own, so that a flood of one class leaves the others
//! alone: an attacker who fills the class of BGP delays no OSPF hello and no ARP reply.

use millrace_wire::IpProto;

use crate::limit::PacketRate;

macro_rules! classes {
    ($( $(#[$doc:meta])* $variant:ident = $name:literal, $per_second:literal; )*) => {
        /// A class of packets for the kernel.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[repr(u8)]
        pub enum PuntClass {
            $( $(#[$doc])* $variant, )*
        }

        impl PuntClass {
            /// Every class.
            pub const ALL: [PuntClass; PuntClass::COUNT] = [$(PuntClass::$variant),*];
            /// The number of classes.
            pub const COUNT: usize = [$($name),*].len();

            /// Returns the stable name: lower case and underscores.
            pub const fn name(self) -> &'static str {
                match self { $( PuntClass::$variant => $name, )* }
            }

            /// Returns the default rate of the class in one worker.
            pub const fn default_rate(self) -> PacketRate {
                match self { $( PuntClass::$variant => rate($per_second), )* }
            }
        }
    };
}

/// A tenth of a second may pass at once: daemons answer whole tables of neighbours in a row.
const fn rate(per_second: u32) -> PacketRate {
    PacketRate {
        per_second,
        burst: per_second / 10,
    }
}

classes! {
    /// ARP and neighbour discovery.
    Neighbours = "neighbours", 2000;
    /// OSPF (RFC 2328, RFC 5340).
    Ospf = "ospf", 5000;
    /// BGP (RFC 4271). A full table is some hundred thousand segments.
    Bgp = "bgp", 100_000;
    /// BFD (RFC 5881, RFC 5883).
    Bfd = "bfd", 20_000;
    /// IS-IS in 802.3 frames (ISO 10589).
    IsIs = "isis", 5000;
    /// VRRP (RFC 9568).
    Vrrp = "vrrp", 1000;
    /// DHCP and DHCPv6.
    Dhcp = "dhcp", 1000;
    /// Packets that wait for the address of a neighbour; see [`crate::Glean`].
    Glean = "glean", 1000;
    /// Packets for the router with IP options or hop-by-hop options.
    Options = "options", 500;
    /// All others for the router: ping, SSH, multicast of the link.
    Local = "local", 20_000;
}

/// Protocol numbers (IANA, "Protocol Numbers").
const OSPF: IpProto = IpProto(89);
const VRRP: IpProto = IpProto(112);
/// Ports (IANA, "Service Name and Transport Protocol Port Number Registry").
const BGP: u16 = 179;
const BFD: [u16; 3] = [3784, 3785, 4784];
const DHCP: [u16; 4] = [67, 68, 546, 547];
/// ICMPv6 types of neighbour discovery: router solicitation to redirect (RFC 4861).
const NEIGHBOUR_DISCOVERY: core::ops::RangeInclusive<u8> = 133..=137;

impl PuntClass {
    /// Returns the class of a packet for the router. `transport` begins at the transport header, and is empty in a later
    /// fragment.
    pub(crate) fn of(proto: IpProto, transport: &[u8], has_options: bool) -> PuntClass {
        let port = |at: usize| match transport.get(at..at + 2) {
            Some([high, low]) => u16::from_be_bytes([*high, *low]),
            _ => 0,
        };
        match proto {
            OSPF => PuntClass::Ospf,
            VRRP => PuntClass::Vrrp,
            IpProto::TCP if port(0) == BGP || port(2) == BGP => PuntClass::Bgp,
            IpProto::UDP if BFD.contains(&port(2)) => PuntClass::Bfd,
            IpProto::UDP if DHCP.contains(&port(2)) => PuntClass::Dhcp,
            IpProto::ICMPV6 if is_neighbour_discovery(transport) => PuntClass::Neighbours,
            _ if has_options => PuntClass::Options,
            _ => PuntClass::Local,
        }
    }
}

/// Returns true for a message of neighbour discovery.
pub(crate) fn is_neighbour_discovery(icmpv6: &[u8]) -> bool {
    icmpv6
        .first()
        .is_some_and(|kind| NEIGHBOUR_DISCOVERY.contains(kind))
}
