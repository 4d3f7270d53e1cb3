//! A namespace with three pairs of interfaces, and a RIB that follows it.

use std::collections::BTreeMap;
use std::io::Write;
use std::net::IpAddr;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::{Duration, Instant};

use millrace_fib::{Family, Fib, NextHopKind, Prefix};
use millrace_netlink::{Kernel, Namespace, Settings};
use millrace_rib::event::{Change, Netns, Object, RouteKind, Source};
use millrace_rib::{Event, HopView, Limits, Rib, RouteView, VrfId};
use millrace_types::Time;
use nix::sched::{CloneFlags, unshare};
use nix::unistd::gettid;
use serde_json::Value;

/// The longest time that the kernel may take.
const BOUND: Duration = Duration::from_secs(60);
/// The longest time between an address and its routes.
const SETTLE_BOUND: Duration = Duration::from_secs(60);
const NETNS: Netns = Netns(1);
const MAIN: u32 = 254;
/// Names of interfaces; each has a peer whose name begins with `w`.
pub(crate) const NAMES: [&str; 3] = ["v2", "v3", "v4"];

/// Returns a difference.
macro_rules! ensure {
    ($condition:expr, $($text:tt)*) => {
        if !$condition {
            return Err(format!($($text)*));
        }
    };
}

pub(crate) struct Bed {
    pub(crate) rib: Rib,
    pub(crate) vrf: VrfId,
    fib: Fib,
    kernel: Kernel,
    events: Receiver<Vec<Event>>,
    markers: u32,
    /// The number of differences that a dump may repair: the kernel sends messages of two processors in any order.
    pub(crate) repairs: u32,
    names: BTreeMap<u16, String>,
}

/// Runs `ip` with lines of a batch; lines that fail are left out. Returns the output, and the numbers of failed lines with
/// the reason.
pub(crate) fn batch(options: &[&str], lines: &[String]) -> (String, BTreeMap<usize, String>) {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(lines.join("\n").as_bytes()).unwrap();
    file.write_all(b"\n").unwrap();
    let output = Command::new("ip")
        .args(options)
        .args(["-force", "-batch", file.path().to_str().unwrap()])
        .stderr(Stdio::piped())
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    let mut failed = BTreeMap::new();
    let mut reason = String::new();
    for line in errors.lines() {
        match line
            .strip_prefix("Command failed ")
            .and_then(|rest| rest.rsplit(':').next())
        {
            Some(number) => {
                failed.insert(number.parse::<usize>().unwrap() - 1, core::mem::take(&mut reason));
            }
            None => reason = line.to_owned(),
        }
    }
    assert!(reason.is_empty(), "ip gave up: {reason}");
    (String::from_utf8(output.stdout).unwrap(), failed)
}

/// Executes lines of `ip`, all of which must succeed.
pub(crate) fn ip(lines: &[&str]) {
    let lines: Vec<String> = lines.iter().map(|line| (*line).to_owned()).collect();
    let (_, failed) = batch(&[], &lines);
    assert!(failed.is_empty(), "{failed:?} of {lines:#?}");
}

