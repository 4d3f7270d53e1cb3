//! Constraints on the router: names, VRFs and bridges that exist, one interface for each VLAN, and addresses that the
//! kernel can have side by side.

use std::collections::HashSet;
use std::net::IpAddr;

use millrace_types::PortNo;

use super::checks::{Checks, Unique};
use super::walk::{bridges, ports};
use crate::bridge::Bridge;
use crate::choice::InterfaceEgress;
use crate::config::Config;
use crate::device::Device;
use crate::error::Path;
use crate::name::PortName;
use crate::routing::{Interface, RouteSource, Vrf};
use crate::tunnel::Underlay;

/// The smallest MTU of IPv6 (RFC 8200, section 5).
const IPV6_MTU_MIN: u16 = 1280;

impl Checks {
    /// Checks VRFs, interfaces and access lists. References are checked only if `is_complete`: without the items that
    /// did not decode, they might lead nowhere.
    pub(super) fn routing(&mut self, config: &Config, is_complete: bool) {
        let root = Path::default();
        self.vrfs(config, &root.key("vrf"));
        let mut acls = Unique::new("access list name");
        for (index, acl) in config.acls.iter().enumerate() {
            let path = root.key("acl").index(index).key("name");
            acls.check(&acl.name, &acl.name, path, &mut self.issues);
        }
        self.interfaces(config, &root.key("interface"));
        if is_complete {
            for (index, interface) in config.interfaces.iter().enumerate() {
                self.references(config, interface, &root.key("interface").index(index));
            }
            self.routed_tunnels(config);
        }
    }

    fn vrfs(&mut self, config: &Config, list: &Path) {
        let mut names = Unique::new("VRF name");
        let mut keys = Unique::new("network namespace and table");
        for (index, vrf) in config.vrfs.iter().enumerate() {
            let path = list.index(index);
            names.check(&vrf.name, &vrf.name, path.key("name"), &mut self.issues);
            let text = match &vrf.netns {
                Some(netns) => format!("{netns}, {}", vrf.table),
                None => format!("the namespace of millraced, {}", vrf.table),
            };
            keys.check(vrf.key(), &text, path.key("table"), &mut self.issues);
            if let RouteSource::Fpm(address) = vrf.routes
                && !address.ip().is_loopback()
            {
                let message = format!(
                    "{address} can be reached from other machines, and FPM has no authentication: expected a loopback address \
                     of the namespace, as in fpm:127.0.0.1:2620"
                );
                self.conflict(path.key("routes"), message);
            }
        }
    }

    fn interfaces(&mut self, config: &Config, list: &Path) {
        let netns = |interface: &Interface| {
            let vrf = vrf(config, interface);
            vrf.and_then(|vrf| vrf.netns.as_ref())
        };
        let mut names = Unique::new("interface name");
        let mut vlans = Unique::new("VLAN with an interface");
        let mut addresses = Unique::new("address of a VRF");
        for (index, interface) in config.interfaces.iter().enumerate() {
            let path = list.index(index);
            let key = (netns(interface), &interface.name);
            names.check(key, &interface.name, path.key("name"), &mut self.issues);
            let vlan = format!("{} of {}", interface.vid(), interface.bridge);
            let at = if interface.vlan.is_some() {
                "vlan"
            } else {
                "bridge"
            };
            vlans.check(
                (&interface.bridge, interface.vid()),
                &vlan,
                path.key(at),
                &mut self.issues,
            );
            for (index, address) in interface.addresses.iter().enumerate() {
                let path = path.key("address").index(index);
                let key = (&interface.vrf, address.address());
                addresses.check(key, &address.address(), path.clone(), &mut self.issues);
                if address.address().is_ipv6() && interface.mtu.get() < IPV6_MTU_MIN {
                    let message = format!(
                        "{address} with `mtu`, {}: expected at least {IPV6_MTU_MIN} for IPv6 (RFC 8200, section 5)",
                        interface.mtu
                    );
                    self.conflict(path, message);
                }
            }
            if interface.egress == InterfaceEgress::Tables && interface.number.is_none() {
                let message =
                    "routed packets would enter the flow tables without an `in_port`: expected `number`";
                self.conflict(path.key("egress"), message.to_owned());
            }
        }
    }

