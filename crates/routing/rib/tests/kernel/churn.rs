//! Random operations in phases, and lookups compared with `ip route get` after each.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use millrace_fib::Family;
use millrace_types::split_mix;

use crate::bed::{Bed, NAMES, batch};

const PHASES: usize = 12;
const OPERATIONS: usize = 150;

struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        split_mix::next(&mut self.0) % limit
    }

    fn pick<'a>(&mut self, all: &[&'a str]) -> &'a str {
        all[self.below(all.len() as u64) as usize]
    }

    fn name(&mut self) -> &'static str {
        self.pick(&NAMES)
    }

    /// A prefix of few networks, so that they nest.
    fn prefix(&mut self, family: Family) -> String {
        match family {
            Family::V4 => {
                let len = [0, 8, 15, 16, 20, 23, 24, 25, 28, 32][self.below(10) as usize];
                let bits = 0xac10_0000 | (self.below(4) << 14 | self.below(4) << 7 | self.below(4)) as u32;
                let mask = if len == 0 { 0 } else { u32::MAX << (32 - len) };
                format!("{}/{len}", Ipv4Addr::from_bits(bits & mask))
            }
            Family::V6 => {
                let len = [0, 16, 32, 44, 48, 56, 64, 65, 127, 128][self.below(10) as usize];
                let mask = if len == 0 { 0 } else { u128::MAX << (128 - len) };
                format!("{}/{len}", Ipv6Addr::from_bits(self.bits_v6() & mask))
            }
        }
    }

    fn bits_v6(&mut self) -> u128 {
        let (a, b, c) = (
            u128::from(self.below(4)),
            u128::from(self.below(4)),
            u128::from(self.below(4)),
        );
        0x2001_0db8_4000_0000_u128 << 64 | a << 82 | b << 64 | c << 62 | u128::from(self.below(3))
    }

    fn gateway(&mut self, family: Family) -> String {
        let (link, last) = (2 + self.below(3), 2 + self.below(4));
        match family {
            Family::V4 => format!("via 10.0.{link}.{last}"),
            Family::V6 => format!("via 2001:db8:{link}::{last}"),
        }
    }

    fn hops(&mut self, family: Family) -> String {
        match self.below(8) {
            0..=2 => self.gateway(family),
            3 => format!("dev {}", self.name()),
            4 => format!(
                "nhid {}",
                if family == Family::V4 {
                    1 + self.below(3)
                } else {
                    4 + self.below(3)
                }
            ),
            5 => format!(
                "nhid {}",
                if family == Family::V4 {
                    10 + self.below(2)
                } else {
                    12 + self.below(2)
                }
            ),
            6 if family == Family::V4 => format!("via inet6 2001:db8:{0}::9 dev v{0}", 2 + self.below(3)),
            _ => (0..2 + self.below(2))
                .map(|_| format!("nexthop {} weight {}", self.gateway(family), 1 + self.below(4)))
                .collect::<Vec<_>>()
                .join(" "),
        }
    }

    fn route(&mut self) -> String {
        let family = if self.below(2) == 0 {
            Family::V4
        } else {
            Family::V6
        };
        let prefix = self.prefix(family);
        let metric = self.pick(&["", "", " metric 10", " metric 20"]);
        match self.below(10) {
            0..=4 => {
                let verb = self.pick(&["add", "replace", "append", "prepend"]);
                format!("route {verb} {prefix}{metric} {}", self.hops(family))
            }
            5 => {
                let kind = self.pick(&["blackhole", "unreachable", "prohibit"]);
                format!("route add {kind} {prefix}{metric}")
            }
            6 => format!("route del {prefix} {}{metric}", self.gateway(family)),
            _ => format!("route del {prefix}{metric}"),
        }
    }

    fn other(&mut self) -> String {
        let (link, last) = (2 + self.below(3), 2 + self.below(4));
        match self.below(10) {
            0 | 1 => format!(
                "nexthop replace id {} via 10.0.{link}.{last} dev v{link}",
                1 + self.below(3)
            ),
            2 | 3 => format!(
                "nexthop replace id {} via 2001:db8:{link}::{last} dev v{link}",
                4 + self.below(3)
            ),
            4 => format!(
                "nexthop replace id {} group {}/{},3",
                10 + self.below(2),
                1,
                2 + self.below(2)
            ),
            5 => format!(
                "nexthop replace id {} group {}",
                12 + self.below(2),
                self.pick(&["4/5", "5/6", "6", "4/5/6"])
            ),
            6 => format!(
                "nexthop del id {}",
                self.pick(&["1", "2", "3", "4", "5", "6", "10", "12"])
            ),
            7 => format!("link set {} {}", self.name(), self.pick(&["down", "up", "up"])),
            8 => format!(
                "link set {} {}",
                self.name().replace('v', "w"),
                self.pick(&["down", "up", "up"])
            ),
            _ => {
                let verb = self.pick(&["add", "del", "add"]);
                let address = self.pick(&["10.0.N.1/24", "2001:db8:N::1/64", "172.16.64.N/24"]);
                format!(
                    "addr {verb} {} dev v{link}",
                    address.replace('N', &link.to_string())
                )
            }
        }
    }

    fn address(&mut self, family: Family) -> IpAddr {
        match family {
            Family::V4 if self.below(20) == 0 => IpAddr::from(Ipv4Addr::from_bits(
                (1 + self.below(222) as u32) << 24 | self.below(1 << 24) as u32,
            )),
            Family::V4 if self.below(10) == 0 => {
                IpAddr::from([10, 0, 2 + self.below(3) as u8, self.pick_byte(&[0, 1, 2, 9, 255])])
            }
            Family::V4 => IpAddr::from(Ipv4Addr::from_bits(
                0xac10_0000 | (self.below(4) << 14 | self.below(4) << 7 | self.below(256)) as u32,
            )),
            Family::V6 if self.below(10) == 0 => format!("2001:db8:{}::{}", 2 + self.below(3), self.below(4))
                .parse()
                .unwrap(),
            Family::V6 => IpAddr::from(Ipv6Addr::from_bits(
                self.bits_v6() | u128::from(self.below(4)) << 30,
            )),
        }
    }

    fn pick_byte(&mut self, all: &[u8]) -> u8 {
        all[self.below(all.len() as u64) as usize]
    }
}

