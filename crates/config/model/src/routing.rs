//! Routing: VRFs, their interfaces, and access lists.
//!
//! Routes are not configured here: they belong to the kernel of the namespace of a VRF, where `ip route`, FRR or BIRD
//! set them (docs/routing.md).

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use millrace_flow::{Field as MatchField, Match};
use millrace_types::{Mac, PortNo, Vid};
use thiserror::Error;

use crate::choice::InterfaceEgress;
use crate::decode::text_field;
use crate::name::{AclName, BridgeName, DescriptionText, InterfaceName, NamespaceName, VrfName, derived_mac};
use crate::node::shorten;
use crate::number::{KernelTable, Mtu};
use crate::section::{deserialize, section};

section! {
    /// A VRF: a set of routes of its own, which are those of a table of the kernel in a network namespace.
    pub struct Vrf (live, by name) {
        required {
            /// The name of the VRF, unique in the switch.
            pub name: VrfName,
        }
        optional {
            /// The network namespace, as `ip netns` names it, in which the interfaces of the VRF appear and where
            /// routing protocols run. Unset, the namespace of `millraced`.
            pub netns: Option<NamespaceName> = None,
            /// The table of the kernel that holds the routes: 254 is `main`.
            pub table: KernelTable = KernelTable::MAIN,
            /// The source of routes: `netlink`, the kernel's table, whoever wrote them; or `fpm:IP:PORT`, where FRR's
            /// `dplane_fpm_nl` connects, for more than about 50,000 routes. The address is in the namespace.
            pub routes: RouteSource = RouteSource::Netlink,
        }
    }
}

section! {
    /// An interface of the router: a VLAN of a bridge, or a bridge without VLANs, with addresses. The kernel has an
    /// interface of the same name in the namespace of the VRF, which routing protocols use.
    pub struct Interface (live, by name) {
        required {
            /// The name of the interface, unique in its namespace.
            pub name: InterfaceName,
            /// The VRF.
            pub vrf: VrfName,
            /// The bridge. For a routed port, a bridge with this one port.
            pub bridge: BridgeName,
        }
        optional {
            /// The VLAN of the bridge. Unset, untagged packets of ports without VLAN.
            pub vlan: Option<Vid> = None,
            /// The addresses, each with the length of its prefix: `10.0.10.1/24`. One bridge and VLAN has one interface.
            pub addresses as "address": Vec<InterfaceAddress> = Vec::new(),
            /// The MAC address. Unset, an address derived from the names of bridge and interface.
            pub mac: Option<UnicastMac> = None,
            /// The largest layer-3 packet, in bytes. Larger packets are fragmented (IPv4), or their sender is told.
            pub mtu: Mtu = Mtu::ETHERNET,
            /// The access list for packets that the router receives here, those for itself included.
            pub acl_in: Option<AclName> = None,
            /// The access list for packets that the router forwards to here.
            pub acl_out: Option<AclName> = None,
            /// The way of routed packets into the bridge.
            pub egress: InterfaceEgress = InterfaceEgress::Direct,
            /// An OpenFlow port number: `output` to it gives a packet to the router as if this interface had received it,
            /// and with `egress = "tables"` it is the `in_port` of routed packets. Unset, the interface is no port.
            pub number: Option<PortNo> = None,
        }
    }
}

section! {
    /// An access list: the first rule that a packet matches decides, and a packet that matches none is denied.
    pub struct Acl (live, by name) {
        required {
            /// The name of the list, unique in the switch.
            pub name: AclName,
            /// The rules, in order: `permit` or `deny`, and a match as `ovs-ofctl` writes it, of fields of IP, ICMP, TCP,
            /// UDP and SCTP: `permit tcp,nw_src=192.0.2.0/24,tp_dst=22`, `deny ip`, `permit ipv6`. A fragment other
            /// than the first has no ports, so rules with ports do not match it.
            pub rules: Vec<AclRule>,
        }
        optional {
            /// A description for people.
            pub description: Option<DescriptionText<255>> = None,
        }
    }
}

deserialize!(Vrf, Interface, Acl);

impl Vrf {
    /// Returns the VRF that carries tunnels with [`Underlay::Host`](crate::Underlay::Host): the table main of the namespace of
    /// the switch. It is not configured.
    pub fn of_host() -> Vrf {
        Vrf::new(VrfName::host())
    }

    /// Returns the namespace and the table, which no other VRF has.
    pub fn key(&self) -> (Option<&NamespaceName>, KernelTable) {
        (self.netns.as_ref(), self.table)
    }
}

