//! Constraints between values: unique names and numbers, devices that only one port can use, links with two ends,
//! listeners with distinct addresses, and addresses that must be protected.

mod chains;
mod checks;
mod devices;
mod functions;
mod ipfix;
mod lags;
mod lldp;
mod mirrors;
mod ovsdb;
mod ports;
mod routing;
mod rstp;
mod sflow;
mod walk;
mod wans;

use std::collections::HashMap;
use std::net::SocketAddr;

use crate::bridge::Bridge;
use crate::choice::LocalPort;
use crate::config::Config;
use crate::decode::UnlocatedError;
use crate::device::Device;
use crate::error::{Path, Problem};
use crate::target::ListenTarget;

pub(crate) use functions::check as check_functions;

use checks::{Checks, Unique, with_dropped};
use walk::{all_devices, bridges, ports};

/// The limit of controllers of a bridge.
const CONTROLLERS_MAX: usize = 8;

/// Returns the violations of constraints between values. `decoded` are the errors of single values, and
/// `dropped` the paths of list items that are absent because of these errors. A violation that may be a mere
/// consequence of them is not reported.
pub(crate) fn cross_check(
    config: &Config,
    decoded: &[UnlocatedError],
    dropped: &[Path],
) -> Vec<UnlocatedError> {
    let mut checks = Checks::default();
    checks.system(config);
    checks.api(config);
    checks.ovsdb(config);
    chains::check_sockets(&mut checks, config);
    checks.bridges(config);
    checks.devices(config);
    checks.sflow(config);
    checks.ipfix(config);
    checks.lldp(config);
    checks.rstp(config);
    checks.mirrors(config, dropped.is_empty() && decoded.is_empty());
    checks.lags(config, dropped.is_empty() && decoded.is_empty());
    checks.routing(config, dropped.is_empty() && decoded.is_empty());
    if dropped.is_empty() && decoded.is_empty() {
        checks.links(config);
        checks.wans(config);
    }
    checks.listeners(config);
    let mut issues = checks.issues;
    for issue in &mut issues {
        issue.path = with_dropped(&issue.path, dropped);
        if let Problem::Duplicate { first, .. } = &mut issue.problem {
            *first = with_dropped(first, dropped);
        }
    }
    let stands_in = |path: &Path| {
        decoded
            .iter()
            .any(|error| !error.path.0.is_empty() && path.is_within(&error.path))
    };
    issues.retain(|issue| match &issue.problem {
        Problem::Duplicate { first, .. } => !stands_in(first) && !stands_in(&issue.path),
        _ => !stands_in(&issue.path),
    });
    issues
}

impl Checks {
    fn system(&mut self, config: &Config) {
        let path = Path::default().key("system");
        let cores = &config.system.worker_cores;
        let mut unique = Unique::new("core");
        for (index, core) in cores.iter().enumerate() {
            unique.check(
                *core,
                core,
                path.key("worker_cores").index(index),
                &mut self.issues,
            );
        }
        if let Some(workers) = config.system.workers
            && !cores.is_empty()
            && usize::from(workers.get()) != cores.len()
        {
            self.conflict(
                path.key("workers"),
                format!(
                    "{workers} workers on {} `worker_cores`: expected as many, or one of the two keys",
                    cores.len()
                ),
            );
        }
    }

    fn api(&mut self, config: &Config) {
        let api = &config.api;
        let path = Path::default().key("api");
        let parts = [
            ("tls_cert", &api.tls_cert),
            ("tls_key", &api.tls_key),
            ("token_file", &api.token_file),
        ];
        if let (Some(_), None) | (None, Some(_)) = (&api.tls_cert, &api.tls_key) {
            let (given, lacking) = if api.tls_cert.is_some() {
                ("tls_cert", "tls_key")
            } else {
                ("tls_key", "tls_cert")
            };
            self.conflict(
                path.key(given),
                format!("`{given}` without `{lacking}`: expected both or neither"),
            );
        }
        if let (None, Some((given, _))) = (api.listen, parts.iter().find(|(_, value)| value.is_some())) {
            self.conflict(
                path.key(given),
                format!("`{given}` without `listen`: expected a TCP address in `listen`; the Unix socket needs neither token nor TLS"),
            );
        }
        let lacking: Vec<&str> = parts
            .iter()
            .filter(|(_, value)| value.is_none())
            .map(|(key, _)| *key)
            .collect();
        if let Some(listen) = api.listen.filter(|listen| api.enabled && !is_loopback(*listen))
            && !lacking.is_empty()
        {
            self.conflict(
                path.key("listen"),
                format!(
                    "{listen} is reachable from other machines, and {} not given: expected a loopback address, or \
                     `tls_cert`, `tls_key` and `token_file`",
                    match lacking.as_slice() {
                        [one] => format!("`{one}` is"),
                        many => format!("`{}` are", many.join("`, `")),
                    }
                ),
            );
        }
    }

