//! Assignment of interfaces, port numbers and MAC addresses to links.
//!
//! The rules allow a reader of a lab file to predict them:
//! * a host's interfaces are `eth0`, `eth1`… in the file order of its links, `ports` first;
//! * a switch's interface is named after the node at the other end, and `NODE_2`, `NODE_3`… for further links to the
//!   same node;
//! * a port without a number has the lowest number that no link claims;
//! * interface `i` of host `n` (both counted in the file, `n` from 1) has the address `02:00:00:ii:nn:nn`.

use std::collections::{BTreeSet, HashMap};
use std::ops::Range;

use millrace_types::{BitRate, Mac, PortNo, Vid};

use crate::problem::{LocatedProblem, Problem};
use crate::topology::{End, Guest, GuestNic, Interface, IpPrefix, Link, LinkWan, Route, SwitchPort};

/// The default MTU in bytes (IEEE 802.3).
pub(crate) const DEFAULT_MTU: u32 = 1500;
/// The highest number of an ordinary port in Open vSwitch (`OFPP_MAX` of OpenFlow 1.0, minus one).
const MAX_PORT: u32 = 65_279;
/// The maximum number of parallel links between two nodes; the suffix of an interface's name has at most two digits.
const MAX_PARALLEL: usize = 99;

/// The settings of a `[[host]]` for interfaces that are not yet known.
#[derive(Default)]
pub(crate) struct HostPlan {
    pub(crate) macs: Vec<(Range<usize>, Mac)>,
    /// The addresses of `ip` (of either family) and of `ipv6`, one for each interface.
    pub(crate) addresses: [Vec<(Range<usize>, IpPrefix)>; 2],
    pub(crate) mtu: Option<u32>,
    pub(crate) vlan: Option<Vid>,
    pub(crate) routes: Vec<Route>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Node {
    Host(usize),
    Switch(usize),
}

/// One end of a link, as named in the file.
#[derive(Clone, Copy)]
pub(crate) struct ParsedEnd {
    node: Node,
    port: Option<u32>,
}

struct ParsedLink {
    /// The position in the file.
    span: Range<usize>,
    ends: [ParsedEnd; 2],
    settings: LinkSettings,
}

/// The settings of a `[[link]]`.
#[derive(Default)]
pub(crate) struct LinkSettings {
    pub(crate) rate: Option<BitRate>,
    pub(crate) mtu: Option<u32>,
    /// The options of the emulated path in the link, if it has one.
    pub(crate) wan: Option<Vec<String>>,
}

/// The result of [`Wiring::finish`]; hosts and switches in file order.
pub(crate) struct LinkedHosts {
    pub(crate) interfaces: Vec<Vec<Interface>>,
    pub(crate) ports: Vec<Vec<SwitchPort>>,
    pub(crate) links: Vec<Link>,
}

/// The links seen so far.
pub(crate) struct Wiring {
    hosts: Vec<String>,
    switches: Vec<String>,
    by_name: HashMap<String, Node>,
    links: Vec<ParsedLink>,
    claimed: BTreeSet<(usize, u32)>,
    parallel: HashMap<(String, String), usize>,
}

impl Wiring {
    pub(crate) fn new<'a>(
        hosts: impl Iterator<Item = &'a str>,
        switches: impl Iterator<Item = &'a str>,
    ) -> Wiring {
        let hosts: Vec<String> = hosts.map(str::to_owned).collect();
        let switches: Vec<String> = switches.map(str::to_owned).collect();
        let host_nodes = hosts.iter().cloned().zip((0..).map(Node::Host));
        let by_name = host_nodes
            .chain(switches.iter().cloned().zip((0..).map(Node::Switch)))
            .collect();
        Wiring {
            hosts,
            switches,
            by_name,
            links: vec![],
            claimed: BTreeSet::new(),
            parallel: HashMap::new(),
        }
    }

    /// Parses `HOST`, `SWITCH` or `SWITCH:PORT`.
    pub(crate) fn end(&self, text: &str, span: &Range<usize>) -> Result<ParsedEnd, LocatedProblem> {
        let (name, port) = match text.split_once(':') {
            None => (text, None),
            Some((name, port)) => {
                let number = port
                    .bytes()
                    .all(|digit| digit.is_ascii_digit())
                    .then(|| port.parse().ok())
                    .flatten();
                let number = number.filter(|number| (1..=MAX_PORT).contains(number));
                let bad = || {
                    (
                        span.clone(),
                        Problem::BadEnd {
                            text: text.to_owned(),
                        },
                    )
                };
                (name, Some(number.ok_or_else(bad)?))
            }
        };
        let Some(&node) = self.by_name.get(name) else {
            let known = self
                .hosts
                .iter()
                .chain(&self.switches)
                .cloned()
                .collect::<Vec<_>>()
                .join(", ");
            return Err((
                span.clone(),
                Problem::UnknownNode {
                    name: name.to_owned(),
                    known,
                },
            ));
        };
        if matches!(node, Node::Host(_)) && port.is_some() {
            return Err((
                span.clone(),
                Problem::PortOfHost {
                    name: name.to_owned(),
                },
            ));
        }
        Ok(ParsedEnd { node, port })
    }

