//! The FIB that reader and RIB make of a real kernel, compared with the kernel's own lookups (`ip route get`) after each phase of
//! changes, among them those that the kernel makes without a message.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::{Duration, Instant};

use millrace_fib::{Fib, NextHopKind, NextHops};
use millrace_netlink::wire::{Content, HEADER_SIZE, Messages, rtn};
use millrace_netlink::{Kernel, Namespace, Settings};
use millrace_rib::event::Source;
use millrace_rib::{Event, Limits, Rib, VrfId};
use millrace_types::Time;

use crate::bed::{NETNS, Neighbour, apart, batch};

/// The longest time from the last change to a FIB without differences.
const CONVERGENCE: Duration = Duration::from_secs(60);
const LINKS: u32 = 4;
const MAIN: u32 = 254;

/// The treatment of a packet.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Outcome {
    /// One of these next hops: interface and gateway.
    Forward(BTreeSet<(u32, Option<IpAddr>)>),
    Local,
    Blackhole,
    Unreachable,
    Prohibit,
}

/// The kernel's lookups.
struct Oracle {
    socket: netlink_sys::Socket,
}

impl Oracle {
    fn new() -> Oracle {
        let mut socket = netlink_sys::Socket::new(netlink_sys::protocols::NETLINK_ROUTE).unwrap();
        socket.bind_auto().unwrap();
        Oracle { socket }
    }

    fn lookup(&self, address: IpAddr) -> Outcome {
        let octets = match address {
            IpAddr::V4(address) => address.octets().to_vec(),
            IpAddr::V6(address) => address.octets().to_vec(),
        };
        let (family, bits) = if address.is_ipv4() { (2, 32) } else { (10, 128) };
        let mut request = (16 + 12 + 4 + octets.len() as u32).to_ne_bytes().to_vec();
        request.extend([26, 0, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0, family, bits]);
        request.resize(HEADER_SIZE + 12, 0);
        request.extend((octets.len() as u16 + 4).to_ne_bytes());
        request.extend([1, 0]);
        request.extend(octets);
        self.socket.send(&request, 0).unwrap();
        let (answer, _) = self.socket.recv_from_full().unwrap();
        match Messages::new(&answer).next().unwrap().unwrap().content().unwrap() {
            Content::Route(_, route) => match route.kind {
                rtn::UNICAST => {
                    let hop = route.hops().next().unwrap();
                    let gateway = hop.gateway.filter(|gateway| *gateway != address);
                    Outcome::Forward(BTreeSet::from([(hop.interface, gateway)]))
                }
                rtn::LOCAL | rtn::BROADCAST | rtn::ANYCAST => Outcome::Local,
                rtn::BLACKHOLE => Outcome::Blackhole,
                rtn::UNREACHABLE => Outcome::Unreachable,
                rtn::PROHIBIT => Outcome::Prohibit,
                other => panic!("{address}: a route of type {other}"),
            },
            Content::Error(libc_error) => match libc_error {
                // EINVAL, EACCES; ENETUNREACH and EHOSTUNREACH.
                22 => Outcome::Blackhole,
                13 => Outcome::Prohibit,
                101 | 113 => Outcome::Unreachable,
                other => panic!("{address}: {}", std::io::Error::from_raw_os_error(other)),
            },
            other => panic!("{address}: {other:?}"),
        }
    }
}

/// Reader, RIB and FIB of a namespace.
struct Switch {
    rib: Rib,
    vrf: VrfId,
    fib: Fib,
    next_hops: NextHops,
    kernel: Kernel,
    events: Receiver<Vec<Event>>,
    start: Instant,
}

