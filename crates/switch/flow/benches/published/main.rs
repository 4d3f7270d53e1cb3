//! Compares published algorithms of packet classification with Millrace's, on the rule sets and packets of
//! `lookup_table`: `cargo bench -p millrace-flow --bench published [-- FILTER]`. docs/results/classifier.md has
//! the figures and the conclusions.
//!
//! * `tuple_space`: tuple space search as in Open vSwitch
//! * `tuple_merge`: TupleMerge
//! * `partition_sort`: PartitionSort
//! * `cut_split`: CutSplit
//! * `nuevo_match`: NuevoMatch
//!
//! All are new implementations of the papers, for IPv4 5-tuples only: they read two words of a key, while
//! Millrace's classifier is generic. All process packet by packet, as in the papers, and leave the overlap of
//! neighbouring packets to the processor. Only Millrace's classifier has prefetches and vector code; "ours,
//! plain" is this classifier compiled for plain x86-64, like the published algorithms. Hash
//! tables take any mask, but ranges only prefixes: PartitionSort and CutSplit therefore compare rules with
//! other masks one by one, and NuevoMatch leaves these rules to TupleMerge. The sets of the test have such
//! masks; the measured sets have none.
//!
//! ESwitch (Molnár et al., "Dataplane Specialization for High-performance OpenFlow Software Switching", SIGCOMM 2016)
//! chooses one of four templates for each table: direct code, hash, LPM, linked list. Millrace's classifier
//! does the same, so `lookup_table` measures Millrace's forms of the first three templates.
//!
//! Each algorithm is compared with a linear search before it is measured, and again after updates; a wrong verdict
//! ends the run. A figure is the median of [`ROUNDS`] runs, each of which measures all algorithms in turn; the writing
//! of keys is measured in the same way, and subtracted. Without `--bench` (as in `cargo test`) small sets are compared
//! and not measured.

#![allow(clippy::print_stdout)]

use std::time::Instant;

use millrace_flow::classify::{Adaptive, Classifier, Simd, Slot};
use millrace_flow::{FlowKey, Rule};

mod cut_split;
mod nuevo_match;
mod partition_sort;
mod rq_rmi;
mod rule;
mod sortable;
#[path = "../support/mod.rs"]
mod support;
mod tables;
mod tuple_merge;
mod tuple_space;

use rule::{PublishedClassifier, Rule5, packet};
use support::traffic::{self, BURST, Traffic};
use support::{Case, Rng, Shape};

const ROUNDS: usize = 9;

/// Target duration of one run of one algorithm in nanoseconds; one pass through all packets may take longer.
const RUN_NS: f64 = 20e6;

/// An algorithm that is measured.
trait Contender {
    fn lookup_burst(&self, keys: &[FlowKey], verdicts: &mut [Option<Slot>]);
    fn heap_size(&self) -> usize;
    fn structure(&self) -> String;
    fn insert(&mut self, rule: &Rule, slot: Slot) -> bool;
    fn remove(&mut self, rule: &Rule, slot: Slot) -> bool;
}

impl<P: PublishedClassifier> Contender for P {
    fn lookup_burst(&self, keys: &[FlowKey], verdicts: &mut [Option<Slot>]) {
        for (verdict, key) in verdicts.iter_mut().zip(keys) {
            let rank = self.lookup(packet(key)) as u32;
            *verdict = rank.checked_sub(1).map(Slot::new);
        }
    }

    fn heap_size(&self) -> usize {
        PublishedClassifier::heap_size(self)
    }

    fn structure(&self) -> String {
        PublishedClassifier::structure(self)
    }

    fn insert(&mut self, rule: &Rule, slot: Slot) -> bool {
        PublishedClassifier::insert(self, &Rule5::new(rule, slot))
    }

    fn remove(&mut self, rule: &Rule, slot: Slot) -> bool {
        PublishedClassifier::remove(self, &Rule5::new(rule, slot))
    }
}

struct Ours(Adaptive);

impl Contender for Ours {
    fn lookup_burst(&self, keys: &[FlowKey], verdicts: &mut [Option<Slot>]) {
        let select = &millrace_flow::classify::ALL[..keys.len()];
        self.0.lookup_burst(keys, select, verdicts);
    }

    fn heap_size(&self) -> usize {
        self.0.heap_size()
    }

    fn structure(&self) -> String {
        self.0.kind().to_string()
    }

    fn insert(&mut self, rule: &Rule, slot: Slot) -> bool {
        self.0.insert(rule, slot).is_none()
    }

    fn remove(&mut self, rule: &Rule, _: Slot) -> bool {
        self.0.remove(rule).is_some()
    }
}

