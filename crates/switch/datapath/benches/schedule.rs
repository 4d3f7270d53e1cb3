//! Measures the cost of a packet in a port's scheduler: enqueue and dequeue, in bursts of 32.

use std::hint::black_box;

use arrayvec::ArrayVec;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use millrace_datapath::schedule::{PortPlan, QueueCountersMap, QueuePlan, Scheduler};
use millrace_types::{BitRate, QueueId, Time};
use millrace_wire::{NoHeadroom, Packet};

const BURST: usize = 32;

/// A packet of the size of an mbuf's handle.
struct Handle(u64);

impl Packet for Handle {
    fn len(&self) -> usize {
        60
    }
    fn head(&self) -> &[u8] {
        &[]
    }
    fn head_mut(&mut self) -> &mut [u8] {
        &mut []
    }
    fn prepend(&mut self, _: usize) -> Result<(), NoHeadroom> {
        Err(NoHeadroom)
    }
    fn trim_front(&mut self, _: usize) {}
    fn try_clone(&self) -> Option<Handle> {
        Some(Handle(self.0))
    }
    fn copy_to(&self, _: &mut Vec<u8>, _: usize) {}
}

fn queue(id: u32) -> QueuePlan {
    QueuePlan {
        min_rate: Some(BitRate::from_bps(1_000_000_000)),
        max_rate: Some(BitRate::from_bps(400_000_000_000)),
        priority: (id % 4) as u8,
        ..QueuePlan::new(QueueId(id))
    }
}

fn schedule(criterion: &mut Criterion) {
    let rate = Some(BitRate::from_bps(400_000_000_000));
    let mut group = criterion.benchmark_group("schedule");
    group.throughput(Throughput::Elements(BURST as u64));
    for (name, queues) in [("a shaped port", 0), ("8 queues", 8), ("63 queues", 63)] {
        let plan = PortPlan {
            rate,
            overhead: 0,
            queues: (1..=queues).map(queue).collect(),
        };
        let mut scheduler = Scheduler::new(&plan, &QueueCountersMap::new(), Time::ZERO);
        let mut burst: ArrayVec<Handle, BURST> = (0..BURST as u64).map(Handle).collect();
        let (mut nanos, mut next) = (0, 0);
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                // 100 Gbit/s, so that no rate limit holds packets back.
                nanos += 150;
                next = (next + 1) % (queues + 1);
                let now = Time::from_nanos(nanos);
                scheduler.enqueue_burst(Some(QueueId(next)), &mut burst, now);
                assert!(burst.is_empty());
                scheduler.dequeue(now, &mut burst);
                black_box(&mut burst);
            });
        });
    }
    group.finish();
}

criterion_group!(benches, schedule);
criterion_main!(benches);
