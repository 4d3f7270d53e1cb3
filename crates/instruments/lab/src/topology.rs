//! The topology of a lab, after the file was read: every name, number and address is determined here, so that the
//! builder makes no decisions.
//!
//! A [`Topology`] is valid by construction: only [`Topology::parse`] returns one, interface names are unique in their
//! node and fit the kernel, port numbers are unique in their switch, and no MAC address is used twice.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use millrace_types::{BitRate, Dpid, Mac, PortNo, Vid};

/// A lab: hosts, switches and the links between them.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Topology {
    /// The name of the lab, part of every namespace's name.
    pub name: String,
    /// True if hosts send no unsolicited packets (IPv6 router solicitation, duplicate address detection).
    pub quiet: bool,
    /// The hosts in file order.
    pub hosts: Vec<Host>,
    /// The switches in file order.
    pub switches: Vec<Switch>,
    /// The links of `ports`, switch by switch, then the links of `[[link]]`. Links of guests are not
    /// included; they are only ports of their switches.
    pub links: Vec<Link>,
}

impl Topology {
    /// Returns the namespace of the host or switch `node`.
    pub fn namespace(&self, node: &str) -> String {
        format!("mr-{}-{node}", self.name)
    }

    /// Returns the emulated paths, in the order of the links.
    pub fn wans(&self) -> impl Iterator<Item = (&LinkWan, &Link)> {
        self.links
            .iter()
            .filter_map(|link| Some((link.wan.as_ref()?, link)))
    }

    /// Returns the names of all hosts and switches, hosts first.
    pub fn nodes(&self) -> impl Iterator<Item = &str> {
        let hosts = self.hosts.iter().map(|host| host.name.as_str());
        hosts.chain(self.switches.iter().map(|switch| switch.name.as_str()))
    }
}

/// The type of a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Machine {
    /// A network namespace.
    Namespace,
    /// A virtual machine with vhost-user NICs of a switch that supports them.
    Guest(Guest),
}

/// A virtual machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Guest {
    /// The memory in MiB.
    pub memory_mib: u32,
    /// The MTU of its interfaces in bytes.
    pub mtu: u32,
    /// True if it forwards frames between its interfaces.
    pub forward: bool,
    /// True if TCP segmentation offload is negotiated: the guest sends GSO packets, and receives them unsegmented.
    pub tso: bool,
}

/// A host: a network namespace or a virtual machine, with one interface for each of its links.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    /// The name, unique in the lab.
    pub name: String,
    /// The type of the host.
    pub machine: Machine,
    /// The interfaces `eth0`, `eth1`… in the order of the host's links.
    pub interfaces: Vec<Interface>,
    /// The static routes, including default routes.
    pub routes: Vec<Route>,
}

/// One interface of a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interface {
    /// The name: `eth0`, `eth1`…
    pub name: String,
    /// The MAC address of the interface and of its VLAN subinterface.
    pub mac: Mac,
    /// The addresses of the interface, or of its VLAN subinterface if `vlan` is set.
    pub addresses: Vec<IpPrefix>,
    /// The VLAN of the subinterface `eth0.VID`, if configured.
    pub vlan: Option<Vid>,
}

/// A static route of a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Route {
    /// The destination; `0.0.0.0/0` or `::/0` for a default route.
    pub destination: IpPrefix,
    /// The next hop, of the same address family.
    pub via: IpAddr,
}

/// A switch: a namespace that contains the switch ends of its links and runs the forwarding program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Switch {
    /// The name, unique in the lab; also the name of the bridge.
    pub name: String,
    /// The datapath id: 1 for the first switch of the file, and so on.
    pub dpid: Dpid,
    /// The forwarding program.
    pub kind: SwitchKind,
    /// The ports, ordered by number.
    pub ports: Vec<SwitchPort>,
}

/// The switch's end of a link, or the vhost-user socket of a guest's NIC.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SwitchPort {
    /// The OpenFlow port number.
    pub number: PortNo,
    /// The interface in the switch's namespace, named after the node at the other end.
    pub interface: String,
    /// The MTU of its link in bytes.
    pub mtu: u32,
    /// The guest's NIC that the port connects to; `None` for the end of a link.
    pub guest: Option<GuestNic>,
}

/// An interface of a guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuestNic {
    /// The name of the guest.
    pub guest: String,
    /// The interface of the guest: `eth0`, `eth1`…
    pub interface: String,
    /// True if the guest has TCP segmentation offload.
    pub tso: bool,
}

/// The forwarding program of a switch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SwitchKind {
    /// A `millraced` for this switch alone.
    Millrace {
        /// The device type of its ports.
        device: Device,
        /// Controllers, listeners and fail mode.
        control: Control,
        /// The number of worker threads, 1 or more; the daemon's default if not given.
        workers: Option<u16>,
    },
    /// The kernel's bridge, without spanning tree and multicast snooping.
    LinuxBridge,
    /// Open vSwitch with its user-space datapath.
    Ovs {
        /// Controllers, listeners and fail mode.
        control: Control,
        /// The port type.
        ports: OvsPorts,
    },
}

/// The port type of Open vSwitch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OvsPorts {
    /// Packet sockets in the main thread of the daemon: kind `ovs`.
    System,
    /// DPDK's `net_af_packet` in a poll-mode thread: kind `ovs-dpdk`.
    Dpdk,
}