/// A contender; `None` if it would be too large.
type Built = Option<Box<dyn Contender>>;

type Build = fn(&[Rule]) -> Built;

fn boxed<C: Contender + 'static>(contender: C) -> Built {
    Some(Box::new(contender))
}

fn ours(rules: &[Rule], simd: Simd) -> Built {
    let mut table = Adaptive::with_simd(42, simd);
    for (index, rule) in rules.iter().enumerate() {
        table.insert(rule, support::slot(index));
    }
    boxed(Ours(table))
}

fn rules5(rules: &[Rule]) -> Vec<Rule5> {
    let indexed = rules.iter().enumerate();
    indexed
        .map(|(index, rule)| Rule5::new(rule, support::slot(index)))
        .collect()
}

/// The name and the build function of each contender.
const CONTENDERS: [(&str, Build); 7] = [
    ("ours", |rules| ours(rules, Simd::detect())),
    ("ours, plain", |rules| ours(rules, Simd::PLAIN)),
    ("tuple space", |rules| {
        boxed(tuple_space::TupleSpace::new(&rules5(rules)))
    }),
    ("TupleMerge", |rules| {
        boxed(tuple_merge::TupleMerge::new(&rules5(rules)))
    }),
    ("PartitionSort", |rules| {
        boxed(partition_sort::PartitionSort::new(&rules5(rules)))
    }),
    ("CutSplit", |rules| {
        cut_split::CutSplit::new(&rules5(rules)).and_then(boxed)
    }),
    ("NuevoMatch", |rules| {
        boxed(nuevo_match::NuevoMatch::new(&rules5(rules)))
    }),
];

/// Matching packets, near misses, and random packets.
type Packets = [Vec<FlowKey>; 3];

fn packets(case: &Case, dice: &mut Rng) -> Packets {
    [
        case.keys.clone(),
        traffic::near_misses(case, dice),
        traffic::random(dice),
    ]
}

