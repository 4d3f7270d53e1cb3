//! What makes a virtual link behave like a wire, and a host keep quiet.
//!
//! As with [`crate::netlink`], everything works in the namespace of the calling thread.

use std::fs;
use std::io;
use std::path::Path;
use std::process::Command;

use millrace_types::BitRate;

use crate::system::{SystemError, tool};

/// Everything that would let a frame on the link differ from one on a wire: checksums left for hardware to
/// fill in, segments longer than the MTU, VLAN tags beside the frame instead of in it.
const OFFLOADS: [&str; 8] = ["rx", "tx", "sg", "tso", "gso", "gro", "rxvlan", "txvlan"];

/// Turns all offloads of `interface` off.
pub(crate) fn offloads_off(mark: &str, interface: &str) -> Result<(), SystemError> {
    let off = OFFLOADS.iter().flat_map(|name| [*name, "off"]);
    tool(mark, Command::new("ethtool").arg("-K").arg(interface).args(off)).map(drop)
}

/// Limits what leaves by `interface` to `rate` (tc-tbf(8)).
pub(crate) fn shape(mark: &str, interface: &str, rate: BitRate, mtu: u32) -> Result<(), SystemError> {
    // The bucket must hold what arrives in one tick of a 250 Hz clock, and no less than two frames.
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

/// Whether and how interfaces that come into a new namespace speak IPv6.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ipv6 {
    /// Not at all: nothing leaves that nobody has sent.
    Off,
    /// Only with the addresses they are given, at once: no link-local address, no router solicitation, no
    /// duplicate address detection.
    Quiet,
    /// As the kernel does by default.
    AsShipped,
}

/// Sets what holds for interfaces to come; a kernel without IPv6 has none of it and needs none.
pub(crate) fn ipv6_default(ipv6: Ipv6) -> Result<(), SystemError> {
    let settings: &[(&str, &str)] = match ipv6 {
        Ipv6::Off => &[("disable_ipv6", "1")],
        // addr_gen_mode 1: make no link-local address (kernel, ip-sysctl).
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

/// Keeps a bridge's frames from the packet filter of its namespace, as on a kernel without `br_netfilter`.
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
