//! Constraints of chains: the logical ports of a chain have unique names and numbers among the ports of the bridge.

use millrace_types::PortNo;

use super::checks::{Checks, Unique};
use super::walk::bridges;
use crate::bridge::Bridge;
use crate::chain::{Chain, Hop};
use crate::choice::{ChainSpread, HopClass};
use crate::config::Config;
use crate::error::Path;
use crate::number::FunctionWeight;
use crate::setting::Setting;

/// The length limit of a port name, in bytes (OpenFlow 1.3.5, section 7.2.1).
const PORT_NAME_MAX: usize = 15;

/// The functions that cannot have several instances, and what would go wrong.
const SINGLE_INSTANCE: [(&str, &str); 2] = [
    // Return packets have the translated address, so that their flow hash selects another instance.
    (
        "nat44",
        "return packets would reach an instance without their translation",
    ),
    (
        "ratelimit",
        "each instance would let packets of the whole rate pass",
    ),
];

/// The functions that reassemble packets.
const REASSEMBLING: [&str; 2] = ["ips", "ids"];
/// The setting with which these functions drop fragments of TCP packets instead of reassembling them.
const DROPS_FRAGMENTS: (&str, &str) = ("tcp_fragments", "drop");

/// Checks that all fragments of a flow reach the same instance of a function that reassembles packets.
fn check_spread(checks: &mut Checks, hop: &Hop, chain: &Chain, path: &Path) {
    let is_reassembling = hop
        .function
        .name()
        .is_some_and(|name| REASSEMBLING.contains(&name));
    let is_one = chain.lanes.get() == 1 && hop.instances.get() == 1;
    if !is_reassembling || is_one || chain.spread != Some(ChainSpread::Flow) {
        return;
    }
    let drops = |setting: &Setting| (setting.key(), setting.value()) == DROPS_FRAGMENTS;
    if !hop.settings.iter().any(drops) {
        let message = format!(
            "`{}` with several instances and `spread = \"flow\"` of its chain: fragments of a flow would evade inspection; \
             expected `spread = \"addresses\"`, or the setting `tcp_fragments=drop`",
            hop.function
        );
        checks.conflict(path.key("function"), message);
    }
}

/// Checks that the function and class of a hop support its parameters.
fn check_function(checks: &mut Checks, hop: &Hop, chain: &Chain, path: &Path) {
    let single = SINGLE_INSTANCE
        .iter()
        .find(|(name, _)| hop.function.name() == Some(name));
    if let Some((name, reason)) = single {
        let several = [
            ("instances", hop.instances.get(), "instances"),
            ("lanes", chain.lanes.get(), "function"),
        ];
        for (what, found, key) in several.into_iter().filter(|(_, found, _)| *found > 1) {
            let message = format!("`{what} = {found}` with `{name}`: {reason}; expected 1");
            checks.conflict(path.key(key), message);
        }
    }
    if hop.function.attach_path().is_some() {
        return check_attached(checks, hop, path);
    }
    let is_wasm = hop.function.is_wasm();
    let is_process = hop.class != HopClass::Inline;
    if hop.fuel.is_some() && !is_wasm {
        let message = "`fuel` bounds WebAssembly modules: expected a function `wasm:PATH`".to_owned();
        checks.conflict(path.key("fuel"), message);
    }
    if hop.memory_mib.is_some() && !is_wasm && !is_process {
        let message =
            "`memory_mib` of a function in the worker: expected class ring or isolated, or `wasm:PATH`";
        checks.conflict(path.key("memory_mib"), message.to_owned());
    }
    if hop.weight != FunctionWeight::DEFAULT && !is_process {
        let message = "`weight` of a function in the worker: expected class ring or isolated".to_owned();
        checks.conflict(path.key("weight"), message);
    }
    if hop.cpu_percent.is_some() && !is_process {
        let message = "`cpu_percent` of a function in the worker: expected class ring or isolated".to_owned();
        checks.conflict(path.key("cpu_percent"), message);
    }
}

