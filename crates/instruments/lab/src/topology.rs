//! What a lab is made of, after the file has been read: every name, number and address is decided here, so
//! that building is only doing.
//!
//! A [`Topology`] is legal by construction: it comes only from [`Topology::parse`], interface names are
//! unique in their node and fit the kernel, port numbers are unique in their switch, and no MAC address is
//! used twice.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use millrace_types::{BitRate, Dpid, Mac, PortNo, Vid};

/// A whole lab: hosts, switches and the links between them.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Topology {
    /// The lab's name, part of every namespace's name.
    pub name: String,
    /// Whether hosts are kept from talking unasked (IPv6 router solicitation, duplicate address detection).
    pub quiet: bool,
    /// In file order.
    pub hosts: Vec<Host>,
    /// In file order.
    pub switches: Vec<Switch>,
    /// The links of `ports` first, switch by switch, then those of `[[link]]`; without those of guests, which are ports
    /// of their switches alone.
    pub links: Vec<Link>,
}

impl Topology {
    /// The namespace in which the host or switch `node` lives.
    pub fn namespace(&self, node: &str) -> String {
        format!("mr-{}-{node}", self.name)
    }

    /// All hosts and switches by name, hosts first.
    pub fn nodes(&self) -> impl Iterator<Item = &str> {
        let hosts = self.hosts.iter().map(|host| host.name.as_str());
        hosts.chain(self.switches.iter().map(|switch| switch.name.as_str()))
    }
}

/// What a host is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Machine {
    /// A network namespace.
    Namespace,
    /// A virtual machine, with vhost-user NICs of a switch that has such.
    Guest(Guest),
}

/// A virtual machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Guest {
    /// Its memory, in MiB.
    pub memory_mib: u32,
    /// Octets of payload that one frame of its interfaces carries.
    pub mtu: u32,
    /// Whether it forwards frames between its interfaces.
    pub forward: bool,
    /// Whether it leaves the cutting of TCP into segments to its switch, and gets what others left so.
    pub tso: bool,
}

/// A host: a network namespace or a virtual machine, with one interface for each of its links.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    /// Unique in the lab.
    pub name: String,
    /// What it is.
    pub machine: Machine,
    /// `eth0`, `eth1`… in the order of the host's links.
    pub interfaces: Vec<Interface>,
    /// Static routes, default routes included.
    pub routes: Vec<Route>,
}

/// One interface of a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interface {
    /// `eth0`, `eth1`…
    pub name: String,
    /// Of the interface, and of its VLAN subinterface.
    pub mac: Mac,
    /// On the interface, or on its VLAN subinterface if `vlan` is set.
    pub addresses: Vec<IpPrefix>,
    /// The VLAN of the subinterface `eth0.VID`, if one is wanted.
    pub vlan: Option<Vid>,
}

/// A static route of a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Route {
    /// `0.0.0.0/0` or `::/0` for a default route.
    pub destination: IpPrefix,
    /// The next hop, of the same family.
    pub via: IpAddr,
}

/// A switch: a namespace that holds the switch ends of its links and runs what forwards between them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Switch {
    /// Unique in the lab; also the name of the bridge.
    pub name: String,
    /// The datapath identifier: 1 for the first switch of the file, and so on.
    pub dpid: Dpid,
    /// What forwards.
    pub kind: SwitchKind,
    /// In order of their numbers.
    pub ports: Vec<SwitchPort>,
}

/// A port of a switch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SwitchPort {
    /// The OpenFlow port number.
    pub number: PortNo,
    /// The interface in the switch's namespace: the name of the node at the other end.
    pub interface: String,
    /// That of its link, in octets.
    pub mtu: u32,
    /// The NIC of a guest that it is; the end of a link otherwise.
    pub guest: Option<GuestNic>,
}

/// An interface of a guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuestNic {
    /// The guest.
    pub guest: String,
    /// `eth0`, `eth1`…
    pub interface: String,
    /// As the guest's.
    pub tso: bool,
}

/// What forwards in a switch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SwitchKind {
    /// A `millraced` of its own.
    Millrace {
        /// How the daemon reaches its ports.
        device: Device,
        /// Controllers, listeners and fail mode.
        control: Control,
        /// Worker threads of the data plane, 1 or more; the daemon's default if not given.
        workers: Option<u16>,
    },
    /// The kernel's bridge, as shipped, without spanning tree and multicast snooping.
    LinuxBridge,
    /// Open vSwitch with its user-space datapath.
    Ovs {
        /// Controllers, listeners and fail mode.
        control: Control,
        /// How it reaches its ports.
        ports: OvsPorts,
    },
}

/// How Open vSwitch reaches the switch end of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OvsPorts {
    /// By its own sockets, in the thread of the daemon: kind `ovs`.
    System,
    /// By DPDK's `net_af_packet`, in a thread that polls all the time: kind `ovs-dpdk`.
    Dpdk,
}

impl SwitchKind {
    /// The word of the lab file.
    pub fn word(&self) -> &'static str {
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

/// Who controls a switch that speaks OpenFlow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Control {
    /// What the switch does without a controller.
    pub fail_mode: FailMode,
    /// Controllers to connect to, as in `tcp:10.0.0.9:6653`.
    pub controllers: Vec<String>,
    /// Where to listen for controllers, as in `ptcp:6653:127.0.0.1`, inside the switch's namespace.
    pub listen: Vec<String>,
}

/// What a switch does while it has no controller (OpenFlow 1.3.5, section 6.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailMode {
    /// It is a learning switch.
    Standalone,
    /// It goes on with the flow entries that it has.
    Secure,
}

impl FailMode {
    /// The word of the lab file, of `millraced`'s configuration and of Open vSwitch.
    pub fn word(self) -> &'static str {
        match self {
            FailMode::Standalone => "standalone",
            FailMode::Secure => "secure",
        }
    }
}

/// How `millraced` reaches the switch end of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Device {
    /// `Kernel`, and `AfPacket` if that does not work here: a daemon may be older.
    Auto,
    /// The kernel's interface, `kernel:NAME`.
    Kernel,
    /// DPDK's `net_af_xdp`.
    AfXdp,
    /// DPDK's `net_af_packet`.
    AfPacket,
}

impl Device {
    /// The word of the lab file.
    pub fn word(self) -> &'static str {
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
    /// Octets of payload that one frame carries, the same at both ends.
    pub mtu: u32,
    /// The rate of each direction; unlimited if not given.
    pub rate: Option<BitRate>,
}

/// One end of a link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct End {
    /// The host or switch.
    pub node: String,
    /// The interface in the node's namespace.
    pub interface: String,
    /// Its address.
    pub mac: Mac,
}

/// An address with the length of its prefix, as in `10.0.0.1/24`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IpPrefix {
    address: IpAddr,
    len: u8,
}

impl IpPrefix {
    /// The default route's destination in the family of `like`.
    pub(crate) fn everything(like: IpAddr) -> IpPrefix {
        let address = match like {
            IpAddr::V4(_) => IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED),
            IpAddr::V6(_) => IpAddr::V6(std::net::Ipv6Addr::UNSPECIFIED),
        };
        IpPrefix { address, len: 0 }
    }

    /// The address, host bits included.
    pub fn address(self) -> IpAddr {
        self.address
    }

    /// Bits of the prefix: at most 32 (IPv4) or 128 (IPv6).
    pub fn prefix_len(self) -> u8 {
        self.len
    }
}

impl fmt::Display for IpPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.len)
    }
}

/// Text that is not an address with a prefix length.
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
