//! Criterion benches of the classifier: lookups for each rule set and each set of vector instructions, and
//! updates.

use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use millrace_flow::FlowKey;
use millrace_flow::classify::{Adaptive, Classifier, Simd};

mod support;
use support::{Case, Rng, Shape};

const BURST: usize = 32;

fn cases() -> Vec<Case> {
    let dice = &mut Rng(1);
    vec![
        support::one(),
        support::exact(10_000, dice),
        support::exact(100_000, dice),
        support::masks32(10_000, dice),
        support::masks32(100_000, dice),
        support::classbench(Shape::Acl, 10_000, dice),
        support::classbench(Shape::Firewall, 10_000, dice),
        support::routes(10_000, dice),
        support::routes6(10_000, dice),
    ]
}

fn filled(case: &Case, simd: Simd) -> Adaptive {
    let mut table = Adaptive::with_simd(1, simd);
    for (index, rule) in case.rules.iter().enumerate() {
        table.insert(rule, support::slot(index));
    }
    table
}

fn lookup(c: &mut Criterion) {
    let mut group = c.benchmark_group("lookup");
    group.throughput(Throughput::Elements(BURST as u64));
    let select: Vec<u8> = (0..BURST as u8).collect();
    for case in cases() {
        for simd in Simd::available() {
            let table = filled(&case, simd);
            let mut bursts = case.keys.chunks_exact(BURST).cycle();
            group.bench_function(BenchmarkId::new(case.name.clone(), simd.name()), |b| {
                b.iter_batched_ref(
                    || bursts.next().map(<[FlowKey]>::to_vec).unwrap_or_default(),
                    |keys| {
                        let mut verdicts = [None; BURST];
                        table.lookup_burst(keys, &select[..keys.len()], &mut verdicts[..keys.len()]);
                        verdicts
                    },
                    BatchSize::SmallInput,
                );
            });
        }
    }
}

fn update(c: &mut Criterion) {
    let mut group = c.benchmark_group("remove and insert");
    for case in cases() {
        let mut table = filled(&case, Simd::detect());
        let mut next = 0;
        group.bench_function(case.name.clone(), |b| {
            b.iter(|| {
                next = (next + 7919) % case.rules.len();
                table.remove(&case.rules[next]);
                table.insert(&case.rules[next], support::slot(next))
            });
        });
    }
}

criterion_group!(benches, lookup, update);
criterion_main!(benches);
