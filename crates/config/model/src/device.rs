//! The device of a port. One line of text names any device; it is parsed here, once, so that the data plane never
//! parses text.
//!
//! | text | device |
//! | --- | --- |
//! | `0000:01:00.0` | a NIC by PCI address, through its DPDK driver; `,key=value` adds devargs |
//! | `net_af_packet0,iface=veth1` | any DPDK virtual device by its devargs |
//! | `pcap:rx=in.pcap,tx=out.pcap` | capture files, without DPDK; `loop=true` repeats the file endlessly |
//! | `link:NAME` | one end of a link inside the switch; the other port with the same name is the other end |
//! | `wan:NAME,a`, `wan:NAME,b` | one end of the emulated path that `[[wan]]` describes |
//! | `kernel:NAME` | an existing interface of the kernel, by packet sockets; without DPDK, with CAP_NET_RAW |
//! | `tap:NAME` | a kernel interface that Millrace creates, for the machine itself; without DPDK |
//! | `vhost:PATH`, `virtio-user:PATH`, `memif:PATH` | a virtual NIC: a virtual machine, a container or a process |
//! | `nic:PATH` | a NIC that classifies and dispatches packets, in the process `millrace-nic` |
//! | `vxlan:…`, `gre:…`, `gtpu:…`, `mplsudp:…` | a logical port: packets are sent encapsulated by a port of the same bridge |
//! | `nsh:…` | a logical port of service paths: packets are sent with a network service header by a port of the same bridge |
//! | `lag:NAME` | the members of the `[[bridge.lag]]` NAME as one port |
//! | `memory` | queues in memory, without DPDK: for tests, and as a sink of packets |

mod dpdk;
mod pcap;
mod wan;

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use millrace_types::TunnelKind;
use thiserror::Error;

use crate::decode::{nearest, text_field};
use crate::name::{ChainName, InterfaceName, LagName, LinkName, PortName};
use crate::node::shorten;
use crate::nsh::Nsh;
use crate::tunnel::{Tunnel, Underlay};
use crate::vnic::{Vnic, VnicKind, socket_path};
use dpdk::DRIVERS;

pub use dpdk::{DevArgs, PciAddress, PciDevice, Vdev};
pub use pcap::PcapFiles;
pub use wan::WanEnd;

/// The error for a text that is not a device.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("`{}` is not a device: {reason}", shorten(.text))]
pub struct DeviceError {
    /// The rejected text.
    pub text: String,
    /// The reason and the expected form.
    pub reason: String,
}

/// The device behind a port.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Device {
    /// A PCI NIC.
    Pci(PciDevice),
    /// A DPDK virtual device.
    Vdev(Vdev),
    /// Capture files, without DPDK.
    Pcap(PcapFiles),
    /// One end of a link between two ports of this switch.
    Link(LinkName),
    /// One end of an emulated path.
    Wan(WanEnd),
    /// A tap device: the kernel receives the packets that the switch sends, and sends the packets that the
    /// switch receives.
    Tap(InterfaceName),
    /// An existing interface of the kernel, through packet sockets.
    Kernel(InterfaceName),
    /// No device: a logical port of a tunnel. Another port carries the packets.
    Tunnel(Box<Tunnel>),
    /// No device: a logical port of service paths. Another port carries the packets.
    Nsh(Box<Nsh>),
    /// A virtual NIC, reached by a Unix socket.
    Vnic(Box<Vnic>),
    /// The members of a LAG of the bridge.
    Lag(LagName),
    /// A NIC that classifies and dispatches packets, by the socket of its process: absolute, at most 107 bytes.
    Nic(PathBuf),
    /// Queues in memory.
    Memory,
    /// A logical port of a chain. `[[bridge.chain]]` creates it; no text parses to it.
    Chain(ChainName),
}

impl Device {
    /// Returns true if the device needs DPDK.
    pub fn needs_dpdk(&self) -> bool {
        match self {
            Device::Pci(_) | Device::Vdev(_) => true,
            Device::Vnic(vnic) => vnic.kind() == VnicKind::VirtioUser,
            Device::Pcap(_)
            | Device::Link(_)
            | Device::Wan(_)
            | Device::Tap(_)
            | Device::Kernel(_)
            | Device::Tunnel(_)
            | Device::Nsh(_)
            | Device::Lag(_)
            | Device::Nic(_)
            | Device::Memory
            | Device::Chain(_) => false,
        }
    }
}

impl Device {
    /// Returns true for the device of a logical port: others carry its packets.
    pub fn is_logical(&self) -> bool {
        matches!(self, Device::Tunnel(_) | Device::Nsh(_))
    }

