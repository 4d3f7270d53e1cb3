//! The lab file: TOML, decoded with the position of every value, so that errors are reported with line and column.
//!
//! ```toml
//! name = "demo"              # the default is the file's name
//! quiet = true               # hosts send no unsolicited packets (the default)
//!
//! [[host]]
//! name = "h1"
//! ip = "10.0.0.1/24"         # a list, if the host has several links; also for ipv6 and mac
//! gateway = "10.0.0.254"     # also: mac, ipv6, mtu, vlan, routes = ["10.9.0.0/16 via 10.0.0.253"]
//!
//! [[guest]]                  # a host that is a virtual machine; the keys of hosts except vlan, and:
//! name = "vm1"
//! ip = "10.0.0.9/24"
//! memory_mib = 128           # the default
//! tso = false                # or true: TCP segmentation offload
//! forward = false            # or true: frames go from each of its interfaces to the others
//!
//! [[switch]]
//! name = "br0"
//! kind = "millrace"          # or "linux-bridge", "ovs", "ovs-dpdk"
//! ports = ["h1", "h2"]       # a link to each, on ports 1, 2, …
//! device = "auto"            # or "kernel", "af_xdp", "af_packet"
//! fail_mode = "standalone"   # or "secure"; with controllers and listen as Open vSwitch spells them
//!
//! [[link]]
//! ends = ["h3", "br0:7"]     # any two nodes, the port number where it matters
//! rate = "100Mbps"
//! mtu = 1400                 # at most 1500 at a switch of kind "millrace"
//! wan = { delay = "50ms", loss = "0.5%", rate = "100Mbps", a_to_b = { loss = "2%" } }   # see docs/wan.md
//! ```

mod host;
mod switch;
mod value;
mod wan;

use std::collections::HashSet;

use millrace_types::{Dpid, PortNo};
use serde::Deserialize;
use toml::Spanned;

use crate::problem::{LabFileError, LocatedProblem, Problem};
use crate::topology::{Host, Machine, Switch, Topology};
use crate::wiring::{HostPlan, LinkSettings, Wiring};
use value::{mtu, rate};