impl Interface {
    /// Returns the MAC address: the configured one, or else a locally administered one that is derived from the names
    /// of bridge and interface.
    pub fn mac_address(&self) -> Mac {
        self.mac.map_or_else(
            || {
                let names = self.bridge.as_str().bytes().chain([b'/']);
                derived_mac(names.chain(self.name.as_str().bytes()))
            },
            UnicastMac::get,
        )
    }

    /// Returns the VLAN in the bridge, zero for none.
    pub fn vid(&self) -> Vid {
        self.vlan.unwrap_or_default()
    }
}

/// The source of the routes of a VRF.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RouteSource {
    /// The table of the kernel, by netlink.
    Netlink,
    /// FRR's forwarding plane manager, which connects to this address in the namespace of the VRF.
    Fpm(SocketAddr),
}

/// The error for a text that is no source of routes.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("`{}` is not a source of routes: expected netlink, or fpm:IP:PORT as in fpm:127.0.0.1:2620", shorten(.text))]
pub struct RouteSourceError {
    /// The rejected text.
    pub text: String,
}

impl fmt::Display for RouteSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RouteSource::Netlink => f.write_str("netlink"),
            RouteSource::Fpm(address) => write!(f, "fpm:{address}"),
        }
    }
}

impl FromStr for RouteSource {
    type Err = RouteSourceError;

    fn from_str(text: &str) -> Result<RouteSource, RouteSourceError> {
        if text == "netlink" {
            return Ok(RouteSource::Netlink);
        }
        let address = text
            .strip_prefix("fpm:")
            .and_then(|address| address.parse::<SocketAddr>().ok());
        let address = address.filter(|address| address.port() != 0);
        address.map(RouteSource::Fpm).ok_or_else(|| RouteSourceError {
            text: text.to_owned(),
        })
    }
}

text_field!(RouteSource, "`netlink` or `fpm:IP:PORT`", "netlink");

/// An address of an interface and the length of its prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InterfaceAddress {
    address: IpAddr,
    prefix_len: u8,
}

/// The error for a text that is no address of an interface.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("`{}` is not an address of an interface: {reason}", shorten(.text))]
pub struct InterfaceAddressError {
    /// The rejected text.
    pub text: String,
    /// The reason and the expected form.
    pub reason: &'static str,
}

impl InterfaceAddress {
    /// Returns the address.
    pub fn address(self) -> IpAddr {
        self.address
    }

    /// Returns the length of the prefix of the network: at most 32 for IPv4 and 128 for IPv6.
    pub fn prefix_len(self) -> u8 {
        self.prefix_len
    }

    /// Returns the number of bits of the address that name the host.
    fn host_bits(address: IpAddr, prefix_len: u8) -> u8 {
        let bits = if address.is_ipv4() { 32 } else { 128 };
        bits - prefix_len
    }

    fn check(address: IpAddr, prefix_len: u8) -> Result<(), &'static str> {
        if address.is_unspecified() || address.is_multicast() || prefix_len == 0 {
            return Err("expected a unicast address and a prefix of at least one bit");
        }
        let host_bits = Self::host_bits(address, prefix_len);
        if let IpAddr::V4(address) = address {
            let mask = u32::MAX.checked_shr(32 - u32::from(host_bits)).unwrap_or(0);
            let host = address.to_bits() & mask;
            // RFC 3021: a prefix of 31 bits has neither network nor broadcast address.
            if host_bits > 1 && (host == 0 || host == mask) {
                return Err("it is the network's or the broadcast address: expected an address of a host");
            }
            if address.is_broadcast()
                || address
                    .octets()
                    .first()
                    .is_some_and(|first| *first >= 240 || *first == 0)
            {
                return Err("expected a unicast address and a prefix of at least one bit");
            }
        }
        Ok(())
    }
}

impl fmt::Display for InterfaceAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix_len)
    }
}

impl FromStr for InterfaceAddress {
    type Err = InterfaceAddressError;

    fn from_str(text: &str) -> Result<InterfaceAddress, InterfaceAddressError> {
        let refuse = |reason| InterfaceAddressError {
            text: text.to_owned(),
            reason,
        };
        let form = "expected IP/LENGTH as in 10.0.10.1/24 or 2001:db8:10::1/64";
        let (address, length) = text.split_once('/').ok_or_else(|| refuse(form))?;
        let address = address.parse::<IpAddr>().map_err(|_| refuse(form))?;
        let max = if address.is_ipv4() { 32 } else { 128 };
        let is_number = length.bytes().all(|c| c.is_ascii_digit());
        let prefix_len = length
            .parse::<u8>()
            .ok()
            .filter(|length| is_number && *length <= max);
        let prefix_len = prefix_len.ok_or_else(|| refuse(form))?;
        Self::check(address, prefix_len).map_err(refuse)?;
        Ok(InterfaceAddress { address, prefix_len })
    }
}