impl Switch {
    fn open(namespace: &Namespace, receive_buffer_size: usize) -> Switch {
        let (sender, events) = sync_channel(64);
        let mut rib = Rib::new(Limits::default());
        let (vrf, fib) = rib.add_vrf(NETNS, MAIN, Source::Kernel);
        for number in 0..LINKS {
            let name = format!("a{number}");
            let index = nix::net::if_::if_nametoindex(name.as_str()).unwrap();
            rib.add_interface(vrf, NETNS, &name, index as u16);
        }
        // As a host, the kernel prefers routes whose gateways answer over better ones; as a router, it does not.
        for (setting, value) in [
            ("ipv6/conf/all/forwarding", "1"),
            ("ipv4/nexthop_compat_mode", "0"),
        ] {
            std::fs::write(format!("/proc/sys/net/{setting}"), value).unwrap();
        }
        let settings = Settings {
            receive_buffer_size,
            keeps_from_forwarding: false,
        };
        let kernel = Kernel::open(NETNS, namespace, settings, sender).unwrap();
        Switch {
            next_hops: rib.next_hops(),
            rib,
            vrf,
            fib,
            kernel,
            events,
            start: Instant::now(),
        }
    }

    /// Passes events and actions on until none came for a moment.
    fn pump(&mut self) {
        loop {
            let next = self.events.recv_timeout(Duration::from_millis(50));
            let is_quiet = next.is_err();
            let now =
                Time::ZERO + millrace_types::Duration::from_millis(self.start.elapsed().as_millis() as u64);
            for event in next.into_iter().flatten() {
                self.rib.handle(event, now);
            }
            self.rib.tick(now);
            while let Some(action) = self.rib.next_action() {
                self.kernel.execute(&action);
            }
            while let Some(retired) = self.rib.take_retired() {
                // Lookups are made on this thread only.
                self.rib.reclaim(retired);
            }
            if is_quiet {
                return;
            }
        }
    }

    fn lookup(&self, address: IpAddr) -> Outcome {
        let group = match address {
            IpAddr::V4(address) => self.fib.lookup_v4(address.to_bits()),
            IpAddr::V6(address) => self.fib.lookup_v6(address.to_bits()),
        };
        let mut hops = BTreeSet::new();
        for id in self.next_hops.members(group) {
            let spec = self.next_hops.next_hop(id).unwrap().spec();
            match spec.kind {
                NextHopKind::Forward | NextHopKind::Glean => {
                    let gateway = spec.gateway.filter(|gateway| *gateway != address);
                    hops.insert((u32::from(spec.interface), gateway));
                }
                NextHopKind::Local => return Outcome::Local,
                NextHopKind::Blackhole => return Outcome::Blackhole,
                NextHopKind::Unreachable | NextHopKind::NoRoute => return Outcome::Unreachable,
                NextHopKind::Prohibit => return Outcome::Prohibit,
            }
        }
        if hops.is_empty() {
            Outcome::Unreachable
        } else {
            Outcome::Forward(hops)
        }
    }

    /// Returns the differences. Of a route with several next hops, the kernel names the one of this lookup, also one that is dead
    /// (its link has no carrier, its neighbour does not answer) while others live.
    fn differences(&self, oracle: &Oracle, addresses: &[IpAddr]) -> Vec<String> {
        let mut found = Vec::new();
        for address in addresses {
            let (expected, have) = (oracle.lookup(*address), self.lookup(*address));
            let is_same = match (&expected, &have) {
                (Outcome::Forward(one), Outcome::Forward(several)) => {
                    one.is_subset(several) || self.dead(*address).is_superset(one)
                }
                _ => expected == have,
            };
            if !is_same {
                let route = self.rib.explain(self.vrf, *address);
                found.push(format!(
                    "{address}: the kernel {expected:?}, the FIB {have:?} by {route:?}"
                ));
            }
        }
        found
    }
}

impl Switch {
    /// Returns the next hops that are left out for an address, because others live.
    fn dead(&self, address: IpAddr) -> BTreeSet<(u32, Option<IpAddr>)> {
        let route = self.rib.explain(self.vrf, address);
        let hops = route.map(|route| route.next_hops).unwrap_or_default();
        if !hops.iter().any(|hop| hop.is_live) {
            return BTreeSet::new();
        }
        let dead = hops.iter().filter(|hop| !hop.is_live);
        dead.map(|hop| (u32::from(hop.spec.interface), hop.spec.gateway))
            .collect()
    }
}