    /// Returns the port that carries the packets of a logical port, if a port does.
    pub fn underlay(&self) -> Option<&PortName> {
        match self {
            Device::Tunnel(tunnel) => match tunnel.underlay() {
                Underlay::Port(port) => Some(port),
                Underlay::Vrf(_) | Underlay::Host => None,
            },
            Device::Nsh(nsh) => Some(nsh.underlay()),
            _ => None,
        }
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Device::Pci(pci) => write!(f, "{}{}", pci.address, pci.args),
            Device::Vdev(vdev) => write!(f, "{}{}", vdev.name, vdev.args),
            Device::Pcap(files) => {
                let mut separator = "pcap:";
                for (key, path) in [("rx", &files.rx), ("tx", &files.tx)] {
                    if let Some(path) = path {
                        write!(f, "{separator}{key}={}", path.display())?;
                        separator = ",";
                    }
                }
                if files.repeat {
                    f.write_str(",loop=true")
                } else {
                    Ok(())
                }
            }
            Device::Link(name) => write!(f, "link:{name}"),
            Device::Wan(end) => write!(f, "wan:{},{}", end.name, if end.is_b { "b" } else { "a" }),
            Device::Tap(name) => write!(f, "tap:{name}"),
            Device::Kernel(name) => write!(f, "kernel:{name}"),
            Device::Chain(name) => write!(f, "chain:{name}"),
            Device::Lag(name) => write!(f, "lag:{name}"),
            Device::Tunnel(tunnel) => write!(f, "{tunnel}"),
            Device::Nsh(nsh) => write!(f, "{nsh}"),
            Device::Vnic(vnic) => write!(f, "{vnic}"),
            Device::Nic(path) => write!(f, "nic:{}", path.display()),
            Device::Memory => f.write_str("memory"),
        }
    }
}

impl FromStr for Device {
    type Err = DeviceError;

    fn from_str(text: &str) -> Result<Device, DeviceError> {
        parse(text).map_err(|reason| DeviceError {
            text: text.to_owned(),
            reason,
        })
    }
}

const EXPECTED: &str = "expected a PCI address (0000:01:00.0), kernel:INTERFACE (kernel:eth1), \
                        DPDK devargs (net_af_xdp0,iface=eth1), pcap:rx=FILE,tx=FILE, link:NAME, wan:NAME,a, tap:NAME, a virtual NIC \
                        (vhost:PATH, virtio-user:PATH or memif:PATH), nic:PATH, a tunnel \
                        (vxlan:remote=IP,local=IP,underlay=PORT), a port of service paths \
                        (nsh:remote=MAC,underlay=PORT,in=PATH/INDEX,out=PATH/INDEX), lag:NAME or memory";

/// The beginnings of names that the kernel and systemd give to interfaces.
const KERNEL_PREFIXES: [&str; 10] = [
    "eth", "en", "wl", "ib", "bond", "team", "veth", "vlan", "dummy", "wwan",
];

/// The words with which devices begin, apart from the names of DPDK drivers.
const WORDS: [&str; 16] = [
    "memory",
    "kernel:",
    "pcap:",
    "link:",
    "lag:",
    "wan:",
    "tap:",
    "vhost:",
    "virtio-user:",
    "memif:",
    "nic:",
    "vxlan:",
    "gre:",
    "gtpu:",
    "mplsudp:",
    "nsh:",
];

