//! Settings that make a virtual link behave like a physical link, and that stop unsolicited packets of a
//! host.
//!
//! As in [`crate::netlink`], every function works in the namespace of the calling thread.

use std::fs;
use std::io;
use std::path::Path;
use std::process::Command;

use millrace_types::BitRate;

use crate::system::{SystemError, tool};

/// The offloads that would let a frame on the link differ from a frame on a wire: partial checksums, GSO packets, VLAN
/// tags in metadata instead of in the frame.
const OFFLOADS: [&str; 8] = ["rx", "tx", "sg", "tso", "gso", "gro", "rxvlan", "txvlan"];

/// Turns all offloads of `interface` off.
pub(crate) fn offloads_off(mark: &str, interface: &str) -> Result<(), SystemError> {
    let off = OFFLOADS.iter().flat_map(|name| [*name, "off"]);
    tool(mark, Command::new("ethtool").arg("-K").arg(interface).args(off)).map(drop)
}

/// Limits the rate of packets that leave `interface` (tc-tbf(8)).
pub(crate) fn shape(mark: &str, interface: &str, rate: BitRate, mtu: u32) -> Result<(), SystemError> {
    // The bucket holds at least the bytes of one tick of a 250 Hz clock, and at least two frames.
    let burst = (rate.bps() / 8 / 250).max(2 * (u64::from(mtu) + 18));
    let mut command = Command::new("tc");
    command.args(["qdisc", "add", "dev", interface, "root", "tbf"]);
    command.args([
        "rate",
        &format!("{}bit", rate.bps()),
        "burst",
        &burst.to_string(),
        "latency",
        "50ms",
    ]);
    tool(mark, &mut command).map(drop)
}

/// The IPv6 settings of interfaces that are added to a new namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ipv6 {
    /// IPv6 is disabled: the interface sends no IPv6 packets by itself.
    Off,
    /// IPv6 with the configured addresses only, usable at once: no link-local address, no router solicitation, no
    /// duplicate address detection.
    Quiet,
    /// The defaults of the kernel.
    AsShipped,
}

/// Sets the IPv6 defaults of new interfaces; a kernel without IPv6 needs none.
pub(crate) fn ipv6_default(ipv6: Ipv6) -> Result<(), SystemError> {
    let settings: &[(&str, &str)] = match ipv6 {
        Ipv6::Off => &[("disable_ipv6", "1")],
        // addr_gen_mode 1 generates no link-local address (Linux, Documentation/networking/ip-sysctl).
        Ipv6::Quiet => &[
            ("addr_gen_mode", "1"),
            ("router_solicitations", "0"),
            ("accept_ra", "0"),
            ("accept_dad", "0"),
        ],
        Ipv6::AsShipped => &[],
    };
    settings
        .iter()
        .try_for_each(|(key, value)| sysctl(&format!("net/ipv6/conf/default/{key}"), value))
}

/// Disables the packet filter for bridged frames in this namespace, as on a kernel without `br_netfilter`.
pub(crate) fn bridge_filter_off() -> Result<(), SystemError> {
    ["iptables", "ip6tables", "arptables"]
        .iter()
        .try_for_each(|table| sysctl(&format!("net/bridge/bridge-nf-call-{table}"), "0"))
}

fn sysctl(key: &str, value: &str) -> Result<(), SystemError> {
    let path = Path::new("/proc/sys").join(key);
    match fs::write(&path, value) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => {
            Err(SystemError::file("write", &path)(source))
        }
        _ => Ok(()),
    }
}