/// xorshift64, and the routes that it added.
struct Random {
    state: u64,
    added: Vec<String>,
}

impl Random {
    fn below(&mut self, bound: u32) -> u32 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        (self.state % u64::from(bound)) as u32
    }

    fn of<'a>(&mut self, items: &[&'a str]) -> &'a str {
        items[self.below(items.len() as u32) as usize]
    }

    /// Returns a prefix: few bits differ, so that prefixes cover each other.
    fn prefix(&mut self, is_ipv6: bool) -> String {
        let bits = self.below(1 << 8) << 16 | self.below(4) << 8 | self.below(4);
        if is_ipv6 {
            let len = 36 + self.below(60);
            let address = 0x2001_0db8_f000_u128 << 80 | u128::from(bits) << 52;
            format!(
                "{}/{len}",
                Ipv6Addr::from_bits(address & u128::MAX << (128 - len))
            )
        } else {
            let len = 8 + self.below(25);
            format!(
                "{}/{len}",
                Ipv4Addr::from_bits((20 << 24 | bits) & u32::MAX << (32 - len))
            )
        }
    }

    fn gateway(&mut self, is_ipv6: bool) -> String {
        let (link, host) = (self.below(LINKS), 2 + self.below(3));
        if is_ipv6 {
            format!("via 2001:db8:{link}::{host} dev a{link}")
        } else if self.below(8) == 0 {
            format!("via inet6 2001:db8:{link}::{host} dev a{link}")
        } else {
            format!("via 10.0.{link}.{host}")
        }
    }

    /// Returns a line of `ip` that changes a route. Some of them fail, as those of routes that went with their link.
    fn change(&mut self) -> String {
        if self.below(3) == 0 && !self.added.is_empty() {
            let at = self.below(self.added.len() as u32) as usize;
            return self.added.swap_remove(at).replacen("VERB", "del", 1);
        }
        let line = self.route();
        let verb = self.of(&["add", "replace", "append", "prepend"]);
        self.added.push(line.clone());
        line.replacen("VERB", verb, 1)
    }

    fn route(&mut self) -> String {
        let is_ipv6 = self.below(3) == 0;
        let family = if is_ipv6 { "6" } else { "4" };
        let prefix = self.prefix(is_ipv6);
        let metric = self.of(&["", "", " metric 5", " metric 70"]);
        let kind = self.below(8);
        // Routes of IPv6 with one prefix and metric stand side by side if the kinds of their next hops differ, in an order that
        // the kernel changes without a message when a next hop in front of them goes. Daemons make no such routes.
        let metric = match kind {
            0..=1 | 4 if is_ipv6 => format!(" metric {}", 2 + kind),
            _ => metric.to_owned(),
        };
        let hops = match kind {
            0 => {
                let discard = self.of(&["blackhole", "unreachable", "prohibit"]);
                // One kind of IPv6 for each metric, for the same reason.
                let metric = if is_ipv6 {
                    format!(" metric {}", 90 + discard.len())
                } else {
                    metric
                };
                return format!("{family} route VERB {discard} {prefix}{metric}");
            }
            1 => format!("dev a{}", self.below(LINKS)),
            2 | 3 => {
                let (one, other) = (self.gateway(is_ipv6), self.gateway(is_ipv6));
                format!("nexthop {one} weight {} nexthop {other}", 1 + self.below(9))
            }
            4 if is_ipv6 => format!("nhid {}", 21 + self.below(8)),
            4 => format!("nhid {}", 11 + self.below(8)),
            _ => self.gateway(is_ipv6),
        };
        format!("{family} route VERB {prefix}{metric} {hops}")
    }

    fn addresses(&mut self, count: usize) -> Vec<IpAddr> {
        let mut found = Vec::new();
        for number in 0..count as u32 {
            let low = self.below(1 << 10);
            let bits = self.below(1 << 8) << 16 | self.below(4) << 8 | self.below(8);
            found.push(match number % 8 {
                0 => Ipv4Addr::from_bits(10 << 24 | low).into(),
                1 => Ipv6Addr::from_bits(
                    0x2001_0db8 << 96 | u128::from(low & 3) << 80 | u128::from(low >> 2 & 7),
                )
                .into(),
                2 | 3 => {
                    Ipv6Addr::from_bits(0x2001_0db8_f000 << 80 | u128::from(bits) << 52 | u128::from(low))
                        .into()
                }
                _ => IpAddr::from(Ipv4Addr::from_bits(20 << 24 | bits)),
            });
        }
        found
    }
}