    fn bridges(&mut self, config: &Config) {
        let mut names = Unique::new("bridge name");
        let mut dpids = Unique::new("datapath id");
        for (bridge, path) in bridges(config) {
            names.check(&bridge.name, &bridge.name, path.key("name"), &mut self.issues);
            let source = match (bridge.dpid, bridge.local_mac) {
                (Some(_), _) => "dpid",
                (None, Some(_)) => "local_mac",
                (None, None) => "name",
            };
            // Two bridges with the same name have the same derived id; the name is already reported.
            let same_name = config
                .bridges
                .iter()
                .filter(|other| other.name == bridge.name)
                .count()
                > 1;
            if source != "name" || !same_name {
                dpids.check(
                    bridge.datapath_id(),
                    &bridge.datapath_id(),
                    path.key(source),
                    &mut self.issues,
                );
            }
            self.bridge(bridge, &path);
        }
    }

    fn bridge(&mut self, bridge: &Bridge, path: &Path) {
        let mut targets = Unique::new("controller");
        for (index, controller) in bridge.controllers.iter().enumerate() {
            let path = path.key("controllers").index(index);
            targets.check(&controller.target, &controller.target, path, &mut self.issues);
        }
        if bridge.controllers.len() > CONTROLLERS_MAX {
            self.conflict(
                path.key("controllers"),
                format!(
                    "{} controllers: expected at most {CONTROLLERS_MAX}",
                    bridge.controllers.len()
                ),
            );
        }
        let mut vids = Unique::new("VLAN");
        for (index, vid) in bridge.normal_vlans.iter().enumerate() {
            vids.check(*vid, vid, path.key("normal_vlans").index(index), &mut self.issues);
        }
        let mut vids = Unique::new("VLAN");
        for (index, vid) in bridge.flood_vlans.iter().enumerate() {
            vids.check(*vid, vid, path.key("flood_vlans").index(index), &mut self.issues);
        }
        if bridge.local_mac.is_some() && bridge.local == LocalPort::Off {
            let message = "the bridge has no LOCAL port: expected `local = \"tap\"`, or no `local_mac`";
            self.conflict(path.key("local_mac"), message.to_owned());
        }
        self.tls(bridge, path);
        let mut tables = Unique::new("table");
        for (index, table) in bridge.table_settings.iter().enumerate() {
            let path = path.key("table").index(index).key("number");
            if table.number.get() >= bridge.tables.get() {
                self.conflict(
                    path.clone(),
                    format!(
                        "there is no table {}: `tables` is {}, expected at most {}",
                        table.number,
                        bridge.tables,
                        bridge.tables.get() - 1
                    ),
                );
            }
            tables.check(table.number, &table.number, path, &mut self.issues);
        }
        for (index, listener) in bridge.listen.iter().enumerate() {
            let remote = listener
                .target
                .address()
                .filter(|address| !is_loopback(*address) && !listener.target.is_tls());
            if let Some(address) = remote.filter(|_| !listener.insecure) {
                self.conflict(
                    path.key("listen").index(index),
                    format!(
                        "whoever reaches {address} could control the bridge: expected a loopback address, ptls:, or \
                         {{ target = \"{}\", insecure = true }}",
                        listener.target
                    ),
                );
            }
        }
        self.tunnels(bridge, path);
        let mut names = Unique::new("port name");
        let mut numbers = Unique::new("port number");
        for (port, path) in ports(bridge, path) {
            names.check(
                port.name.to_string(),
                &port.name,
                path.key("name"),
                &mut self.issues,
            );
            numbers.check(port.number, &port.number, path.key("number"), &mut self.issues);
            if port.name.as_str() == bridge.name.as_str() {
                let message = format!(
                    "`{}` is the name of the bridge's LOCAL port: expected another",
                    port.name
                );
                self.conflict(path.key("name"), message);
            }
            self.port(port, &path);
        }
        self.lag_members(bridge, path, &mut names, &mut numbers);
        chains::check(self, bridge, path, &mut names, &mut numbers);
    }

    /// Checks that bridges with encrypted connections have the files for TLS.
    fn tls(&mut self, bridge: &Bridge, path: &Path) {
        if bridge.tls.is_some() {
            return;
        }
        let controllers = bridge.controllers.iter().enumerate();
        let encrypted =
            controllers.map(|(at, item)| ("controllers", at, item.target.is_tls(), item.target.to_string()));
        let listeners = bridge.listen.iter().enumerate();
        let waiting =
            listeners.map(|(at, item)| ("listen", at, item.target.is_tls(), item.target.to_string()));
        for (list, index, is_tls, target) in encrypted.chain(waiting) {
            if is_tls {
                let message = format!(
                    "{target} needs the `tls` of its bridge: expected `private_key`, `certificate` and `ca_certificate` \
                     there"
                );
                self.conflict(path.key(list).index(index), message);
            }
        }
    }