text_field!(
    InterfaceAddress,
    "an IP address and the length of its prefix",
    "10.0.10.1/24"
);

/// The MAC address of one interface: neither a group's nor zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnicastMac(Mac);

/// The error for a text that is not the MAC address of one interface.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("`{}` is not a MAC address of one interface: expected one as in 02:00:00:00:00:01, whose first byte is even, and not zero", shorten(.text))]
pub struct UnicastMacError {
    /// The rejected text.
    pub text: String,
}

impl UnicastMac {
    /// Returns the address.
    pub fn get(self) -> Mac {
        self.0
    }
}

impl fmt::Display for UnicastMac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for UnicastMac {
    type Err = UnicastMacError;

    fn from_str(text: &str) -> Result<UnicastMac, UnicastMacError> {
        match text.parse::<Mac>() {
            Ok(mac) if !mac.is_multicast() && mac != Mac::ZERO => Ok(UnicastMac(mac)),
            _ => Err(UnicastMacError {
                text: text.to_owned(),
            }),
        }
    }
}

text_field!(UnicastMac, "a MAC address", "02:00:00:00:00:01");

/// A rule of an access list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AclRule {
    permits: bool,
    matches: Match,
}

/// The error for a text that is no rule of an access list.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("`{}` is not a rule: {reason}", shorten(.text))]
pub struct AclRuleError {
    /// The rejected text.
    pub text: String,
    /// The reason and the expected form.
    pub reason: String,
}

impl AclRule {
    /// Returns true if packets that match are permitted, false if they are denied.
    pub fn permits(&self) -> bool {
        self.permits
    }

    /// Returns the packets that match.
    pub fn matches(&self) -> &Match {
        &self.matches
    }
}

/// Returns true for a field that an access list may name: one of IP or of what it carries.
fn is_of_ip(field: MatchField) -> bool {
    use MatchField::{
        EthType, Icmpv4Code, Icmpv4Type, Icmpv6Code, Icmpv6Type, IpDscp, IpEcn, IpProto, Ipv4Dst, Ipv4Src,
        Ipv6Dst, Ipv6Flabel, Ipv6Src, SctpDst, SctpSrc, TcpDst, TcpFlags, TcpSrc, UdpDst, UdpSrc,
    };
    matches!(
        field,
        EthType
            | IpDscp
            | IpEcn
            | IpProto
            | Ipv4Src
            | Ipv4Dst
            | Ipv6Src
            | Ipv6Dst
            | Ipv6Flabel
            | TcpSrc
            | TcpDst
            | TcpFlags
            | UdpSrc
            | UdpDst
            | SctpSrc
            | SctpDst
            | Icmpv4Type
            | Icmpv4Code
            | Icmpv6Type
            | Icmpv6Code
    )
}

impl fmt::Display for AclRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = if self.permits { "permit" } else { "deny" };
        write!(f, "{verdict} {}", self.matches)
    }
}

impl FromStr for AclRule {
    type Err = AclRuleError;

    fn from_str(text: &str) -> Result<AclRule, AclRuleError> {
        let refuse = |reason: String| AclRuleError {
            text: text.to_owned(),
            reason,
        };
        let form = "expected `permit MATCH` or `deny MATCH` as in `permit tcp,nw_src=192.0.2.0/24,tp_dst=22`";
        let (permits, matches) = match text.trim().split_once(char::is_whitespace) {
            Some(("permit", matches)) => (true, matches),
            Some(("deny", matches)) => (false, matches),
            _ => return Err(refuse(form.to_owned())),
        };
        let matches = matches
            .trim()
            .parse::<Match>()
            .map_err(|error| refuse(format!("{error}; {form}")))?;
        let ether_type = matches.field(MatchField::EthType).map(|field| field.value);
        if !matches!(ether_type, Some(0x0800 | 0x86dd)) {
            return Err(refuse(
                "it is not about IPv4 or IPv6: expected `ip`, `ipv6`, `tcp`, `tcp6` or the like first"
                    .to_owned(),
            ));
        }
        if let Some(other) = matches.iter().find(|field| !is_of_ip(field.field)) {
            return Err(refuse(format!(
                "a router does not see `{}`: expected fields of IP, ICMP, TCP, UDP or SCTP",
                other.field.name()
            )));
        }
        Ok(AclRule { permits, matches })
    }
}

text_field!(
    AclRule,
    "`permit MATCH` or `deny MATCH`",
    "permit tcp,nw_src=192.0.2.0/24,tp_dst=22"
);