/// Compares verdicts with a linear search, for `count` packets of each type.
///
/// # Panics
/// If a verdict is wrong.
fn check(name: &str, contender: &dyn Contender, case: &Case, packets: &Packets, count: usize) {
    let mut sorted: Vec<&Rule> = case.rules.iter().collect();
    sorted.sort_by_key(|rule| core::cmp::Reverse(rule.priority));
    for keys in packets {
        for keys in keys[..count.min(keys.len())].chunks(BURST) {
            let mut verdicts = [None; BURST];
            contender.lookup_burst(keys, &mut verdicts[..keys.len()]);
            for (key, verdict) in keys.iter().zip(verdicts) {
                let is = verdict.map(|slot| &case.rules[slot.index()]);
                let wanted = sorted.iter().find(|rule| rule.matches(key));
                let same = is.map(|rule| rule.priority) == wanted.map(|rule| rule.priority);
                let matches = is.is_none_or(|rule| rule.matches(key));
                assert!(
                    same && matches,
                    "{name}, {}: {key:?}: {is:?} for {wanted:?}",
                    case.name
                );
            }
        }
    }
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

/// Returns the nanoseconds per rule to remove one in ten rules, and to insert them again; `None` if the contender has
/// no updates.
fn updates(contender: &mut dyn Contender, case: &Case, dice: &mut Rng) -> Option<[f64; 2]> {
    let mut chosen = support::shuffled((0..case.rules.len()).collect(), dice);
    chosen.truncate(case.rules.len() / 10);
    let each = |update: &mut dyn FnMut(&Rule, Slot) -> bool| {
        let begin = Instant::now();
        let mut indices = chosen.iter();
        let good = indices.all(|index| update(&case.rules[*index], support::slot(*index)));
        good.then(|| begin.elapsed().as_nanos() as f64 / chosen.len() as f64)
    };
    let remove = each(&mut |rule, slot| contender.remove(rule, slot))?;
    Some([each(&mut |rule, slot| contender.insert(rule, slot))?, remove])
}

fn measure(case: &Case, dice: &mut Rng) {
    let packets = packets(case, dice);
    let mut built: Vec<(&str, Box<dyn Contender>, f64)> = Vec::new();
    for (name, build) in CONTENDERS {
        let begin = Instant::now();
        let contender = build(&case.rules);
        let took = begin.elapsed().as_secs_f64() * 1e3;
        let Some(contender) = contender else {
            println!(
                "{:<16} {name:<13} given up after {took:.0} ms: the trees are too large",
                case.name
            );
            continue;
        };
        check(name, contender.as_ref(), case, &packets, 1000);
        built.push((name, contender, took));
    }
    let traffic = packets.clone().map(Traffic::new);
    let mut verdicts = [None; BURST];
    // Figures by contender and traffic; the last row is the writing of keys.
    let mut figures = vec![[const { Vec::<f64>::new() }; 3]; built.len() + 1];
    for _ in 0..ROUNDS {
        for (row, figures) in figures.iter_mut().enumerate() {
            for (traffic, figures) in traffic.iter().zip(figures) {
                let guess = figures.last().copied().unwrap_or(100.0);
                let least = (RUN_NS / guess) as usize;
                figures.push(match built.get(row) {
                    Some((_, contender, _)) => traffic.run(least, |keys| {
                        contender.lookup_burst(keys, &mut verdicts);
                        std::hint::black_box(&verdicts);
                    }),
                    None => traffic.run(least, |_| ()),
                });
            }
        }
    }
    let mut medians: Vec<[f64; 3]> = figures.into_iter().map(|row| row.map(median)).collect();
    let Some(writing) = medians.pop() else { return };
    let net = |row: usize| -> [f64; 3] { core::array::from_fn(|kind| medians[row][kind] - writing[kind]) };
    for (row, (name, mut contender, took)) in built.into_iter().enumerate() {
        let [hit, near, random] = net(row);
        let times: Vec<String> = net(row)
            .iter()
            .zip(net(0))
            .map(|(other, ours)| format!("{:.1}", other / ours))
            .collect();
        let bytes = contender.heap_size() as f64 / case.rules.len() as f64;
        let structure = contender.structure();
        let update = updates(contender.as_mut(), case, dice).map_or("-".into(), |[insert, remove]| {
            format!("{insert:.0} / {remove:.0}")
        });
        check(name, contender.as_ref(), case, &packets, 200);
        println!(
            "{:<16} {name:<13} {hit:>7.1} {near:>7.1} {random:>7.1} {:>16} {bytes:>7.0} {took:>8.1} {update:>15}  {structure}",
            case.name,
            times.join(" ")
        );
    }
}

/// Compares every algorithm's verdicts and updates with a linear search, on small sets in which some masks are not
/// prefixes.
fn compare(shape: Shape) {
    let dice = &mut Rng(7);
    let mut case = support::classbench(shape, 1500, dice);
    for rule in case.rules.iter_mut().step_by(9) {
        for (word, holes) in [(6, 1 << 42 | 1 << 9), (5, 1 << 35)] {
            let mask = &mut rule.mask.0.words_mut()[word];
            *mask &= !holes;
            rule.key.words_mut()[word] &= *mask;
        }
    }
    let mut seen = std::collections::HashSet::new();
    case.rules.retain(|rule| seen.insert((rule.key, rule.mask)));
    let packets = packets(&case, dice);
    let some = case.rules.len() * 2 / 3;
    let indexed = || case.rules.iter().enumerate().skip(some);
    for (name, build) in CONTENDERS {
        let Some(mut contender) = build(&case.rules) else {
            continue;
        };
        check(name, contender.as_ref(), &case, &packets, 300);
        for (index, rule) in indexed() {
            let removed = contender.remove(rule, support::slot(index));
            assert!(removed || name == "CutSplit", "{name} cannot remove {rule:?}");
        }
        if name == "CutSplit" {
            continue;
        }
        let fewer = Case {
            name: format!("{} less a third", case.name),
            rules: case.rules[..some].to_vec(),
            keys: Vec::new(),
        };
        check(name, contender.as_ref(), &fewer, &packets, 300);
        for (index, rule) in indexed() {
            contender.insert(rule, support::slot(index));
        }
        check(name, contender.as_ref(), &case, &packets, 300);
    }
}

fn main() {
    const SHAPES: [Shape; 3] = [Shape::Acl, Shape::Firewall, Shape::IpChain];
    if !std::env::args().any(|arg| arg == "--bench") {
        SHAPES.into_iter().for_each(compare);
        return;
    }
    let filter: Vec<String> = std::env::args()
        .skip(1)
        .filter(|arg| !arg.starts_with('-'))
        .collect();
    println!(
        "{:<16} {:<13} {:>7} {:>7} {:>7} {:>16} {:>7} {:>8} {:>15}  structure",
        "case",
        "algorithm",
        "hit ns",
        "near ns",
        "rand ns",
        "times ours",
        "B/rule",
        "build ms",
        "ins / del ns"
    );
    for count in [1_000, 10_000, 100_000] {
        for shape in SHAPES {
            let name = format!("{shape:?}-{count}").to_lowercase();
            if filter.is_empty() || filter.iter().any(|wanted| name.contains(wanted.as_str())) {
                let dice = &mut Rng(1);
                measure(&support::classbench(shape, count, dice), dice);
            }
        }
    }
}