    /// Adds the link at `span`.
    pub(crate) fn link(
        &mut self,
        span: Range<usize>,
        a: ParsedEnd,
        b: ParsedEnd,
        settings: LinkSettings,
    ) -> Result<(), LocatedProblem> {
        let (name_a, name_b) = (self.name(a.node).to_owned(), self.name(b.node).to_owned());
        if a.node == b.node {
            return Err((span, Problem::SelfLink { name: name_a }));
        }
        for end in [a, b] {
            if let (Node::Switch(index), Some(number)) = (end.node, end.port)
                && !self.claimed.insert((index, number))
            {
                let switch = self.switches[index].clone();
                return Err((span, Problem::DuplicatePort { switch, number }));
            }
        }
        let pair = if name_a < name_b {
            (name_a, name_b)
        } else {
            (name_b, name_a)
        };
        let count = self.parallel.entry(pair.clone()).or_default();
        *count += 1;
        if *count > MAX_PARALLEL {
            return Err((span, Problem::TooManyLinks { a: pair.0, b: pair.1 }));
        }
        self.links.push(ParsedLink {
            span,
            ends: [a, b],
            settings,
        });
        Ok(())
    }

    fn name(&self, node: Node) -> &str {
        match node {
            Node::Host(index) => &self.hosts[index],
            Node::Switch(index) => &self.switches[index],
        }
    }

    /// Assigns all remaining names, numbers and addresses. `machine` holds the type of each host.
    pub(crate) fn finish<'g>(
        mut self,
        plans: &[HostPlan],
        machine: impl Fn(usize) -> Option<&'g Guest>,
    ) -> Result<LinkedHosts, LocatedProblem> {
        let mut macs = Macs::new(plans, &self.hosts)?;
        let mut wired = LinkedHosts {
            interfaces: plans.iter().map(|_| Vec::new()).collect(),
            ports: self.switches.iter().map(|_| Vec::new()).collect(),
            links: Vec::with_capacity(self.links.len()),
        };
        for ParsedLink {
            span,
            ends: [a, b],
            settings: LinkSettings { rate, mtu, wan },
        } in std::mem::take(&mut self.links)
        {
            let mtu_of = |end: ParsedEnd| match end.node {
                Node::Host(index) => plans[index].mtu,
                Node::Switch(_) => None,
            };
            let mtu = mtu.or(mtu_of(a).max(mtu_of(b))).unwrap_or(DEFAULT_MTU);
            let guest_of = |end: ParsedEnd| match end.node {
                Node::Host(index) => machine(index).map(|guest| (index, guest.tso)),
                Node::Switch(_) => None,
            };
            if let Some((guest, tso)) = guest_of(a).or(guest_of(b)) {
                let guest = self.hosts[guest].clone();
                let switch = [a, b].into_iter().find_map(|end| match end.node {
                    Node::Switch(index) => Some(index),
                    Node::Host(_) => None,
                });
                let Some(switch) = switch else {
                    let names = [a, b].map(|end| self.name(end.node).to_owned());
                    let other = names.into_iter().find(|name| *name != guest);
                    let other = other.unwrap_or_default();
                    return Err((span, Problem::GuestLink { guest, other }));
                };
                if rate.is_some() {
                    return Err((span, Problem::GuestRate { guest }));
                }
                if wan.is_some() {
                    return Err((span, Problem::GuestWan { guest }));
                }
                let ends = [
                    self.wire(a, b, mtu, plans, &mut macs, &mut wired),
                    self.wire(b, a, mtu, plans, &mut macs, &mut wired),
                ];
                let interface = ends.into_iter().find(|end| end.node == guest);
                if let (Some(interface), Some(port)) = (interface, wired.ports[switch].last_mut()) {
                    port.guest = Some(GuestNic {
                        guest,
                        interface: interface.interface,
                        tso,
                    });
                }
                continue;
            }
            let (a, b) = (
                self.wire(a, b, mtu, plans, &mut macs, &mut wired),
                self.wire(b, a, mtu, plans, &mut macs, &mut wired),
            );
            let wan = wan.map(|options| {
                let number = 1 + wired.links.iter().filter(|link| link.wan.is_some()).count();
                LinkWan {
                    node: format!("wan.{number}"),
                    options,
                }
            });
            wired.links.push(Link { a, b, mtu, rate, wan });
        }
        for (host, (plan, interfaces)) in self.hosts.iter().zip(plans.iter().zip(&wired.interfaces)) {
            plan.check_counts(host, interfaces.len())?;
        }
        for ports in &mut wired.ports {
            ports.sort_by_key(|port| port.number);
        }
        Ok(wired)
    }

    /// Adds the interface of `end` for the link to `other`.
    fn wire(
        &mut self,
        end: ParsedEnd,
        other: ParsedEnd,
        mtu: u32,
        plans: &[HostPlan],
        macs: &mut Macs,
        wired: &mut LinkedHosts,
    ) -> End {
        let node = self.name(end.node).to_owned();
        match end.node {
            Node::Host(index) => {
                let count = wired.interfaces[index].len();
                let interface = plans[index].interface(count, |i| macs.host(index, i));
                wired.interfaces[index].push(interface.clone());
                End {
                    node,
                    interface: interface.name,
                    mac: interface.mac,
                }
            }
            Node::Switch(index) => {
                let interface = port_name(&wired.ports[index], self.name(other.node));
                let number = PortNo::from_raw(end.port.unwrap_or_else(|| self.free_port(index)));
                wired.ports[index].push(SwitchPort {
                    number,
                    interface: interface.clone(),
                    mtu,
                    guest: None,
                });
                End {
                    node,
                    interface,
                    mac: macs.switch(),
                }
            }
        }
    }

    fn free_port(&mut self, switch: usize) -> u32 {
        let free = (1..)
            .find(|number| !self.claimed.contains(&(switch, *number)))
            .unwrap_or(MAX_PORT);
        self.claimed.insert((switch, free));
        free
    }
}

