//! Constraints of mirrors: ports that exist, one output, and outputs that no mirror selects.

use super::checks::{Checks, Unique};
use super::walk::{bridges, mirrors};
use crate::bridge::Bridge;
use crate::config::Config;
use crate::device::Device;
use crate::error::Path;
use crate::mirror::Mirror;
use crate::name::PortName;
use crate::tunnel::Underlay;

/// The number of mirrors that a bridge has at most: a word has a bit for each.
const MIRRORS_MAX: usize = 32;

impl Checks {
    /// Checks the mirrors of all bridges. References are checked only if `is_complete`: without the items that did not decode,
    /// they might lead nowhere.
    pub(super) fn mirrors(&mut self, config: &Config, is_complete: bool) {
        for (bridge, path) in bridges(config) {
            let mut names = Unique::new("mirror name");
            let count = bridge.mirrors.len();
            if count > MIRRORS_MAX {
                let message = format!("{count} mirrors: expected at most {MIRRORS_MAX}");
                self.conflict(path.key("mirror"), message);
            }
            for (mirror, path) in mirrors(bridge, &path) {
                names.check(&mirror.name, &mirror.name, path.key("name"), &mut self.issues);
                self.selection(mirror, &path);
                if is_complete {
                    self.output(mirror, &path);
                    self.mirrored_ports(mirror, bridge, &path);
                }
            }
        }
    }

    fn selection(&mut self, mirror: &Mirror, path: &Path) {
        let mut vlans = Unique::new("VLAN");
        for (index, vlan) in mirror.select_vlans.iter().enumerate() {
            vlans.check(
                *vlan,
                vlan,
                path.key("select_vlans").index(index),
                &mut self.issues,
            );
        }
        for (key, ports) in [
            ("select_received", &mirror.select_received),
            ("select_sent", &mirror.select_sent),
        ] {
            let mut names = Unique::new("port");
            for (index, port) in ports.iter().enumerate() {
                names.check(port, port, path.key(key).index(index), &mut self.issues);
            }
            if mirror.select_all && !ports.is_empty() {
                let message =
                    format!("`{key}` with `select_all`, which selects all ports: expected one of them");
                self.conflict(path.key(key), message);
            }
        }
    }

    fn output(&mut self, mirror: &Mirror, path: &Path) {
        let selects_none = mirror.select_received.is_empty() && mirror.select_sent.is_empty();
        if !mirror.select_all && selects_none {
            let message = "the mirror selects nothing: expected `select_all = true`, or ports in `select_received` or \
                           `select_sent`";
            self.conflict(path.key("name"), message.to_owned());
        }
        match (&mirror.output_port, mirror.output_vlan) {
            (None, None) => {
                let message = "the mirror has no output: expected `output_port` or `output_vlan`";
                self.conflict(path.key("name"), message.to_owned());
            }
            (Some(_), Some(_)) => {
                let message = "`output_vlan` and `output_port`: expected one of them; two mirrors may copy the same packets";
                self.conflict(path.key("output_vlan"), message.to_owned());
            }
            _ => {}
        }
    }

    fn mirrored_ports(&mut self, mirror: &Mirror, bridge: &Bridge, path: &Path) {
        for (key, ports) in [
            ("select_received", &mirror.select_received),
            ("select_sent", &mirror.select_sent),
        ] {
            for (index, port) in ports.iter().enumerate() {
                let path = path.key(key).index(index);
                self.mirrored_port(port, bridge, path.clone());
                let mut others = bridge.mirrors.iter();
                if let Some(other) = others.find(|other| other.output_port.as_ref() == Some(port)) {
                    let message = format!(
                        "`{port}` is the output port of mirror `{}`, and has no packets of its own: expected another port",
                        other.name
                    );
                    self.conflict(path, message);
                }
            }
        }
        let Some(output) = &mirror.output_port else {
            return;
        };
        let path = path.key("output_port");
        self.mirrored_port(output, bridge, path.clone());
        let is_underlay = bridge.ports.iter().any(
            |port| matches!(&port.device, Device::Tunnel(tunnel) if *tunnel.underlay() == Underlay::Port(output.clone())),
        );
        if is_underlay {
            let message = format!(
                "`{output}` is the underlay of a tunnel, which would drop its packets: expected another port"
            );
            self.conflict(path, message);
        }
    }

    /// Checks that a bridge has a port.
    fn mirrored_port(&mut self, name: &PortName, bridge: &Bridge, path: Path) {
        let is_member = bridge
            .lags
            .iter()
            .flat_map(|lag| &lag.members)
            .any(|member| member.name == *name);
        let message = if is_member {
            format!("`{name}` is a member of a LAG, not a port: expected the port of the LAG")
        } else if name.as_str() == bridge.name.as_str() {
            if bridge.local_port().is_some() {
                return;
            }
            format!("the bridge has no LOCAL port `{name}`: expected `local = \"tap\"`, or another port")
        } else if bridge.port(name.as_str()).is_none() {
            format!("the bridge has no port `{name}`: expected the name of a [[bridge.port]]")
        } else {
            return;
        };
        self.conflict(path, message);
    }
}
