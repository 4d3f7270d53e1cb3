//! Prints build rate, memory, change rate and nanoseconds a lookup of a full table, in processor time: other programs on
//! the machine count only by the cache lines that they take.
//!
//! The lines are rows of `millrace bench route`: `NAME: VALUE UNIT`.
//!
//! `cargo run --release -p millrace-fib --example lookup [ROUTES_V4 ROUTES_V6]`

#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::hint::black_box;

use millrace_fib::mix::{self, Destinations};
use millrace_fib::{GroupId, NextHopKind, NextHopSpec, Prefix, Writer};

const GROUPS: usize = 1000;
const BURST: usize = 32;
const LOOKUPS: usize = 1 << 22;
const CHANGES: usize = 200_000;

/// Returns the processor time of this thread, in seconds.
fn processor_time() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    text.split(' ').next().unwrap().parse::<f64>().unwrap() / 1e9
}

fn main() {
    let mut arguments = std::env::args().skip(1).map(|argument| argument.parse().unwrap());
    let (count_v4, count_v6) = (
        arguments.next().unwrap_or(1_000_000),
        arguments.next().unwrap_or(200_000),
    );
    let (four, six) = (mix::v4(1, count_v4), mix::v6(1, count_v6));
    let mut writer = Writer::new();
    let groups: Vec<GroupId> = (0..GROUPS)
        .map(|_| {
            let next_hop = writer
                .add_next_hop(&NextHopSpec::without_interface(NextHopKind::Glean))
                .unwrap();
            writer.add_group(&[(next_hop, 1)]).unwrap()
        })
        .collect();
    let (id, fib) = writer.add_fib();
    for (name, prefixes) in [("IPv4", &four), ("IPv6", &six)] {
        let start = processor_time();
        for (at, prefix) in prefixes.iter().enumerate() {
            writer.insert(id, prefix, groups[at % GROUPS]).unwrap();
            if at % 1024 == 0
                && let Some(retired) = writer.take_retired()
            {
                writer.reclaim(retired);
            }
        }
        let seconds = processor_time() - start;
        let usage = writer.usage();
        println!(
            "{name} routes inserted: {:.0} a second, {} in {seconds:.3} s; in all {:.1} MiB, of which nodes {:.1} MiB",
            prefixes.len() as f64 / seconds,
            prefixes.len(),
            usage.size as f64 / (1 << 20) as f64,
            usage.nodes_size as f64 / (1 << 20) as f64,
        );
        let start = processor_time();
        for at in 0..CHANGES {
            let prefix: &Prefix = &prefixes[at * 7919 % prefixes.len()];
            writer.replace(id, prefix, groups[(at + 1) % GROUPS]).unwrap();
        }
        println!(
            "{name} routes changed: {:.0} a second",
            CHANGES as f64 / (processor_time() - start)
        );
    }
    for (name, kind) in [("random", Destinations::Random), ("Zipf", Destinations::Zipf)] {
        let addresses: Vec<u32> = mix::destinations(2, &four, LOOKUPS, kind)
            .iter()
            .map(|bits| (bits >> 96) as u32)
            .collect();
        let mut found = [GroupId::NONE; BURST];
        let mut best = f64::MAX;
        for _ in 0..5 {
            let start = processor_time();
            for burst in addresses.chunks(BURST) {
                fib.lookup_v4_burst(burst, &mut found);
                black_box(&found);
            }
            best = best.min((processor_time() - start) * 1e9 / LOOKUPS as f64);
        }
        println!("IPv4 lookup, {name}: {best:.1} ns a lookup");
        let addresses = mix::destinations(2, &six, LOOKUPS, kind);
        let mut best = f64::MAX;
        for _ in 0..5 {
            let start = processor_time();
            for burst in addresses.chunks(BURST) {
                fib.lookup_v6_burst(burst, &mut found);
                black_box(&found);
            }
            best = best.min((processor_time() - start) * 1e9 / LOOKUPS as f64);
        }
        println!("IPv6 lookup, {name}: {best:.1} ns a lookup");
    }
}