fn port_name(ports: &[SwitchPort], peer: &str) -> String {
    let taken = |name: &str| ports.iter().any(|port| port.interface == name);
    let further = (2..).map(|n: usize| format!("{peer}_{n}"));
    std::iter::once(peer.to_owned())
        .chain(further)
        .find(|name| !taken(name))
        .unwrap_or_default()
}

impl HostPlan {
    fn interface(&self, index: usize, mac: impl FnOnce(usize) -> Mac) -> Interface {
        let address = |family: &Vec<(_, IpPrefix)>| family.get(index).map(|(_, prefix)| *prefix);
        Interface {
            name: format!("eth{index}"),
            mac: self.macs.get(index).map_or_else(|| mac(index), |(_, mac)| *mac),
            addresses: self.addresses.iter().filter_map(address).collect(),
            vlan: self.vlan,
        }
    }

    fn check_counts(&self, host: &str, interfaces: usize) -> Result<(), LocatedProblem> {
        let macs = self.macs.iter().map(|(span, _)| span).enumerate();
        let addresses = self
            .addresses
            .iter()
            .flat_map(|list| list.iter().map(|(span, _)| span).enumerate());
        match macs.chain(addresses).find(|(index, _)| *index >= interfaces) {
            None => Ok(()),
            Some((index, span)) => Err((
                span.clone(),
                Problem::MoreValuesThanInterfaces {
                    host: host.to_owned(),
                    interfaces,
                    values: index + 1,
                },
            )),
        }
    }
}

/// The allocator of unique MAC addresses.
struct Macs {
    given: HashMap<Mac, String>,
    switch_ends: u32,
}

impl Macs {
    fn new(plans: &[HostPlan], hosts: &[String]) -> Result<Macs, LocatedProblem> {
        let mut given: HashMap<Mac, String> = HashMap::new();
        for (plan, host) in plans.iter().zip(hosts) {
            for (span, mac) in &plan.macs {
                if let Some(node) = given.insert(*mac, host.clone()) {
                    return Err((span.clone(), Problem::DuplicateMac { mac: *mac, node }));
                }
            }
        }
        Ok(Macs {
            given,
            switch_ends: 0,
        })
    }

    /// Returns `02:00:00:ii:nn:nn`, or the next free `02:00:01…` if the file assigns that address to another
    /// interface.
    fn host(&mut self, host: usize, interface: usize) -> Mac {
        let wanted = 0x0200_0000_0000 | (interface as u64 & 0xff) << 16 | (host as u64 + 1) & 0xffff;
        self.claim(wanted)
    }

    /// Returns `02:01:00:00:00:01` and following, in the order of the links.
    fn switch(&mut self) -> Mac {
        self.switch_ends += 1;
        self.claim(0x0201_0000_0000 | u64::from(self.switch_ends))
    }

    fn claim(&mut self, wanted: u64) -> Mac {
        let mut mac = Mac::from_u64(wanted);
        while self.given.contains_key(&mac) {
            mac = Mac::from_u64(mac.to_u64() + 0x0000_0100_0000);
        }
        self.given.insert(mac, String::new());
        mac
    }
}

/// Parses `PREFIX via ADDRESS`.
pub(crate) fn route(text: &str) -> Option<Route> {
    let (destination, via) = text.split_once(" via ")?;
    let (destination, via): (IpPrefix, _) = (destination.trim().parse().ok()?, via.trim().parse().ok()?);
    let via: std::net::IpAddr = via;
    (destination.address().is_ipv4() == via.is_ipv4()).then_some(Route { destination, via })
}

/// Returns the default route by way of `via`.
pub(crate) fn default_route(via: std::net::IpAddr) -> Route {
    Route {
        destination: IpPrefix::everything(via),
        via,
    }
}