impl SwitchKind {
    /// Returns the keyword of this kind in a lab file.
    pub fn keyword(&self) -> &'static str {
        match self {
            SwitchKind::Millrace { .. } => "millrace",
            SwitchKind::LinuxBridge => "linux-bridge",
            SwitchKind::Ovs {
                ports: OvsPorts::System,
                ..
            } => "ovs",
            SwitchKind::Ovs {
                ports: OvsPorts::Dpdk,
                ..
            } => "ovs-dpdk",
        }
    }
}

/// The OpenFlow control of a switch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Control {
    /// The behaviour without a controller.
    pub fail_mode: FailMode,
    /// The controllers to connect to, as in `tcp:10.0.0.9:6653`.
    pub controllers: Vec<String>,
    /// The addresses of listeners for controllers, as in `ptcp:6653:127.0.0.1`, inside the switch's namespace.
    pub listen: Vec<String>,
}

/// The behaviour of a switch without a controller (OpenFlow 1.3.5, section 6.3.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailMode {
    /// Forward as a learning switch.
    Standalone,
    /// Forward with the existing flow entries.
    Secure,
}

impl FailMode {
    /// Returns the keyword in a lab file, in `millraced`'s configuration and in Open vSwitch.
    pub fn keyword(self) -> &'static str {
        match self {
            FailMode::Standalone => "standalone",
            FailMode::Secure => "secure",
        }
    }
}

/// The device type of `millraced` for the switch end of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Device {
    /// `Kernel`, or `AfPacket` if `Kernel` does not work, as with an older daemon.
    Auto,
    /// The kernel's interface through packet sockets, `kernel:NAME`.
    Kernel,
    /// DPDK's `net_af_xdp`.
    AfXdp,
    /// DPDK's `net_af_packet`.
    AfPacket,
}

impl Device {
    /// Returns the keyword of this device type in a lab file.
    pub fn keyword(self) -> &'static str {
        match self {
            Device::Auto => "auto",
            Device::Kernel => "kernel",
            Device::AfXdp => "af_xdp",
            Device::AfPacket => "af_packet",
        }
    }
}

/// A link: one veth pair.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// One end.
    pub a: End,
    /// The other end, on another node.
    pub b: End,
    /// The MTU in bytes, the same at both ends.
    pub mtu: u32,
    /// The rate of each direction; unlimited if `None`.
    pub rate: Option<BitRate>,
    /// The emulated path between the two ends, if there is one; the link is then two veth pairs.
    pub wan: Option<LinkWan>,
}

/// An emulated path in the middle of a link: a namespace in which `millrace-wan` runs between two interfaces.
/// The interfaces are called `a` and `b`, like the ends of the link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkWan {
    /// The name of its namespace: `wan.1` for the first link with an emulated path. No host can have this
    /// name.
    pub node: String,
    /// The options of `millrace wan between`.
    pub options: Vec<String>,
}

/// One end of a link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct End {
    /// The host or switch.
    pub node: String,
    /// The interface in the node's namespace.
    pub interface: String,
    /// The MAC address of the interface.
    pub mac: Mac,
}

/// An address with the length of its prefix, as in `10.0.0.1/24`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IpPrefix {
    address: IpAddr,
    len: u8,
}

impl IpPrefix {
    /// Returns the destination of a default route in the address family of `like`.
    pub(crate) fn everything(like: IpAddr) -> IpPrefix {
        let address = match like {
            IpAddr::V4(_) => IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED),
            IpAddr::V6(_) => IpAddr::V6(std::net::Ipv6Addr::UNSPECIFIED),
        };
        IpPrefix { address, len: 0 }
    }

    /// Returns the address, host bits included.
    pub fn address(self) -> IpAddr {
        self.address
    }

    /// Returns the length of the prefix in bits: at most 32 (IPv4) or 128 (IPv6).
    pub fn prefix_len(self) -> u8 {
        self.len
    }
}

impl fmt::Display for IpPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.len)
    }
}

/// The error for a text that is not an address with a prefix length.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not an address with a prefix length: expected the form 10.0.0.1/24 or fd00::1/64")]
pub struct IpPrefixParseError(String);

impl FromStr for IpPrefix {
    type Err = IpPrefixParseError;

    fn from_str(text: &str) -> Result<IpPrefix, IpPrefixParseError> {
        let bad = || IpPrefixParseError(text.to_owned());
        let (address, len) = text.split_once('/').ok_or_else(bad)?;
        let address: IpAddr = address.parse().map_err(|_| bad())?;
        if len.is_empty() || !len.bytes().all(|digit| digit.is_ascii_digit()) {
            return Err(bad());
        }
        let len: u8 = len.parse().map_err(|_| bad())?;
        if len > if address.is_ipv4() { 32 } else { 128 } {
            return Err(bad());
        }
        Ok(IpPrefix { address, len })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_of_both_families_round_trip() {
        for text in ["10.0.0.1/24", "0.0.0.0/0", "fd00::1/64", "::1/128"] {
            assert_eq!(text.parse::<IpPrefix>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn a_prefix_without_length_or_with_a_wrong_one_is_refused() {
        for text in [
            "10.0.0.1",
            "10.0.0.1/33",
            "fd00::1/129",
            "10.0.0.1/+8",
            "10.0.0/8",
            "/8",
            "10.0.0.1/",
        ] {
            assert!(text.parse::<IpPrefix>().is_err(), "{text}");
        }
    }
}