impl Bed {
    /// Makes the namespace; `None` without root.
    pub(crate) fn new() -> Option<Bed> {
        if let Err(errno) = unshare(CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWNS) {
            eprintln!("SKIPPED: a network namespace needs root ({errno})");
            return None;
        }
        let namespace =
            Namespace::Path(format!("/proc/{}/task/{}/ns/net", std::process::id(), gettid()).into());
        // Link-local addresses would come at times of their own. The kernel must be a router: as a host, it prefers shorter
        // IPv6 routes whose gateways answer.
        let sysctl = [
            "net.ipv4.nexthop_compat_mode=0",
            "net.ipv6.conf.all.forwarding=1",
            "net.ipv6.conf.default.addr_gen_mode=1",
            "net.ipv6.conf.default.accept_dad=0",
            "net.ipv6.conf.default.router_solicitations=0",
        ];
        assert!(
            Command::new("sysctl")
                .arg("-qw")
                .args(sysctl)
                .status()
                .unwrap()
                .success()
        );
        // Files of /sys/class/net are those of the namespace that mounts it.
        for arguments in [vec!["--make-rprivate", "/"], vec!["-t", "sysfs", "sysfs", "/sys"]] {
            assert!(Command::new("mount").args(arguments).status().unwrap().success());
        }
        ip(&["link set lo up"]);
        for name in NAMES {
            let peer = name.replace('v', "w");
            ip(&[
                &format!("link add {name} type veth peer name {peer}"),
                &format!("link set {peer} up"),
                &format!("link set {name} up"),
            ]);
        }
        let (sender, events) = sync_channel(1024);
        let mut rib = Rib::new(Limits::default());
        let (vrf, fib) = rib.add_vrf(NETNS, MAIN, Source::Kernel);
        let mut names = BTreeMap::new();
        for (index, name) in NAMES
            .iter()
            .flat_map(|name| [(*name).to_owned(), name.replace('v', "w")])
            .enumerate()
        {
            rib.add_interface(vrf, NETNS, &name, index as u16 + 1);
            names.insert(index as u16 + 1, name);
        }
        let settings = Settings {
            keeps_from_forwarding: false,
            ..Settings::default()
        };
        let kernel = Kernel::open(NETNS, &namespace, settings, sender).unwrap();
        let mut bed = Bed {
            rib,
            vrf,
            fib,
            kernel,
            events,
            markers: 0,
            repairs: 0,
            names,
        };
        bed.until_dumps_end();
        for (name, number) in NAMES.iter().zip(2..) {
            ip(&[
                &format!("addr add 10.0.{number}.1/24 dev {name}"),
                &format!("addr add 2001:db8:{number}::1/64 dev {name}"),
            ]);
        }
        bed.settle();
        Some(bed)
    }

