//! Prints the rate at which the RIB takes a full table, changes of it, a dump as a check and a link that goes down, in
//! processor time, and the memory of the process.
//!
//! `cargo run --release -p millrace-rib --example feed [ROUTES_V4 ROUTES_V6]`

#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use millrace_fib::{Family, Prefix, mix};
use millrace_rib::event::{
    Change, Dump, Event, Hop, Hops, Link, LinkKind, Netns, Object, Route, RouteKind, RouteMode, Source,
};
use millrace_rib::{Limits, Rib};
use millrace_types::{Mac, Time};

const NETNS: Netns = Netns(1);
const LINKS: u32 = 4;
const GATEWAYS: usize = 64;

/// Returns the processor time of this thread, in seconds.
fn processor_time() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    text.split(' ').next().unwrap().parse::<f64>().unwrap() / 1e9
}

/// Returns the resident memory of the process, in MiB.
fn resident() -> usize {
    let text = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() / 1024
}

fn gateway(family: Family, at: usize) -> Hop {
    let (link, last) = (1 + at as u32 % LINKS, 2 + (at % GATEWAYS) as u32);
    let gateway = match family {
        Family::V4 => IpAddr::from(Ipv4Addr::from_bits(0x0a00_0000 | link << 8 | last)),
        Family::V6 => IpAddr::from(Ipv6Addr::from_bits(
            0xfd00_u128 << 112 | u128::from(link << 16 | last),
        )),
    };
    Hop {
        ifindex: link,
        gateway: Some(gateway),
        weight: 1,
        onlink: false,
    }
}

fn route(prefix: Prefix, at: usize) -> Route {
    Route {
        table: 254,
        prefix,
        kind: RouteKind::Unicast,
        metric: 20,
        tos: 0,
        protocol: 186,
        source: None,
        mtu: 0,
        hops: Hops::One(gateway(prefix.family(), at)),
        mode: RouteMode::Replace,
    }
}

fn apply(rib: &mut Rib, changes: impl Iterator<Item = Change>) -> f64 {
    let start = processor_time();
    for (at, change) in changes.enumerate() {
        let event = Event {
            netns: NETNS,
            source: Source::Kernel,
            change,
        };
        rib.handle(event, Time::ZERO);
        if at % 1024 == 0
            && let Some(retired) = rib.take_retired()
        {
            rib.reclaim(retired);
        }
    }
    processor_time() - start
}

fn link(ifindex: u32, up: bool) -> Change {
    Change::There(Object::Link(Link {
        ifindex,
        name: format!("v{ifindex}"),
        up,
        carrier: up,
        mtu: 1500,
        mac: Mac([2, 0, 0, 0, 0, ifindex as u8]),
        kind: LinkKind::Tun,
    }))
}

fn main() {
    let mut arguments = std::env::args().skip(1).map(|argument| argument.parse().unwrap());
    let (count_v4, count_v6) = (
        arguments.next().unwrap_or(1_000_000),
        arguments.next().unwrap_or(200_000),
    );
    let prefixes: Vec<Prefix> = mix::v4(1, count_v4)
        .into_iter()
        .chain(mix::v6(1, count_v6))
        .collect();
    let before = resident();
    let mut rib = Rib::new(Limits::default());
    let (vrf, _fib) = rib.add_vrf(NETNS, 254, Source::Kernel);
    for ifindex in 1..=LINKS {
        rib.add_interface(vrf, NETNS, &format!("v{ifindex}"), ifindex as u16);
    }
    apply(
        &mut rib,
        core::iter::once(Change::Opened).chain((1..=LINKS).map(|ifindex| link(ifindex, true))),
    );
    let there = |shift: usize| {
        prefixes
            .iter()
            .enumerate()
            .map(move |(at, prefix)| Change::There(Object::Route(route(*prefix, at + shift))))
    };
    let seconds = apply(&mut rib, there(0));
    println!(
        "RIB and FIB, routes programmed: {:.0} a second, {} in {seconds:.2} s",
        prefixes.len() as f64 / seconds,
        prefixes.len()
    );
    println!(
        "RIB and FIB, memory: {} MiB, of which FIBs {} MiB",
        resident() - before,
        rib.usage().size >> 20
    );
    let seconds = apply(&mut rib, there(1).take(200_000));
    println!(
        "RIB and FIB, routes moved: {:.0} a second",
        200_000.0_f64.min(prefixes.len() as f64) / seconds
    );
    let dump = Dump::Routes(Family::V4);
    let listed = core::iter::once(Change::DumpBegins(dump))
        .chain(there(1).take(200_000))
        .chain(there(0).skip(200_000).take(count_v4.saturating_sub(200_000)))
        .chain(core::iter::once(Change::DumpEnds(dump)));
    println!("a dump that changes nothing: {:.2} s", apply(&mut rib, listed));
    println!(
        "a link down, with a quarter of the routes: {:.2} s",
        apply(&mut rib, core::iter::once(link(2, false)))
    );
    println!("{} prefixes left, {:?}", rib.routes(vrf).count(), rib.counts());
}