fn parse(text: &str) -> Result<Device, String> {
    if let Some(c) = text.chars().find(|c| c.is_control()) {
        return Err(format!("it holds the control character {c:?}; {EXPECTED}"));
    }
    if text == "memory" {
        return Ok(Device::Memory);
    }
    if let Some(rest) = text.strip_prefix("pcap:") {
        return pcap::parse(rest).map(Device::Pcap);
    }
    if text.starts_with("chain:") {
        return Err(format!(
            "the ports of a chain are made by [[bridge.chain]]; {EXPECTED}"
        ));
    }
    if let Some(name) = text.strip_prefix("link:") {
        return name.parse().map(Device::Link).map_err(|error| format!("{error}"));
    }
    if let Some(name) = text.strip_prefix("lag:") {
        return name.parse().map(Device::Lag).map_err(|error| format!("{error}"));
    }
    if let Some(end) = text.strip_prefix("wan:") {
        return wan::parse(end).map(Device::Wan);
    }
    if let Some(rest) = text.strip_prefix("nsh:") {
        return Nsh::parse(rest).map(|nsh| Device::Nsh(Box::new(nsh)));
    }
    for kind in TunnelKind::ALL {
        if let Some(rest) = text
            .strip_prefix(kind.name())
            .and_then(|rest| rest.strip_prefix(':'))
        {
            return Tunnel::parse(kind, rest).map(|tunnel| Device::Tunnel(Box::new(tunnel)));
        }
    }
    for kind in VnicKind::ALL {
        if let Some(rest) = text
            .strip_prefix(kind.as_str())
            .and_then(|rest| rest.strip_prefix(':'))
        {
            return Vnic::parse(kind, rest).map(|vnic| Device::Vnic(Box::new(vnic)));
        }
    }
    if let Some(path) = text.strip_prefix("nic:") {
        return socket_path(path, "expected nic:PATH, and no options").map(Device::Nic);
    }
    if let Some(name) = text.strip_prefix("kernel:") {
        return parse_kernel(name).map(Device::Kernel);
    }
    if let Some(name) = text.strip_prefix("tap:") {
        return name.parse().map(Device::Tap).map_err(|error| format!("{error}"));
    }
    if let Some(c) = text.chars().find(|c| c.is_whitespace()) {
        return Err(format!("it holds the blank {c:?}; {EXPECTED}"));
    }
    let (name, args) = match text.split_once(',') {
        Some((name, args)) => (name, DevArgs::parse(args)?),
        None => (text, DevArgs::default()),
    };
    let pci = name.strip_prefix("pci:").unwrap_or(name);
    if let Some(address) = PciAddress::parse(pci) {
        return Ok(Device::Pci(PciDevice { address, args }));
    }
    if pci.contains(':')
        && pci
            .bytes()
            .all(|c| c.is_ascii_hexdigit() || c == b':' || c == b'.')
    {
        return Err(
            "expected a PCI address as DDDD:BB:DD.F in hex, the device below 20, the function below 8"
                .to_owned(),
        );
    }
    let name = name.strip_prefix("vdev:").unwrap_or(name);
    let is_vdev = ["net_", "eth_", "virtio_user"]
        .iter()
        .any(|prefix| name.len() > prefix.len() && name.starts_with(prefix))
        || name == "virtio_user";
    if is_vdev
        && name
            .bytes()
            .all(|c| c.is_ascii_alphanumeric() || c == b'_' || c == b'-')
    {
        // A DPDK device name has at most 63 bytes (RTE_ETH_NAME_MAX_LEN without its NUL).
        return match name.len() {
            0..=63 => Ok(Device::Vdev(Vdev {
                name: name.to_owned(),
                args,
            })),
            _ => Err("the name of the device is too long; expected at most 63 characters".to_owned()),
        };
    }
    let (stem, is_prefix) = match name.split_once(':') {
        Some((stem, _)) => (stem, true),
        None => (name, false),
    };
    let stem = stem.trim_end_matches(|c: char| c.is_ascii_digit());
    let known = || DRIVERS.into_iter().chain(WORDS);
    let is_interface = !is_prefix && args.iter().next().is_none() && name.parse::<InterfaceName>().is_ok();
    if is_interface && KERNEL_PREFIXES.iter().any(|prefix| name.starts_with(prefix)) {
        return Err(format!("{EXPECTED}; did you mean `kernel:{name}`?"));
    }
    // The colon counts as a matching character: a short prefix has few others.
    let prefix = is_prefix.then(|| nearest(&format!("{stem}:"), known())).flatten();
    Err(match prefix.or_else(|| nearest(stem, known())) {
        Some(close) => format!("{EXPECTED}; did you mean `{close}`?"),
        None if is_interface => format!("{EXPECTED}; did you mean `kernel:{name}`?"),
        None => EXPECTED.to_owned(),
    })
}

fn parse_kernel(text: &str) -> Result<InterfaceName, String> {
    if let Some((name, option)) = text.split_once(',') {
        let option = shorten(option);
        return Err(match option.strip_prefix("queues=") {
            Some(queues) => format!(
                "the number of queues is a setting of the port: expected device = \"kernel:{name}\" and queues = {queues}"
            ),
            None => format!("`{option}` is not known here; expected kernel:INTERFACE, as kernel:eth1"),
        });
    }
    text.parse().map_err(|error| format!("{error}"))
}

text_field!(
    Device,
    "a PCI address, kernel:INTERFACE, DPDK devargs, pcap:rx=FILE,tx=FILE, link:NAME, tap:NAME, vhost:PATH, virtio-user:PATH, memif:PATH, \
     nic:PATH, a tunnel or memory",
    "kernel:eth1"
);

#[cfg(test)]
mod tests {
    use super::*;

    fn device(text: &str) -> Device {
        text.parse().unwrap()
    }

