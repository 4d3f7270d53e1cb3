//! Building a lab.

use std::path::PathBuf;
use std::time::Duration;

use crate::directory::LabDirectory;
use crate::down::{self, DownError};
use crate::guest;
use crate::lab::Lab;
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

/// The options of `up`.
#[derive(Debug, Clone)]
pub struct UpOptions {
    /// The daemon of Millrace switches. `None` selects `$MILLRACED`, or the daemon that
    /// [`find_program`](crate::find_program) finds.
    pub millraced: Option<PathBuf>,
    /// The maximum time from the start of a switch until it forwards.
    pub ready_within: Duration,
    /// True if created resources, including logs, are kept after a failure.
    pub keep_on_failure: bool,
}

impl Default for UpOptions {
    fn default() -> UpOptions {
        UpOptions {
            millraced: None,
            ready_within: Duration::from_secs(30),
            keep_on_failure: false,
        }
    }
}

/// Reasons why a lab was not built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UpError {
    /// The caller is not root.
    #[error("a lab needs root, to create namespaces and links: run it with sudo")]
    NotRoot,
    /// A lab of this name is up.
    #[error("lab `{name}` is up: use it, or remove it first with `millrace lab down {name}`")]
    AlreadyUp {
        /// The name of the lab.
        name: String,
    },
    /// A lab of this name is incomplete, or another process works on it.
    #[error(
        "lab `{name}` is incomplete, or another process works on it: remove it with `millrace lab down {name}`"
    )]
    HalfUp {
        /// The name of the lab.
        name: String,
    },
    /// A namespace of another owner has a name that the lab needs.
    #[error(
        "namespace {namespace} exists and belongs to no lab: remove it with `ip netns del {namespace}`, or give the lab another name"
    )]
    NamespaceTaken {
        /// The name of the namespace.
        namespace: String,
    },
    /// An operation failed in the operating system.
    #[error(transparent)]
    System(#[from] SystemError),
    /// No daemon for Millrace switches was found.
    #[error("`millraced` was not found {looked}: build it (`make build`), or set MILLRACED to its path")]
    NoDaemon {
        /// The places that were searched.
        looked: String,
    },
    /// No kernel for guests was found.
    #[error(
        "no cloud kernel was found in {looked}: get it with `scripts/setup.sh guests`, or set MILLRACE_GUEST to where the package linux-image-cloud-amd64 is unpacked"
    )]
    NoKernel {
        /// The places that were searched.
        looked: String,
    },
    /// A guest failed to start.
    #[error("guest `{guest}` {problem}; the last lines of {log}:\n{tail}", log = log.display())]
    Guest {
        /// The name of the guest.
        guest: String,
        /// The failure.
        problem: String,
        /// The output of QEMU and of the guest's kernel; removed with the lab.
        log: PathBuf,
        /// The last lines of the log.
        tail: String,
    },
    /// A daemon of a switch ended, or was not ready in time.
    #[error("switch `{switch}`: {role} {problem}; the last lines of {log}:\n{tail}", log = log.display())]
    Daemon {
        switch: String,
        /// The role of the daemon.
        role: String,
        /// The failure.
        problem: String,
        /// The log; removed with the lab.
        log: PathBuf,
        /// The last lines of the log.
        tail: String,
    },
    /// The emulator of paths was not found.
    #[error(
        "`millrace-wan` was not found {looked}: build it (`make build`), or set MILLRACE_WAN_PROGRAM to its path"
    )]
    NoEmulator {
        /// The places that were searched.
        looked: &'static str,
    },
    /// The emulator of a path ended, or was not ready in time.
    #[error("emulated path `{wan}`: millrace-wan {problem}; the last lines of {log}:\n{tail}", log = log.display())]
    Emulator {
        /// The node of the path, `wan.1`.
        wan: String,
        /// The failure.
        problem: String,
        /// The log; removed with the lab.
        log: PathBuf,
        /// The last lines of the log.
        tail: String,
    },
    /// A daemon runs, but a part of the configuration does not.
    #[error("switch `{switch}` does not run as configured: {}", problems.join("; "))]
    Degraded {
        switch: String,
        /// The problems, each with the reason and the next step that the daemon reports.
        problems: Vec<String>,
    },
    /// The build failed, and the removal of the created resources failed as well.
    #[error("{up}; and the created resources could not be removed: {down}")]
    NotRemoved {
        /// The reason why the lab was not built.
        up: Box<UpError>,
        /// The reason why it was not removed.
        down: Box<DownError>,
    },
}

pub(crate) fn up(
    topology: &Topology,
    options: &UpOptions,
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<Lab, UpError> {
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
        Ok(()) => Ok(Lab::new(journal)),
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
