//! Builds a lab: namespaces, links and switches, each recorded before it is created.

mod error;
mod options;

pub use error::UpError;
pub use options::UpOptions;

use crate::directory::LabDirectory;
use crate::down;
use crate::guest;
use crate::netlink::{Socket, VethEnd};
use crate::netns;
use crate::process::ProcessId;
use crate::progress::Progress;
use crate::state::{GUEST, HOST, Journal, NodeRecord, Resource, State, boot_id};
use crate::switch;
use crate::system::SystemError;
use crate::topology::{End, Host, Link, Machine, Switch, Topology};
use crate::tune::{self, Ipv6};
use crate::wan;

/// Builds the lab, and returns the journal of its resources.
pub(crate) fn up(
    topology: &Topology,
    options: &UpOptions,
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<Journal, UpError> {
    if !nix::unistd::geteuid().is_root() {
        return Err(UpError::NotRoot);
    }
    let directory = LabDirectory::of(&topology.name);
    for node in topology
        .nodes()
        .chain(topology.wans().map(|(wan, _)| wan.node.as_str()))
    {
        let link = directory.netns_link(node);
        if link.symlink_metadata().is_ok() && !directory.exists() {
            return Err(UpError::NamespaceTaken {
                namespace: topology.namespace(node),
            });
        }
    }
    let state = first_state(topology)?;
    let Some(lock) = directory.create()? else {
        let name = topology.name.clone();
        let complete = Journal::load(&directory)
            .ok()
            .flatten()
            .is_some_and(|state| state.complete);
        return Err(if complete {
            UpError::AlreadyUp { name }
        } else {
            UpError::HalfUp { name }
        });
    };
    let mut journal = Journal::new(directory, state);
    match build(topology, options, &mut journal, progress) {
        Ok(()) => Ok(journal),
        Err(error) if options.keep_on_failure => Err(error),
        Err(error) => {
            progress(Progress::RollingBack);
            match down::remove(journal.directory(), Some(&journal.state), &lock) {
                Ok(_) => Err(error),
                Err(down) => Err(UpError::NotRemoved {
                    up: Box::new(error),
                    down: Box::new(down),
                }),
            }
        }
    }
}

fn first_state(topology: &Topology) -> Result<State, SystemError> {
    let pid = i32::try_from(std::process::id()).unwrap_or(0);
    let me =
        ProcessId::of(pid).map_err(SystemError::file("read", std::path::Path::new("/proc/self/stat")))?;
    Ok(State {
        mark: format!("{}-{}-{}", topology.name, me.pid, me.start),
        boot: boot_id(),
        complete: false,
        nodes: Vec::new(),
        resources: Vec::new(),
    })
}

fn build(
    topology: &Topology,
    options: &UpOptions,
    journal: &mut Journal,
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<(), UpError> {
    journal.state.nodes = nodes(topology, journal.directory());
    journal.save()?;
    for host in &topology.hosts {
        namespace(journal, &host.name, ipv6_of(topology, host))?;
    }
    for switch in &topology.switches {
        namespace(journal, &switch.name, Ipv6::Off)?;
    }
    for (wan, _) in topology.wans() {
        namespace(journal, &wan.node, Ipv6::Off)?;
    }
    for link in &topology.links {
        for (a, b) in wan::pairs(link) {
            make_veth(journal, link, &a, &b)?;
        }
        progress(Progress::Link(link));
    }
    for host in &topology.hosts {
        if host.machine != Machine::Namespace {
            continue;
        }
        netns::within(&journal.directory().namespace(&host.name), || configure(host))?;
        progress(Progress::Host(host));
    }
    for (wan, _) in topology.wans() {
        wan::start(wan, options, journal, progress)?;
    }
    let guests = guest::start(topology, journal, progress)?;
    for switch in &topology.switches {
        switch::start(switch, options, journal, progress)?;
    }
    for guest in &guests {
        guest::wait(guest, journal.directory(), options, progress)?;
    }
    journal.state.complete = true;
    journal.save()?;
    Ok(())
}

fn ipv6_of(topology: &Topology, host: &Host) -> Ipv6 {
    let mut addresses = host.interfaces.iter().flat_map(|interface| &interface.addresses);
    match topology.quiet {
        false => Ipv6::AsShipped,
        true if addresses.any(|prefix| prefix.address().is_ipv6()) => Ipv6::Quiet,
        true => Ipv6::Off,
    }
}

fn namespace(journal: &mut Journal, node: &str, ipv6: Ipv6) -> Result<(), SystemError> {
    journal.record(Resource::Namespace {
        node: node.to_owned(),
    })?;
    netns::create(journal.directory(), node, || {
        tune::ipv6_default(ipv6)?;
        tune::bridge_filter_off()?;
        Socket::open()?.up("lo")
    })
}

/// Creates a veth pair of a link.
fn make_veth(journal: &mut Journal, link: &Link, a: &End, b: &End) -> Result<(), SystemError> {
    journal.record(Resource::Link {
        node: a.node.clone(),
        interface: a.interface.clone(),
    })?;
    let (here, there) = (
        journal.directory().namespace(&a.node),
        journal.directory().namespace(&b.node),
    );
    let mark = &journal.state.mark;
    let end = |end: &'_ End| -> Result<(), SystemError> {
        tune::offloads_off(mark, &end.interface)?;
        if let Some(rate) = link.rate {
            tune::shape(mark, &end.interface, rate, link.mtu)?;
        }
        Socket::open()?.up(&end.interface)
    };
    netns::within(&here, || {
        let near = VethEnd {
            interface: &a.interface,
            mac: a.mac,
        };
        let far = VethEnd {
            interface: &b.interface,
            mac: b.mac,
        };
        Socket::open()?.add_veth(&near, &far, &there, link.mtu)?;
        end(a)
    })?;
    netns::within(&there, || end(b))
}

/// Configures the addresses and routes of a host.
fn configure(host: &Host) -> Result<(), SystemError> {
    let socket = Socket::open()?;
    for interface in &host.interfaces {
        let name = match interface.vlan {
            None => interface.name.clone(),
            Some(vid) => {
                let name = socket.add_vlan(&interface.name, vid)?;
                socket.up(&name)?;
                name
            }
        };
        interface
            .addresses
            .iter()
            .try_for_each(|address| socket.add_address(&name, *address))?;
    }
    host.routes.iter().try_for_each(|route| socket.add_route(*route))
}

/// Returns the records of hosts and switches for `status`. They are known before the build.
fn nodes(topology: &Topology, directory: &LabDirectory) -> Vec<NodeRecord> {
    let common = |name: &str| {
        let node = ("MILLRACE_NODE".to_owned(), name.to_owned());
        vec![("MILLRACE_LAB".to_owned(), topology.name.clone()), node]
    };
    let hosts = topology.hosts.iter().map(|host| NodeRecord {
        name: host.name.clone(),
        kind: match host.machine {
            Machine::Namespace => HOST,
            Machine::Guest(_) => GUEST,
        }
        .to_owned(),
        namespace: topology.namespace(&host.name),
        interfaces: host
            .interfaces
            .iter()
            .map(|interface| {
                let addresses = interface.addresses.iter().map(|address| format!(" {address}"));
                std::iter::once(interface.name.clone()).chain(addresses).collect()
            })
            .collect(),
        environment: common(&host.name),
    });
    let switches = topology.switches.iter().map(|switch: &Switch| NodeRecord {
        name: switch.name.clone(),
        kind: switch.kind.keyword().to_owned(),
        namespace: topology.namespace(&switch.name),
        interfaces: switch
            .ports
            .iter()
            .map(|port| format!("{} {}", port.number.raw(), port.interface))
            .collect(),
        environment: common(&switch.name)
            .into_iter()
            .chain(switch::environment(switch, directory))
            .collect(),
    });
    let wans = topology.wans().map(|(wan, link)| NodeRecord {
        name: wan.node.clone(),
        kind: wan::KIND.to_owned(),
        namespace: topology.namespace(&wan.node),
        interfaces: [&link.a, &link.b]
            .iter()
            .zip(wan::INTERFACES)
            .map(|(end, interface)| format!("{interface} {}", end.node))
            .collect(),
        environment: common(&wan.node)
            .into_iter()
            .chain([wan::environment(wan, directory)])
            .collect(),
    });
    hosts.chain(switches).chain(wans).collect()
}