    /// Applies events until one is the last.
    fn until(&mut self, mut is_last: impl FnMut(&Event) -> bool) {
        let end = Instant::now() + BOUND;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let batch = self.events.recv_timeout(left).expect("the kernel is silent");
            let mut was_last = false;
            for event in batch {
                was_last |= is_last(&event);
                // Time stands still: nothing is dumped as a check.
                self.rib.handle(event, Time::from_secs(1));
            }
            while let Some(action) = self.rib.next_action() {
                self.kernel.execute(&action);
            }
            if let Some(retired) = self.rib.take_retired() {
                self.rib.reclaim(retired);
            }
            if was_last {
                return;
            }
        }
    }

    /// Waits until the RIB has seen all that was done: carriers have settled, and a last route has arrived.
    pub(crate) fn settle(&mut self) {
        let end = Instant::now() + BOUND;
        // The kernel tells changes of carriers up to a second later, and makes the routes of IPv6 addresses later still.
        while !self.are_carriers_told() || has_tentative() {
            assert!(Instant::now() < end, "carriers and addresses do not settle");
            std::thread::sleep(Duration::from_millis(10));
        }
        self.markers += 1;
        let marker: IpAddr = format!("203.0.113.{}", self.markers % 256).parse().unwrap();
        let line = |verb: &str| format!("route {verb} blackhole {marker}/32");
        ip(&[&line("add"), &line("del")]);
        let marker = Prefix::host(marker);
        self.until(
            |event| matches!(&event.change, Change::Gone(Object::Route(route)) if route.prefix == marker),
        );
    }

    fn are_carriers_told(&self) -> bool {
        // The kernel tells a change of the carrier at once when somebody reads it.
        for name in self.names.values() {
            let _down_or_gone = std::fs::read(format!("/sys/class/net/{name}/carrier"));
        }
        let text = Command::new("ip")
            .args(["-j", "link", "show"])
            .output()
            .unwrap()
            .stdout;
        let links: Vec<Value> = serde_json::from_slice(&text).unwrap();
        let find = |name: &str| links.iter().find(|link| link["ifname"] == name);
        let is_up = |link: &Value| link["flags"].as_array().unwrap().iter().any(|flag| flag == "UP");
        NAMES.iter().all(|name| {
            let (Some(one), Some(other)) = (find(name), find(&name.replace('v', "w"))) else {
                return true;
            };
            [(one, other), (other, one)].into_iter().all(|(link, peer)| {
                let expected = match (is_up(link), is_up(peer)) {
                    (true, true) => "UP",
                    (true, false) => "LOWERLAYERDOWN",
                    (false, _) => "DOWN",
                };
                link["operstate"] == expected
            })
        })
    }

    /// Waits until routes and lookups are the kernel's. Returns the number of addresses whose packets are forwarded.
    ///
    /// The kernel makes the routes of IPv6 addresses some time after the addresses. A rule that the RIB does not know is not
    /// made good by waiting: nothing is dumped.
    pub(crate) fn compare(&mut self, addresses: &[IpAddr]) -> usize {
        let end = Instant::now() + SETTLE_BOUND;
        loop {
            self.settle();
            match self
                .compare_routes()
                .and_then(|()| self.compare_lookups(addresses))
            {
                Ok(forwarded) => return forwarded,
                Err(_) if Instant::now() < end => {}
                Err(difference) => {
                    assert!(self.repairs > 0, "{difference}");
                    self.repairs -= 1;
                    println!("repaired by a dump: {difference}");
                    self.repair();
                }
            }
        }
    }

    /// Has everything dumped, as after lost events.
    fn repair(&mut self) {
        let event = Event {
            netns: NETNS,
            source: Source::Kernel,
            change: Change::Lost,
        };
        self.rib.handle(event, Time::from_secs(1));
        while let Some(action) = self.rib.next_action() {
            self.kernel.execute(&action);
        }
        self.until_dumps_end();
    }

    fn until_dumps_end(&mut self) {
        let mut dumps = 0;
        self.until(|event| {
            dumps += usize::from(matches!(event.change, Change::DumpEnds(_)));
            dumps == 6
        });
    }

    /// Compares all routes of the main table with `ip route`: prefix, metric, type, next hops.
    fn compare_routes(&self) -> Result<(), String> {
        let mut expected = Vec::new();
        for family in ["-4", "-6"] {
            let text = Command::new("ip")
                .args(["-j", family, "route", "show"])
                .output()
                .unwrap()
                .stdout;
            let routes: Vec<Value> = serde_json::from_slice(&text).unwrap();
            for route in routes {
                expected.push(line_of(&route, family == "-6"));
            }
        }
        let mut found: Vec<String> = self
            .rib
            .routes(self.vrf)
            .filter(|view| !view.is_local_table)
            .map(|view| self.line_of_view(&view))
            .collect();
        expected.sort();
        // A dump of IPv6 routes leaves out the routes that stand between the next hops of a multipath route of the same
        // prefix and metric (`fib6_dump_node` jumps to its last sibling). No packet takes them.
        let peers: Vec<String> = expected
            .iter()
            .filter(|line| line.contains("\", \""))
            .map(|line| identity(line))
            .collect();
        found.retain(|line| {
            expected.contains(line) || !line.contains(':') || !peers.contains(&identity(line))
        });
        found.sort();
        let only = |one: &[String], other: &[String]| -> Vec<String> {
            one.iter().filter(|line| !other.contains(line)).cloned().collect()
        };
        let all = || -> Vec<&String> {
            let near = |line: &&String| {
                only(&found, &expected)
                    .iter()
                    .any(|other| other.split(' ').next() == line.split(' ').next())
            };
            expected.iter().filter(near).collect()
        };
        ensure!(
            expected == found,
            "around them, the kernel has {:#?}\nonly the kernel has {:#?}\nonly the RIB has {:#?}",
            all(),
            only(&expected, &found),
            only(&found, &expected)
        );
        Ok(())
    }

    fn line_of_view(&self, view: &RouteView) -> String {
        let kind = match view.kind {
            RouteKind::Unicast => "unicast",
            RouteKind::Blackhole => "blackhole",
            RouteKind::Unreachable => "unreachable",
            RouteKind::Prohibit => "prohibit",
            other => unreachable!("{other:?} in the main table"),
        };
        let mut hops: Vec<String> = match view.kind {
            RouteKind::Unicast => view.next_hops.iter().map(|hop| self.hop(hop)).collect(),
            _ => Vec::new(),
        };
        hops.sort();
        format!("{} metric {} {kind} {hops:?}", view.prefix, view.metric)
    }

    fn hop(&self, hop: &HopView) -> String {
        let gateway = hop
            .spec
            .gateway
            .map(|gateway| gateway.to_string())
            .unwrap_or_default();
        format!(
            "{} {gateway}",
            self.names.get(&hop.spec.interface).map_or("?", String::as_str)
        )
    }

    /// Compares lookups with `ip route get`. Returns the number of addresses whose packets are forwarded.
    fn compare_lookups(&self, addresses: &[IpAddr]) -> Result<usize, String> {
        let lines: Vec<String> = addresses
            .iter()
            .map(|address| format!("route get {address}"))
            .collect();
        let (text, failed) = batch(&["-j"], &lines);
        // One array for each line that succeeded.
        let answers: Vec<Value> = serde_json::Deserializer::from_str(&text)
            .into_iter::<Vec<Value>>()
            .flat_map(Result::unwrap)
            .collect();
        let mut answers = answers.into_iter();
        let mut forwarded = 0;
        for (at, address) in addresses.iter().enumerate() {
            let group = match address {
                IpAddr::V4(address) => self.fib.lookup_v4(address.to_bits()),
                IpAddr::V6(address) => self.fib.lookup_v6(address.to_bits()),
            };
            let reader = self.rib.next_hops();
            let members: Vec<_> = reader
                .members(group)
                .into_iter()
                .map(|id| reader.next_hop(id).unwrap().spec())
                .collect();
            let kinds: Vec<NextHopKind> = members.iter().map(|member| member.kind).collect();
            let explained = self.rib.explain(self.vrf, *address);
            let context = || {
                let all = explained
                    .as_ref()
                    .map(|view| self.rib.route(self.vrf, &view.prefix))
                    .unwrap_or_default();
                let all: Vec<String> = all.iter().map(|view| self.line_of_view(view)).collect();
                format!("{address}: the FIB has {members:?} of {all:#?}")
            };
            if let Some(reason) = failed.get(&at) {
                let expected = if reason.contains("Network is unreachable") {
                    None
                } else if reason.contains("No route to host") {
                    Some(NextHopKind::Unreachable)
                } else if reason.contains("Permission denied") {
                    Some(NextHopKind::Prohibit)
                } else {
                    ensure!(reason.contains("Invalid argument"), "{address}: {reason}");
                    Some(NextHopKind::Blackhole)
                };
                let found = kinds.first().copied();
                // IPv6 says "Network is unreachable" where a route says so, too, and for `throw`.
                let is_equal = found == expected
                    || (expected.is_none()
                        && matches!(found, Some(NextHopKind::Unreachable | NextHopKind::NoRoute)));
                ensure!(is_equal, "{}; the kernel: {reason}", context());
                continue;
            }
            let answer = answers.next().unwrap();
            let kind = answer["type"].as_str().unwrap_or("unicast");
            match kind {
                "local" | "broadcast" | "anycast" => {
                    ensure!(
                        kinds == [NextHopKind::Local],
                        "{}; the kernel: {answer}",
                        context()
                    );
                }
                "unicast" => {
                    forwarded += 1;
                    let taken = hop_of(&answer);
                    let hops = |view: &RouteView| -> Vec<String> {
                        view.next_hops.iter().map(|hop| self.hop(hop)).collect()
                    };
                    let all: Vec<String> = explained.iter().flat_map(hops).collect();
                    // Among IPv4 default routes of one metric, the kernel prefers those whose gateways answer.
                    let equals: Vec<String> = explained
                        .iter()
                        .filter(|view| view.prefix.len() == 0)
                        .flat_map(|view| self.rib.route(self.vrf, &view.prefix))
                        .filter(|other| explained.as_ref().is_some_and(|view| view.metric == other.metric))
                        .flat_map(|view| hops(&view))
                        .collect();
                    let is_possible = all.contains(&taken) || equals.contains(&taken);
                    ensure!(is_possible, "{}; the kernel: {answer}", context());
                    // The FIB has all next hops of the route, or those that are alive.
                    ensure!(!members.is_empty(), "{}", context());
                    for member in &members {
                        let hop = HopView {
                            spec: *member,
                            link: String::new(),
                            weight: 1,
                            is_live: true,
                        };
                        ensure!(
                            all.contains(&self.hop(&hop)),
                            "{}; the kernel: {answer}",
                            context()
                        );
                    }
                }
                other => panic!("{address}: unexpected type {other}: {answer}"),
            }
        }
        ensure!(answers.next().is_none(), "too many answers");
        Ok(forwarded)
    }

    /// Returns the number of routes that the RIB has of the main table.
    pub(crate) fn len(&self, family: Family) -> usize {
        let of = |view: &RouteView| !view.is_local_table && view.prefix.family() == family;
        self.rib.routes(self.vrf).filter(of).count()
    }
}