    #[test]
    fn a_nic_has_the_absolute_path_of_a_socket_and_nothing_else() {
        assert_eq!(device("nic:/run/n.sock"), Device::Nic("/run/n.sock".into()));
        assert!(!device("nic:/run/n.sock").needs_dpdk());
        for text in ["nic:", "nic:n.sock", "nic:/run/", "nic:/run/n.sock,queues=4"] {
            let error = text.parse::<Device>().unwrap_err().to_string();
            assert!(error.contains("absolute path of a socket"), "{text}: {error}");
        }
    }

    #[test]
    fn every_kind_of_device_prints_as_it_was_written() {
        for text in [
            "0000:01:00.0",
            "10000:e1:1f.7,representor=[0,2-4],txq_inline=128",
            "net_af_packet0,iface=veth1",
            "net_af_xdp7,iface=eth0,start_queue=2",
            "net_null_a",
            "virtio_user0,path=/dev/vhost-net,iface=tap0",
            "pcap:rx=in.pcap,tx=out/p 1.pcap,loop=true",
            "pcap:tx=out.pcap",
            "link:patch0",
            "wan:geo,a",
            "wan:geo,b",
            "tap:tap0",
            "kernel:eth1",
            "nic:/run/millrace/nic.sock",
            "kernel:eth0.100",
            "memory",
        ] {
            assert_eq!(device(text).to_string(), text);
        }
        assert_eq!(device("01:00.1").to_string(), "0000:01:00.1");
        assert_eq!(device("vdev:net_null0").to_string(), "net_null0");
    }

    #[test]
    fn devargs_are_taken_apart_and_brackets_keep_lists_together() {
        let Device::Pci(pci) = device("0000:01:00.0,representor=[0,2-4],flag") else {
            panic!()
        };
        assert_eq!(
            pci.args.iter().collect::<Vec<_>>(),
            [("representor", Some("[0,2-4]")), ("flag", None)]
        );
        let Device::Vdev(vdev) = device("net_af_packet0,iface=veth1") else {
            panic!()
        };
        assert_eq!(
            (vdev.name(), vdev.driver(), vdev.args.value("iface")),
            ("net_af_packet0", "net_af_packet", Some("veth1"))
        );
        let Device::Vdev(vdev) = device("net_null_a") else {
            panic!()
        };
        assert_eq!(vdev.driver(), "net_null");
    }

    #[test]
    fn only_nics_and_virtual_devices_need_dpdk() {
        assert!(device("net_null0").needs_dpdk());
        for text in ["memory", "link:a", "wan:a,b", "tap:a", "kernel:a", "pcap:rx=a"] {
            assert!(!device(text).needs_dpdk());
        }
    }

    #[test]
    fn a_wrong_device_is_refused_with_what_was_expected() {
        for text in [
            "",
            "eth0",
            "veth1",
            "0000:01:20.0",
            "0000:01:00.8",
            "0000:1:0.0",
            "net_",
            "net_a b",
            "net_null0,",
            "net_null0,=x",
            "pcap:",
            "pcap:in.pcap",
            "pcap:rx=",
            "pcap:rx=a,rx=b",
            "pcap:loop=true",
            "pcap:loop=true,tx=a",
            "pcap:rx=a,tx=a",
            "link:",
            "link:a b",
            "wan:",
            "wan:geo",
            "wan:geo,c",
            "wan:,a",
            "tap:",
            "tap:a/b",
            "kernel:",
            "kernel:a b",
            "kernel:eth1,queues=2",
            "kernel:eth1,x",
            "Memory",
            "net_null0\n",
        ] {
            let error = text.parse::<Device>().unwrap_err().to_string();
            assert!(error.contains("expected"), "{error}");
        }
        for (text, close) in [
            ("eth1", "kernel:eth1"),
            ("enp3s0f1", "kernel:enp3s0f1"),
            ("lan7", "kernel:lan7"),
        ] {
            let error = text.parse::<Device>().unwrap_err().to_string();
            assert!(error.ends_with(&format!("did you mean `{close}`?")), "{error}");
        }
        let error = "af_packet0,iface=x".parse::<Device>().unwrap_err().to_string();
        assert!(error.ends_with("did you mean `net_af_packet`?"), "{error}");
        for (text, close) in [
            ("memry", "memory"),
            ("nhs:remote=02:00:00:00:00:01,underlay=p1", "nsh:"),
            ("ger:remote=10.0.0.1", "gre:"),
            ("af_packet:eth1", "net_af_packet"),
        ] {
            let error = text.parse::<Device>().unwrap_err().to_string();
            assert!(error.ends_with(&format!("did you mean `{close}`?")), "{error}");
            assert!(error.contains("nsh:remote=MAC"), "{error}");
        }
    }
}