/// Churn with links that go up and down, addresses, objects and routes: after each phase the routes are the kernel's, and so
/// is the route of each address.
#[test]
fn lookups_equal_ip_route_get_after_each_phase_of_churn() {
    let Some(mut bed) = Bed::new() else {
        return;
    };
    bed.repairs = 1;
    let count = std::env::var("MILLRACE_ROUTING_ADDRESSES").map_or(500, |text| text.parse().unwrap());
    let seed = std::env::var("MILLRACE_ROUTING_SEED").map_or(1, |text| text.parse().unwrap());
    let mut random = Random(seed);
    let mut forwarded = 0;
    for phase in 0..PHASES {
        let mut lines = Vec::new();
        if phase % 3 == 0 {
            // Without links that are up, hardly any route can be made.
            for (name, number) in NAMES.iter().zip(2..) {
                lines.push(format!("link set {name} up"));
                lines.push(format!("link set {} up", name.replace('v', "w")));
                lines.push(format!("addr add 10.0.{number}.1/24 dev {name}"));
                lines.push(format!("addr add 2001:db8:{number}::1/64 dev {name}"));
            }
        }
        for _ in 0..OPERATIONS {
            lines.push(if random.below(4) == 0 {
                random.other()
            } else {
                random.route()
            });
        }
        println!("phase {phase} of seed {seed}:\n{}", lines.join("\n"));
        let (_, failed) = batch(&[], &lines);
        assert!(failed.len() < lines.len());
        let addresses: Vec<IpAddr> = (0..count)
            .map(|at| random.address(if at % 2 == 0 { Family::V4 } else { Family::V6 }))
            .collect();
        for addresses in addresses.chunks(10_000) {
            forwarded += bed.compare(addresses);
        }
    }
    assert!(
        forwarded > count,
        "{forwarded} of {} addresses were forwarded",
        count * PHASES
    );
}