fn on_links(line: impl Fn(u32) -> String) -> String {
    (0..LINKS).map(line).collect()
}

/// Executes lines of `ip`, of which some fail: `4 route ...`, `6 route ...`, `0 nexthop ...`, by family.
fn attempt<T: AsRef<str>>(lines: &[T]) {
    for family in ["4", "6", "0"] {
        let of_family: Vec<&str> = lines
            .iter()
            .filter_map(|line| line.as_ref().strip_prefix(family))
            .collect();
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), of_family.join("\n") + "\n").unwrap();
        let mut command = std::process::Command::new("ip");
        if family != "0" {
            command.arg(format!("-{family}"));
        }
        let output = command
            .args(["-force", "-batch"])
            .arg(file.path())
            .output()
            .unwrap();
        // A line with wrong syntax would end the batch.
        let errors = String::from_utf8_lossy(&output.stderr);
        let failed = errors
            .lines()
            .filter(|line| line.starts_with("Command failed"))
            .count();
        assert!(
            failed <= of_family.len() * 3 / 4 + 4,
            "{failed} of {} lines failed\n{errors}",
            of_family.len()
        );
        let is_syntax = |line: &&str| line.contains("expected") || line.contains("garbage");
        assert_eq!(errors.lines().find(is_syntax), None);
    }
}

const OBJECTS: &str = "\
    nexthop replace id 11 via 10.0.0.2 dev a0\n\
    nexthop replace id 12 via 10.0.1.2 dev a1\n\
    nexthop replace id 13 via 10.0.2.3 dev a2\n\
    nexthop replace id 14 via 10.0.3.2 dev a3\n\
    nexthop replace id 15 group 11/12/13\n\
    nexthop replace id 16 group 13,5/14\n\
    nexthop replace id 17 blackhole\n\
    nexthop replace id 18 group 14\n\
    nexthop replace id 21 via 2001:db8:0::2 dev a0\n\
    nexthop replace id 22 via 2001:db8:1::2 dev a1\n\
    nexthop replace id 23 via 2001:db8:2::3 dev a2\n\
    nexthop replace id 24 via 2001:db8:3::2 dev a3\n\
    nexthop replace id 25 group 21/22/23\n\
    nexthop replace id 26 group 23,5/24\n\
    nexthop replace id 27 dev a1\n\
    nexthop replace id 28 group 24\n";

/// `MILLRACE_ORACLE_SEEDS` is the number of seeds; each takes 3 s.
#[test]
fn the_fib_forwards_as_the_kernel_would_after_each_phase_of_changes() {
    let seeds = std::env::var("MILLRACE_ORACLE_SEEDS").map_or(1, |text| text.parse().unwrap());
    for seed in 1..=seeds {
        println!("seed {seed}");
        let test = move || phases(seed, Settings::default().receive_buffer_size);
        if let Err(panic) = std::thread::spawn(test).join() {
            std::panic::resume_unwind(panic);
        }
    }
}

#[test]
fn the_fib_forwards_as_the_kernel_would_although_most_notifications_are_lost() {
    // The smallest receive buffer: two or three messages.
    phases(1, 4096);
}