    fn tunnels(&mut self, bridge: &Bridge, path: &Path) {
        let (mut ends, mut paths) = (Unique::new("tunnel"), Unique::new("service path"));
        for (port, path) in ports(bridge, path) {
            let Some(name) = port.device.underlay() else {
                continue;
            };
            let path = path.key("device");
            match bridge.port(name.as_str()) {
                None => {
                    self.conflict(
                        path.clone(),
                        format!("the bridge has no port `{name}`: expected one of its ports as underlay"),
                    );
                }
                Some(under) if under.device.is_logical() => {
                    let message = format!(
                        "`{}` is a tunnel: expected a port with a device as underlay",
                        under.name
                    );
                    self.conflict(path.clone(), message);
                }
                Some(_) => {}
            }
            if let Device::Tunnel(tunnel) = &port.device {
                ends.check((tunnel.end(), name.clone()), &port.device, path, &mut self.issues);
            } else if let Device::Nsh(nsh) = &port.device
                && let Some(takes) = nsh.takes()
            {
                paths.check((takes, name.clone()), &port.device, path, &mut self.issues);
            }
        }
    }

    fn devices(&mut self, config: &Config) {
        let mut devices = Unique::new("device");
        for (bridge, path) in bridges(config) {
            for resource in bridge
                .local_port()
                .iter()
                .flat_map(|port| devices::resources(&port.device))
            {
                devices.check(resource.clone(), &resource, path.key("local"), &mut self.issues);
            }
        }
        for (device, path) in all_devices(config) {
            for resource in devices::resources(device) {
                let before = self.issues.len();
                devices.check(resource.clone(), &resource, path.clone(), &mut self.issues);
                if self.issues.len() > before {
                    break;
                }
            }
        }
    }

    fn links(&mut self, config: &Config) {
        let mut ends: HashMap<&str, Vec<Path>> = HashMap::new();
        let mut order = Vec::new();
        for (device, path) in all_devices(config) {
            if let Device::Link(name) = device {
                let list = ends.entry(name.as_str()).or_default();
                if list.is_empty() {
                    order.push(name.as_str());
                }
                list.push(path);
            }
        }
        for name in order {
            match ends.get(name).map(Vec::as_slice) {
                Some([one]) => self.conflict(
                    one.clone(),
                    format!("link `{name}` has one end: expected another port with this device"),
                ),
                Some([_, _, rest @ ..]) => {
                    for path in rest {
                        self.conflict(
                            path.clone(),
                            format!("link `{name}` already has two ends: expected another name"),
                        );
                    }
                }
                _ => {}
            }
        }
    }

    fn listeners(&mut self, config: &Config) {
        let mut taken: Vec<(SocketAddr, Path)> = Vec::new();
        let mut sockets = Unique::new("socket");
        if config.api.enabled {
            let api = Path::default().key("api");
            taken.extend(config.api.listen.map(|listen| (listen, api.key("listen"))));
            let socket = config.api.socket.as_str().to_owned();
            sockets.check(socket, &config.api.socket, api.key("socket"), &mut self.issues);
        }
        for (bridge, path) in bridges(config) {
            for (index, listener) in bridge.listen.iter().enumerate() {
                let path = path.key("listen").index(index);
                match &listener.target {
                    ListenTarget::Tcp(address) | ListenTarget::Tls(address) => taken.push((*address, path)),
                    ListenTarget::Unix(file) => {
                        sockets.check(file.as_str().to_owned(), &listener.target, path, &mut self.issues);
                    }
                }
            }
        }
        for (index, (address, path)) in taken.iter().enumerate() {
            let clash = taken
                .iter()
                .take(index)
                .find(|(other, _)| overlap(*address, *other));
            if let Some((_, first)) = clash {
                let problem = Problem::Duplicate {
                    what: "address",
                    value: address.to_string(),
                    first: first.clone(),
                };
                self.issues.push(UnlocatedError {
                    path: path.clone(),
                    problem,
                });
            }
        }
    }
}

fn is_loopback(address: SocketAddr) -> bool {
    address.ip().to_canonical().is_loopback()
}

/// Returns true if two sockets cannot both be bound. A wildcard covers all addresses of its family, and the IPv6
/// wildcard those of IPv4 as well; port zero never conflicts.
fn overlap(a: SocketAddr, b: SocketAddr) -> bool {
    if a.port() != b.port() || a.port() == 0 {
        return false;
    }
    let (one, other) = (a.ip(), b.ip());
    let covers = |wide: std::net::IpAddr, ip: std::net::IpAddr| {
        wide.is_unspecified() && (wide.is_ipv6() || ip.is_ipv4())
    };
    one.to_canonical() == other.to_canonical() || covers(one, other) || covers(other, one)
}
