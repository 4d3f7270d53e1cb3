//! Prints a table of million lookups per second, and of memory and update time per rule, for the rule sets of
//! docs/results/classifier.md.
//! `cargo bench -p millrace-flow --bench lookup_table [-- FILTER]`.
//!
//! The keys of a burst are first written to one buffer, as a parser does. The time of these writes is also
//! measured alone, and subtracted. Each figure is the minimum of many short runs, so that it is valid on a
//! shared machine.

#![allow(clippy::print_stdout)]

use std::time::Instant;

use millrace_flow::FlowKey;
use millrace_flow::classify::{Adaptive, Classifier};

mod support;
use support::traffic::{self, BURST, Traffic};
use support::{Case, Rng, Shape};

/// A function that returns a case.
type Maker = Box<dyn Fn(&mut Rng) -> Case>;

const RUNS: usize = 15;

fn main() {
    let filter: Vec<String> = std::env::args()
        .skip(1)
        .filter(|arg| !arg.starts_with('-'))
        .collect();
    let dice = &mut Rng(1);
    let makers: Vec<(&str, Maker)> = vec![
        ("one", Box::new(|_| support::one())),
        ("exact-16", Box::new(|dice| support::exact(16, dice))),
        ("exact-100", Box::new(|dice| support::exact(100, dice))),
        ("exact-10000", Box::new(|dice| support::exact(10_000, dice))),
        ("exact-100000", Box::new(|dice| support::exact(100_000, dice))),
        ("exact-1000000", Box::new(|dice| support::exact(1_000_000, dice))),
        ("masks32-10000", Box::new(|dice| support::masks32(10_000, dice))),
        ("masks32-100000", Box::new(|dice| support::masks32(100_000, dice))),
        (
            "acl-1000",
            Box::new(|dice| support::classbench(Shape::Acl, 1_000, dice)),
        ),
        (
            "acl-10000",
            Box::new(|dice| support::classbench(Shape::Acl, 10_000, dice)),
        ),
        (
            "firewall-10000",
            Box::new(|dice| support::classbench(Shape::Firewall, 10_000, dice)),
        ),
        (
            "ipchain-10000",
            Box::new(|dice| support::classbench(Shape::IpChain, 10_000, dice)),
        ),
        (
            "acl-100000",
            Box::new(|dice| support::classbench(Shape::Acl, 100_000, dice)),
        ),
        (
            "acl-10000-as-written",
            Box::new(|dice| support::as_written(support::classbench(Shape::Acl, 10_000, dice))),
        ),
        (
            "firewall-10000-as-written",
            Box::new(|dice| support::as_written(support::classbench(Shape::Firewall, 10_000, dice))),
        ),
        ("routes-10000", Box::new(|dice| support::routes(10_000, dice))),
        ("routes-500000", Box::new(|dice| support::routes(500_000, dice))),
        ("routes6-100000", Box::new(|dice| support::routes6(100_000, dice))),
    ];
    println!(
        "{:<25} {:>9} {:>9} {:>9} {:>9} {:>8} {:>8} {:>9} {:>8}  structure",
        "case", "hit ns", "near ns", "random ns", "hit Mpps", "B/rule", "ins ns", "slowest us", "del ns"
    );
    for (name, maker) in makers {
        if filter.is_empty() || filter.iter().any(|wanted| name.contains(wanted.as_str())) {
            measure(&maker(dice), dice);
        }
    }
}

fn measure(case: &Case, dice: &mut Rng) {
    let mut table = Adaptive::new(42);
    let mut slowest = 0.0f64;
    let begin = Instant::now();
    for (index, rule) in case.rules.iter().enumerate() {
        let one = Instant::now();
        table.insert(rule, support::slot(index));
        slowest = slowest.max(one.elapsed().as_nanos() as f64);
    }
    let insert = begin.elapsed().as_nanos() as f64 / case.rules.len() as f64;
    let random = traffic::random(dice);
    let hit = lookups(&table, case.keys.clone());
    let near = lookups(&table, traffic::near_misses(case, dice));
    let miss = lookups(&table, random);
    let (kind, bytes) = (table.kind().to_string(), table.heap_size());
    let begin = Instant::now();
    for rule in &case.rules {
        table.remove(rule);
    }
    let remove = begin.elapsed().as_nanos() as f64 / case.rules.len() as f64;
    println!(
        "{:<25} {:>9.1} {:>9.1} {:>9.1} {:>9.1} {:>8.0} {:>8.0} {:>9.0} {:>8.0}  {kind}",
        case.name,
        hit,
        near,
        miss,
        1000.0 / hit,
        bytes as f64 / case.rules.len() as f64,
        insert,
        slowest / 1000.0,
        remove
    );
}

/// Returns the nanoseconds of one lookup, without the writing of its key.
fn lookups(table: &Adaptive, keys: Vec<FlowKey>) -> f64 {
    let select: Vec<u8> = (0..BURST as u8).collect();
    let traffic = Traffic::new(keys);
    let mut verdicts = [None; BURST];
    let mut run = |look: bool| {
        traffic.run(1 << 18, |burst| {
            if look {
                table.lookup_burst(burst, &select, &mut verdicts);
                std::hint::black_box(&verdicts);
            }
        })
    };
    let mut least = |look: bool| (0..RUNS).map(|_| run(look)).fold(f64::MAX, f64::min);
    least(true) - least(false)
}