fn phases(seed: u64, receive_buffer_size: usize) {
    let Some(namespace) = apart() else {
        return;
    };
    batch(&on_links(|link| {
        format!("link add a{link} type veth peer name b{link}\n")
    }));
    let far = on_links(|link| {
        let hosts = (2..5).map(|host| {
            format!("address add 10.0.{link}.{host}/24 dev b{link}\naddress add 2001:db8:{link}::{host}/64 dev b{link} nodad\n")
        });
        format!("{}link set b{link} up\n", hosts.collect::<String>())
    });
    let rest = on_links(|link| {
        if link == 0 {
            String::new()
        } else {
            format!("b{link} ")
        }
    });
    let host = Neighbour::start("b0", "link set lo up\n");
    for interface in rest.split_whitespace() {
        host.take(interface);
    }
    host.on(move || batch(&far));
    batch(&on_links(|link| {
        format!(
            "address add 10.0.{link}.1/24 dev a{link}\naddress add 2001:db8:{link}::1/64 dev a{link} nodad\nlink set a{link} up\n"
        )
    }));
    batch(OBJECTS);

    let mut switch = Switch::open(&namespace, receive_buffer_size);
    let oracle = Oracle::new();
    let mut random = Random {
        state: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15),
        added: Vec::new(),
    };
    let on_host = |lines: &'static str| host.on(move || batch(lines));
    for phase in 0..12 {
        let changes: Vec<String> = (0..300).map(|_| random.change()).collect();
        attempt(&changes);
        let what = match phase {
            2 => {
                on_host("link set b1 down\n");
                "the carrier of a1 is lost"
            }
            3 => {
                on_host("link set b1 up\n");
                "the carrier of a1 is back"
            }
            4 => {
                batch("address del 10.0.2.1/24 dev a2\n");
                "an address is deleted"
            }
            5 => {
                batch("address add 10.0.2.1/24 dev a2\n");
                attempt(&["0 nexthop del id 13", "0 nexthop del id 23"]);
                "nexthop objects are deleted"
            }
            6 => {
                attempt(
                    &OBJECTS
                        .lines()
                        .map(|line| format!("0 {}", line.trim()))
                        .collect::<Vec<String>>(),
                );
                attempt(&[
                    "0 nexthop replace id 15 group 13/14",
                    "0 nexthop replace id 26 group 21/22,9",
                ]);
                "groups are replaced"
            }
            7 => {
                batch("link set a3 down\n");
                "a3 is down"
            }
            8 => {
                batch("link set a3 up\n");
                attempt(
                    &OBJECTS
                        .lines()
                        .map(|line| format!("0 {}", line.trim()))
                        .collect::<Vec<String>>(),
                );
                "a3 is up"
            }
            9 => {
                attempt(&["4 route flush table main proto boot"]);
                "a flush"
            }
            10 => {
                batch("link del a2\n");
                "a2 is deleted"
            }
            _ => "routes changed",
        };
        let addresses = random.addresses(4000);
        let routes = switch
            .rib
            .routes(switch.vrf)
            .filter(|route| route.is_installed)
            .count();
        println!("phase {phase}, {what}: {routes} routes before");
        let end = Instant::now() + CONVERGENCE;
        loop {
            switch.pump();
            let differences = switch.differences(&oracle, &addresses);
            if differences.is_empty() {
                break;
            }
            assert!(
                Instant::now() < end,
                "phase {phase}, {what}: {} differences of {} addresses\n{}\n{:?}",
                differences.len(),
                addresses.len(),
                differences[..differences.len().min(8)].join("\n"),
                switch.rib.counts(),
            );
        }
    }
    let status = switch.kernel.status();
    let is_small = receive_buffer_size < Settings::default().receive_buffer_size;
    assert_eq!(
        (status.overruns > 0, status.ignored.malformed),
        (is_small, 0),
        "{status:?}"
    );
}
