//! Properties of the scheduler, for any settings and any order of packets.

use millrace_datapath::schedule::{PortPlan, QueuePlan};
use millrace_types::{BitRate, Time};
use proptest::prelude::*;

use super::{Out, TestBed, TestPacket, bps, queue, rates};

#[derive(Debug, Clone)]
enum Step {
    Put { queue: u32, size: usize, len: usize },
    Wait { nanos: u64 },
    Take { room: usize },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (0_u32..6, 60_usize..9000, 1_usize..40)
            .prop_map(|(queue, size, len)| Step::Put { queue, size, len }),
        2 => (0_u64..3_000_000).prop_map(|nanos| Step::Wait { nanos }),
        4 => (1_usize..64).prop_map(|room| Step::Take { room }),
    ];
    prop::collection::vec(step, 1..200)
}

fn plans() -> impl Strategy<Value = PortPlan> {
    let rate = || prop::option::of((100_000_u64..10_000_000_000).prop_map(BitRate::from_bps));
    let one = (
        rate(),
        rate(),
        0_u8..4,
        1_u16..50,
        1_usize..200,
        prop::option::of(1_000_u64..100_000),
    );
    let queues = prop::collection::btree_map(0_u32..5, one, 0..5);
    (rate(), 0_u8..30, queues).prop_map(|(rate, overhead, queues)| PortPlan {
        rate,
        overhead,
        queues: queues
            .into_iter()
            .map(
                |(id, (min_rate, max_rate, priority, weight, packets_max, bytes_max))| QueuePlan {
                    min_rate,
                    max_rate,
                    priority,
                    weight,
                    packets_max,
                    bytes_max,
                    ..queue(id)
                },
            )
            .collect(),
    })
}

proptest! {
    #[test]
    fn nothing_is_lost_made_up_or_reordered_and_no_limit_is_broken(plan in plans(), steps in steps()) {
        let mut testbed = TestBed::new(&plan);
        let mut now = Time::from_nanos(1);
        for step in steps {
            match step {
                Step::Put { queue, size, len } => (0..len).for_each(|_| { testbed.put(queue, size, now); }),
                Step::Wait { nanos } => now = now + millrace_types::Duration::from_nanos(nanos),
                Step::Take { room } => {
                    let mut out = Out::new();
                    for _ in room..64 {
                        out.push(TestPacket { size: 0, number: 0, queue: 99, enqueued_at: now });
                    }
                    testbed.scheduler.dequeue(now, &mut out);
                    let fresh = out.iter().filter(|packet| packet.queue != 99);
                    testbed.sent.extend(fresh);
                    // A worker that sleeps until `eligible_at` misses no packet.
                    if let Some(eligible_at) = testbed.scheduler.eligible_at().filter(|eligible_at| *eligible_at > now) {
                        let early = Time::from_nanos(eligible_at.nanos() - 1);
                        let before = testbed.scheduler.len();
                        testbed.take(early);
                        prop_assert_eq!(testbed.scheduler.len(), before);
                        now = early;
                    }
                }
            }
        }
        let is_there = |id: u32| plan.queues.iter().any(|queue| queue.id.0 == id);
        let queue_of = |id: u32| if is_there(id) { id } else { 0 };
        let elapsed = now.nanos() as f64;
        let most = |rate: BitRate, largest: f64| {
            let burst = (rate.bps() as f64 / 1000.0).max(3028.0 * 8.0) + rate.bps() as f64 * 0.02;
            rate.bps() as f64 * elapsed / 1e9 + burst + largest * 8.0
        };
        let overhead = f64::from(plan.overhead);
        let bits = |packet: &TestPacket| (packet.size as f64 + overhead) * 8.0;
        if let Some(rate) = plan.rate {
            let sent: f64 = testbed.sent.iter().map(bits).sum();
            prop_assert!(sent <= most(rate, 9030.0) + 1.0);
        }
        for queue in plan.all_queues() {
            if let Some(rate) = queue.max_rate {
                let sent: f64 = testbed.sent.iter().filter(|packet| queue_of(packet.queue) == queue.id.0).map(bits).sum();
                prop_assert!(sent <= most(rate, 9030.0) + 1.0);
            }
        }
        // At the end, all packets leave.
        let waiting = testbed.scheduler.len() as u64;
        testbed.scheduler.lift_limits();
        prop_assert_eq!(testbed.take(now) as u64, waiting);
        let refused: u64 = testbed.refused.values().sum();
        prop_assert_eq!(testbed.sent.len() as u64 + refused, testbed.numbers);
        for queue in plan.all_queues() {
            let of_queue = |packet: &&TestPacket| queue_of(packet.queue) == queue.id.0;
            let numbers: Vec<u64> = testbed.sent.iter().filter(of_queue).map(|packet| packet.number).collect();
            prop_assert!(numbers.is_sorted());
            let stats = testbed.stats(queue.id.0);
            prop_assert_eq!(stats.tx_packets, numbers.len() as u64);
            let bytes: u64 = testbed.sent.iter().filter(of_queue).map(|packet| packet.size as u64).sum();
            prop_assert_eq!(stats.tx_bytes, bytes);
            prop_assert_eq!((stats.waiting_packets, stats.waiting_bytes), (0, 0));
        }
    }

    #[test]
    fn no_queue_starves_among_equals_and_no_guarantee_starves_at_all(
        weights in prop::collection::vec((1_u16..20, 60_usize..1500), 2..6),
    ) {
        let mut queues: Vec<QueuePlan> = (1..)
            .zip(&weights)
            .map(|(id, (weight, _))| QueuePlan { weight: *weight, priority: 3, packets_max: 3_000, ..queue(id) })
            .collect();
        queues.push(QueuePlan { min_rate: bps(5_000_000), ..queue(90) });
        let plan = PortPlan { rate: bps(200_000_000), queues, ..PortPlan::default() };
        let mut sizes: Vec<(u32, usize)> = (1..).zip(&weights).map(|(id, (_, size))| (id, *size)).collect();
        sizes.push((90, 200));
        let got = rates(&plan, &sizes, 400, 100_000);
        let all: u16 = weights.iter().map(|(weight, _)| *weight).sum();
        for ((weight, _), got) in weights.iter().zip(&got) {
            let wanted = 195e6 * f64::from(*weight) / f64::from(all);
            // A queue's quantum is at most 20 times 2 kB, while all queues send 10 MB.
            prop_assert!((got / wanted - 1.0).abs() < 0.08, "{got} of {wanted}");
        }
        prop_assert!((got[weights.len()] / 5e6 - 1.0).abs() < 0.05, "{got:?}");
    }
}
