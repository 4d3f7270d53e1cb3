//! The devices of interfaces of Lagopus.

use super::objects::Object;

/// Options that are read.
pub(super) const KNOWN: [&str; 5] = ["type", "device", "port-number", "mtu", "mode"];

/// Returns the device of an interface.
///
/// # Errors
/// The reason why there is none, and what comes closest.
pub(super) fn device(interface: &Object) -> Result<String, String> {
    let device = interface.value("device").filter(|device| !device.is_empty());
    let kind = interface.value("type").unwrap_or("");
    match (kind, device) {
        ("ethernet-rawsock", Some(device)) => Ok(format!("kernel:{device}")),
        ("ethernet-dpdk-phy" | "ethernet-dpdk-vdev", Some(device)) => Ok(dpdk(device)),
        ("vhost-user", Some(device)) => match path(device) {
            Some(path) => Ok(format!("vhost:{path}")),
            None => Err("vhost-user: expected a device `vhost:PATH`".to_owned()),
        },
        ("ethernet-dpdk-phy" | "ethernet-dpdk-vdev", None) => Err(format!(
            "-port-number {} counts the NICs that DPDK found: expected the PCI address of that NIC, as `dpdk-devbind.py --status` lists them",
            interface.value("port-number").unwrap_or("?")
        )),
        ("gre" | "nvgre" | "vxlan", _) => Err(format!(
            "type {kind}: expected a device `{}:remote=IP,local=IP,underlay=PORT,key=NUMBER` (docs/tunnels.md)",
            if kind == "vxlan" { "vxlan" } else { "gre" }
        )),
        ("", _) => Err("no type".to_owned()),
        _ => Err(format!(
            "type {kind} without -device: expected the name of a device"
        )),
    }
}

/// Returns the socket of DPDK devargs such as `eth_vhost0,iface=/tmp/sock0`.
fn path(devargs: &str) -> Option<&str> {
    devargs.split(',').find_map(|part| part.strip_prefix("iface="))
}

/// Returns the device of DPDK devargs. Lagopus' own pipes, whose ends name each other, are links; its names of DPDK 2 are those of today.
fn dpdk(devargs: &str) -> String {
    let (name, options) = devargs.split_once(',').unwrap_or((devargs, ""));
    let attached = options.split(',').find_map(|part| part.strip_prefix("attach="));
    let plain = name.trim_start_matches("net_").trim_start_matches("eth_");
    if plain.starts_with("pipe") {
        // A pipe has two ends: the one that is attached to, and the one that attaches.
        let end = attached.map_or(plain, |other| {
            other.trim_start_matches("net_").trim_start_matches("eth_")
        });
        return format!("link:{end}");
    }
    if plain.starts_with("vhost")
        && let Some(path) = path(devargs)
    {
        return format!("vhost:{path}");
    }
    match name.strip_prefix("eth_") {
        Some(rest) => format!("net_{}", devargs.replacen(&format!("eth_{rest}"), rest, 1)),
        None => devargs.to_owned(),
    }
}