/// The length limit of a lab name.
const LAB_NAME_LEN: usize = 32;
/// The length limit of a node name: an interface is named after the node at its other end, with up to three more
/// characters, and the kernel's limit is 15 (`IFNAMSIZ` is 16 with the terminator).
const NODE_NAME_LEN: usize = 12;
/// Names that an interface of a switch cannot have.
const RESERVED: [&str; 5] = ["lo", "all", "default", "ovs-netdev", "ovs-system"];
/// The maximum number of hosts, and of switches, in the scheme of MAC addresses.
const MAX_NODES: usize = 1024;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawLab {
    name: Option<Spanned<String>>,
    quiet: Option<bool>,
    #[serde(default)]
    host: Vec<host::RawHost>,
    #[serde(default)]
    guest: Vec<host::RawHost>,
    #[serde(default)]
    switch: Vec<switch::RawSwitch>,
    #[serde(default)]
    link: Vec<RawLink>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawLink {
    ends: Spanned<Vec<Spanned<String>>>,
    rate: Option<Spanned<String>>,
    mtu: Option<Spanned<i64>>,
    wan: Option<wan::RawWan>,
}

impl Topology {
    /// Parses a lab file. `file` is its name in errors and, without a `name` in the text, the name of the lab.
    ///
    /// # Errors
    /// [`LabFileError`] for the first error, with its line and the expected value.
    pub fn parse(file: &str, text: &str) -> Result<Topology, LabFileError> {
        let raw: RawLab = toml::from_str(text).map_err(|error| {
            let message = error.message().to_owned();
            LabFileError::at(
                file,
                text,
                &error.span().unwrap_or(0..0),
                Problem::Toml { message },
            )
        })?;
        resolve(file, &raw).map_err(|(span, problem)| LabFileError::at(file, text, &span, problem))
    }
}

fn resolve(file: &str, raw: &RawLab) -> Result<Topology, LocatedProblem> {
    let name = lab_name(file, raw.name.as_ref())?;
    // Guests come after all other hosts.
    let all_hosts: Vec<&host::RawHost> = raw.host.iter().chain(&raw.guest).collect();
    if all_hosts.is_empty() {
        return Err((0..0, Problem::NoHost));
    }
    for (what, count) in [("hosts", all_hosts.len()), ("switches", raw.switch.len())] {
        if count > MAX_NODES {
            return Err((0..0, Problem::TooMany { what, max: MAX_NODES }));
        }
    }
    let host_names: Vec<_> = all_hosts.iter().map(|host| &host.name).collect();
    let switch_names: Vec<_> = raw.switch.iter().map(|switch| &switch.name).collect();
    check_node_names(host_names.iter().chain(&switch_names).copied())?;

    let machines = raw.host.iter().map(host::namespace);
    let machines = machines.chain(raw.guest.iter().map(host::guest));
    let machines = machines.collect::<Result<Vec<Machine>, LocatedProblem>>()?;
    let mut wiring = Wiring::new(
        host_names.iter().map(|name| name.get_ref().as_str()),
        switch_names.iter().map(|name| name.get_ref().as_str()),
    );
    for switch in &raw.switch {
        for peer in &switch.ports {
            let a = wiring.end(switch.name.get_ref(), &switch.name.span())?;
            let b = wiring.end(peer.get_ref(), &peer.span())?;
            wiring.link(peer.span(), a, b, LinkSettings::default())?;
        }
    }
    for link in &raw.link {
        let [a, b] = link.ends.get_ref().as_slice() else {
            let count = link.ends.get_ref().len();
            return Err((link.ends.span(), Problem::NotTwoEnds { count }));
        };
        let (a, b) = (
            wiring.end(a.get_ref(), &a.span())?,
            wiring.end(b.get_ref(), &b.span())?,
        );
        let settings = LinkSettings {
            rate: link.rate.as_ref().map(rate).transpose()?,
            mtu: link.mtu.as_ref().map(mtu).transpose()?,
            wan: link.wan.as_ref().map(wan::options).transpose()?,
        };
        wiring.link(link.ends.span(), a, b, settings)?;
    }
    let plans = all_hosts
        .iter()
        .map(|host| host::plan(host))
        .collect::<Result<Vec<HostPlan>, LocatedProblem>>()?;
    let guest = |host: usize| match &machines[host] {
        Machine::Guest(guest) => Some(guest),
        Machine::Namespace => None,
    };
    let wired = wiring.finish(&plans, guest)?;

    let hosts = all_hosts.iter().zip(wired.interfaces).zip(plans).zip(machines);
    let hosts = hosts.map(|(((host, interfaces), plan), machine)| {
        let name = host.name.get_ref().clone();
        Host {
            name,
            machine,
            interfaces,
            routes: plan.routes,
        }
    });
    let hosts = hosts.collect();
    let mut switches = Vec::new();
    for ((switch, ports), dpid) in raw.switch.iter().zip(wired.ports).zip(1..) {
        let made = Switch {
            name: switch.name.get_ref().clone(),
            dpid: Dpid(dpid),
            kind: switch::kind(switch)?,
            ports,
        };
        switch::check_guests(&made).map_err(|problem| (switch.name.span(), problem))?;
        switch::check_mtus(&made).map_err(|problem| (switch.name.span(), problem))?;
        switches.push(made);
    }
    Ok(Topology {
        name,
        quiet: raw.quiet.unwrap_or(true),
        hosts,
        switches,
        links: wired.links,
    })
}

fn lab_name(file: &str, given: Option<&Spanned<String>>) -> Result<String, LocatedProblem> {
    let stem = || {
        std::path::Path::new(file)
            .file_stem()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned()
    };
    let (name, span) = given.map_or_else(|| (stem(), 0..0), |name| (name.get_ref().clone(), name.span()));
    if is_name(&name, LAB_NAME_LEN) {
        Ok(name)
    } else {
        Err((
            span,
            Problem::BadName {
                name,
                max: LAB_NAME_LEN,
            },
        ))
    }
}

fn is_name(name: &str, max: usize) -> bool {
    name.len() <= max
        && name.starts_with(|c: char| c.is_ascii_lowercase())
        && name
            .bytes()
            .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-')
}

fn check_node_names<'a>(names: impl Iterator<Item = &'a Spanned<String>>) -> Result<(), LocatedProblem> {
    let mut seen = HashSet::new();
    for spanned in names {
        let name = spanned.get_ref().clone();
        if !is_name(&name, NODE_NAME_LEN) {
            return Err((
                spanned.span(),
                Problem::BadName {
                    name,
                    max: NODE_NAME_LEN,
                },
            ));
        }
        // A port is named after its peer, and OpenFlow tools interpret these names as reserved ports.
        if RESERVED.contains(&name.as_str()) || name.parse::<PortNo>().is_ok() {
            return Err((spanned.span(), Problem::ReservedName { name }));
        }
        if !seen.insert(name.clone()) {
            return Err((spanned.span(), Problem::DuplicateName { name }));
        }
    }
    Ok(())
}