    /// Checks that the VRF, the bridge and the access lists of an interface exist, and that no port has its number or
    /// its name.
    fn references(&mut self, config: &Config, interface: &Interface, path: &Path) {
        if vrf(config, interface).is_none() {
            let message = format!(
                "there is no VRF `{}`: expected the name of a [[vrf]]",
                interface.vrf
            );
            self.conflict(path.key("vrf"), message);
        }
        for (key, acl) in [("acl_in", &interface.acl_in), ("acl_out", &interface.acl_out)] {
            if let Some(name) = acl
                && !config.acls.iter().any(|acl| acl.name == *name)
            {
                let message = format!("there is no access list `{name}`: expected the name of an [[acl]]");
                self.conflict(path.key(key), message);
            }
        }
        let Some((bridge, _)) = bridges(config).find(|(bridge, _)| bridge.name == interface.bridge) else {
            let message = format!(
                "there is no bridge `{}`: expected the name of a [[bridge]]",
                interface.bridge
            );
            return self.conflict(path.key("bridge"), message);
        };
        if let Some(number) = interface.number
            && let Some(name) = holder(bridge, number)
        {
            let message = format!(
                "{number} is the number of port `{name}` of this bridge: expected a number of its own"
            );
            self.conflict(path.key("number"), message);
        }
        let taps = config.bridges.iter().flat_map(Bridge::all_ports);
        let in_own_namespace = vrf(config, interface).is_some_and(|vrf| vrf.netns.is_none());
        for port in taps.filter(|_| in_own_namespace) {
            if matches!(&port.device, Device::Tap(name) if *name == interface.name) {
                let message = format!(
                    "port `{}` creates a kernel interface of this name: expected a name of its own",
                    port.name
                );
                self.conflict(path.key("name"), message);
            }
        }
        self.overlaps(config, interface, path);
    }

    /// Checks tunnels that are routed, in a VRF or by the machine itself: the VRF exists, none has the machine's routes and
    /// name, and no two tunnels take the same packets, whatever their bridges.
    fn routed_tunnels(&mut self, config: &Config) {
        let mut ends = Unique::new("tunnel");
        let host = Vrf::of_host();
        let is_rival = |vrf: &&Vrf| vrf.name == host.name || vrf.key() == host.key();
        let rival = config.vrfs.iter().find(is_rival);
        for (bridge, path) in bridges(config) {
            for (port, path) in ports(bridge, &path) {
                let Device::Tunnel(tunnel) = &port.device else {
                    continue;
                };
                let path = path.key("device");
                match tunnel.underlay() {
                    Underlay::Port(_) => continue,
                    Underlay::Host => {
                        if let Some(vrf) = rival {
                            let message = format!(
                                "`underlay=host` beside VRF `{}`: expected another name than `host` for the VRF, and if it has the \
                                 table main of the namespace of millraced, `underlay=vrf:{}`",
                                vrf.name, vrf.name
                            );
                            self.conflict(path.clone(), message);
                        }
                    }
                    Underlay::Vrf(vrf) if !config.vrfs.iter().any(|held| held.name == *vrf) => {
                        let message =
                            format!("there is no VRF `{vrf}`: expected the name of a [[vrf]] as underlay");
                        self.conflict(path.clone(), message);
                    }
                    Underlay::Vrf(_) => {}
                }
                ends.check(
                    (tunnel.end(), tunnel.underlay()),
                    &port.device,
                    path,
                    &mut self.issues,
                );
            }
        }
    }

    /// Checks that no other interface of the VRF is in the same network.
    fn overlaps(&mut self, config: &Config, interface: &Interface, path: &Path) {
        let before = config
            .interfaces
            .iter()
            .take_while(|other| !std::ptr::eq(*other, interface));
        let others: Vec<&Interface> = before.filter(|other| other.vrf == interface.vrf).collect();
        let mut told = HashSet::new();
        for (index, address) in interface.addresses.iter().enumerate() {
            for other in &others {
                let shared = other.addresses.iter().find(|theirs| {
                    let len = theirs.prefix_len().min(address.prefix_len());
                    network(theirs.address(), len) == network(address.address(), len)
                });
                if let Some(theirs) = shared.filter(|_| told.insert(index)) {
                    let message = format!(
                        "{address} is in the network of interface `{}`, {theirs}: expected networks that do not overlap",
                        other.name
                    );
                    self.conflict(path.key("address").index(index), message);
                }
            }
        }
    }
}

fn vrf<'a>(config: &'a Config, interface: &Interface) -> Option<&'a Vrf> {
    config.vrfs.iter().find(|vrf| vrf.name == interface.vrf)
}

/// Returns the family of an address and its first `len` bits. Link-local addresses have no network in common.
fn network(address: IpAddr, len: u8) -> (bool, u128) {
    let (bits, size) = match address {
        IpAddr::V4(address) => (u128::from(address.to_bits()), 32),
        IpAddr::V6(address) if address.is_unicast_link_local() => (address.to_bits(), u32::from(len)),
        IpAddr::V6(address) => (address.to_bits(), 128),
    };
    (
        address.is_ipv4(),
        bits.checked_shr(size - u32::from(len)).unwrap_or(0),
    )
}

/// Returns the name of the port, or of the member of a LAG, that has this number.
fn holder(bridge: &Bridge, number: PortNo) -> Option<PortName> {
    let ports = bridge.all_ports().map(|port| (port.number, port.name));
    let members = bridge.lags.iter().flat_map(|lag| &lag.members);
    let members = members.map(|member| (member.number, member.name.clone()));
    ports
        .chain(members)
        .find_map(|(of, name)| (of == number).then_some(name))
}