/// Checks that a hop whose processes the operator starts has no settings that only the switch could enforce.
fn check_attached(checks: &mut Checks, hop: &Hop, path: &Path) {
    if hop.class == HopClass::Inline {
        let message = "a function that is attached runs in a process: expected class isolated or ring";
        checks.conflict(path.key("class"), message.to_owned());
    }
    let limits = [
        ("memory_mib", hop.memory_mib.is_some()),
        ("fuel", hop.fuel.is_some()),
        ("weight", hop.weight != FunctionWeight::DEFAULT),
        ("cpu_percent", hop.cpu_percent.is_some()),
    ];
    for (key, _) in limits.into_iter().filter(|(_, is_set)| *is_set) {
        let message = format!("`{key}` of a function that is attached: whoever starts its process limits it");
        checks.conflict(path.key(key), message);
    }
    for (index, setting) in hop.settings.iter().enumerate() {
        if setting.key() != "export" {
            let message = format!(
                "`{}` is not a setting of the switch: expected `export`; the process has settings of its own",
                setting.key()
            );
            checks.conflict(path.key("settings").index(index), message);
        }
    }
}

/// Checks that no two hops have the same socket for their processes.
pub(super) fn check_sockets(checks: &mut Checks, config: &Config) {
    let mut sockets = Unique::new("socket");
    for (bridge, path) in bridges(config) {
        for (index, chain) in bridge.chains.iter().enumerate() {
            let path = path.key("chain").index(index);
            for (index, hop) in chain.hops.iter().enumerate() {
                if let Some(socket) = hop.function.attach_path() {
                    let path = path.key("hop").index(index).key("function");
                    sockets.check(socket.to_owned(), &socket, path, &mut checks.issues);
                }
            }
        }
    }
}

/// Checks the logical ports of chains, which are ports of the bridge, for unique names and numbers; `names` and
/// `numbers` hold those seen so far.
pub(super) fn check(
    checks: &mut Checks,
    bridge: &Bridge,
    path: &Path,
    names: &mut Unique<String>,
    numbers: &mut Unique<PortNo>,
) {
    for (index, chain) in bridge.chains.iter().enumerate() {
        let path = path.key("chain").index(index);
        if chain.far.is_some() && chain.far_name().len() > PORT_NAME_MAX {
            let message = format!(
                "the far end would be `{}`: expected a chain's name of at most 11 characters",
                chain.far_name()
            );
            checks.conflict(path.key("name"), message);
        }
        let near = (
            chain.number,
            path.key("number"),
            chain.name.to_string(),
            path.key("name"),
        );
        let far = chain
            .far
            .map(|far| (far, path.key("far"), chain.far_name(), path.key("name")));
        let hops = chain.hops.iter().enumerate().filter_map(|(index, hop)| {
            let path = path.key("hop").index(index);
            Some((
                hop.number?,
                path.key("number"),
                hop.name.to_string(),
                path.key("name"),
            ))
        });
        for (number, number_path, name, name_path) in [near].into_iter().chain(far).chain(hops) {
            numbers.check(number, &number, number_path, &mut checks.issues);
            if name == bridge.name.as_str() {
                let message = format!("`{name}` is the name of the bridge's LOCAL port: expected another");
                checks.conflict(name_path, message);
            } else {
                names.check(name.clone(), &name, name_path, &mut checks.issues);
            }
        }
        let mut hops = Unique::new("hop name");
        for (index, hop) in chain.hops.iter().enumerate() {
            let path = path.key("hop").index(index);
            hops.check(&hop.name, &hop.name, path.key("name"), &mut checks.issues);
            check_function(checks, hop, chain, &path);
            check_spread(checks, hop, chain, &path);
            if hop.steer && hop.number.is_none() {
                let message =
                    "`steer` without `number`: expected the port at which its packets come in".to_owned();
                checks.conflict(path.key("steer"), message);
            }
        }
    }
}
