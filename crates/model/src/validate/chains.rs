//! What no single value can say of a chain: its ports are ports of the bridge, with names and numbers of their own.

use std::collections::HashSet;

use millrace_types::PortNo;

use super::{Checks, Unique};
use crate::bridge::Bridge;
use crate::error::Path;

/// The longest name of a port (OpenFlow 1.3.5, section 7.2.1).
const PORT_NAME_MAX: usize = 15;

/// Ports of chains are ports of the bridge: no two of one name, or of one number.
pub(super) fn check(checks: &mut Checks, bridge: &Bridge, path: &Path) {
    let names = bridge.ports.iter().map(|port| port.name.to_string());
    let mut names: HashSet<String> = names.chain([bridge.name.to_string()]).collect();
    let mut numbers: HashSet<PortNo> = bridge.ports.iter().map(|port| port.number).collect();
    for (index, chain) in bridge.chains.iter().enumerate() {
        let path = path.key("chain").index(index);
        if chain.far.is_some() && chain.far_name().len() > PORT_NAME_MAX {
            let message = format!(
                "the far end would be `{}`: expected a chain's name of at most 11 characters",
                chain.far_name()
            );
            checks.conflict(path.key("name"), message);
        }
        for (number, name) in chain.ports() {
            if !numbers.insert(number) {
                let message =
                    format!("`{name}` has port number {number}, as another port has: expected another");
                checks.conflict(path.clone(), message);
            }
            if !names.insert(name.clone()) {
                let message = format!("`{name}` is the name of another port: expected a name of its own");
                checks.conflict(path.clone(), message);
            }
        }
        let mut hops = Unique::new("hop name");
        for (index, hop) in chain.hops.iter().enumerate() {
            let path = path.key("hop").index(index);
            hops.check(&hop.name, &hop.name, path.key("name"), &mut checks.issues);
            if hop.steer && hop.number.is_none() {
                let message =
                    "`steer` without `number`: expected the port at which its packets come in".to_owned();
                checks.conflict(path.key("steer"), message);
            }
        }
    }
}