/// Returns prefix and metric of a route's line.
fn identity(line: &str) -> String {
    line.split(' ').take(3).collect::<Vec<_>>().join(" ")
}

/// Returns true if an address is tentative on an interface that is up.
fn has_tentative() -> bool {
    let text = Command::new("ip")
        .args(["-j", "-6", "addr", "show", "up", "tentative"])
        .output()
        .unwrap()
        .stdout;
    let links: Vec<Value> = serde_json::from_slice(&text).unwrap();
    let waits = |link: &Value| {
        link["operstate"] == "UP"
            && link["addr_info"]
                .as_array()
                .is_some_and(|addresses| !addresses.is_empty())
    };
    links.iter().any(waits)
}

/// Returns a next hop of `ip -j route` as `v2 10.0.2.9`.
fn hop_of(value: &Value) -> String {
    let gateway = value["gateway"]
        .as_str()
        .or_else(|| value["via"]["host"].as_str())
        .unwrap_or_default();
    format!("{} {gateway}", value["dev"].as_str().unwrap_or("?"))
}

/// Returns a route of `ip -j route show` as the RIB's routes are written.
fn line_of(route: &Value, six: bool) -> String {
    let kind = route["type"].as_str().unwrap_or("unicast");
    let dst = match route["dst"].as_str().unwrap() {
        "default" if six => "::/0".to_owned(),
        "default" => "0.0.0.0/0".to_owned(),
        dst if dst.contains('/') => dst.to_owned(),
        dst => format!("{dst}/{}", if six { 128 } else { 32 }),
    };
    let mut hops: Vec<String> = match route["nexthops"].as_array() {
        _ if kind != "unicast" => Vec::new(),
        Some(hops) => hops.iter().map(hop_of).collect(),
        // Routes by a next-hop object are compared by number of objects: the listing names no interface.
        None => vec![hop_of(route)],
    };
    if let Some(id) = route["nhid"].as_u64() {
        hops = hops_of_object(id);
    }
    hops.sort();
    format!(
        "{dst} metric {} {kind} {hops:?}",
        route["metric"].as_u64().unwrap_or(0)
    )
}

/// Returns the next hops of an object, as the kernel has it.
fn hops_of_object(id: u64) -> Vec<String> {
    let text = Command::new("ip")
        .args(["-j", "nexthop", "show", "id", &id.to_string()])
        .output()
        .unwrap()
        .stdout;
    let objects: Vec<Value> = serde_json::from_slice(&text).unwrap();
    match objects[0]["group"].as_array() {
        Some(members) => members
            .iter()
            .flat_map(|member| hops_of_object(member["id"].as_u64().unwrap()))
            .collect(),
        None => vec![hop_of(&objects[0])],
    }
}
