//! The scheduler of a port in simulated time: nothing is lost or reordered, rates are exact, guarantees and
//! priorities hold.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

use std::collections::BTreeMap;

use arrayvec::ArrayVec;
use millrace_datapath::schedule::{PortPlan, QueueCountersMap, QueuePlan, QueueStats, Scheduler};
use millrace_types::{BitRate, QueueId, Time};
use millrace_wire::{NoHeadroom, Packet};
use proptest::prelude::*;

/// A packet without bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Parcel {
    size: usize,
    number: u64,
    queue: u32,
    came: Time,
}

impl Packet for Parcel {
    fn len(&self) -> usize {
        self.size
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
    fn try_clone(&self) -> Option<Parcel> {
        Some(*self)
    }
    fn copy_to(&self, _: &mut Vec<u8>, _: usize) {}
}

type Out = ArrayVec<Parcel, 64>;

fn bps(rate: u64) -> Option<BitRate> {
    Some(BitRate::from_bps(rate))
}

fn queue(id: u32) -> QueuePlan {
    QueuePlan::new(QueueId(id))
}

/// A scheduler, and what it was given and gave.
struct Rig {
    scheduler: Scheduler<Parcel>,
    counters: QueueCountersMap,
    numbers: u64,
    refused: BTreeMap<u32, u64>,
    sent: Vec<Parcel>,
}

impl Rig {
    fn new(plan: &PortPlan) -> Rig {
        let counters: QueueCountersMap = plan
            .all_queues()
            .iter()
            .map(|queue| (queue.id, Default::default()))
            .collect();
        Rig {
            scheduler: Scheduler::new(plan, &counters, Time::ZERO),
            counters,
            numbers: 0,
            refused: BTreeMap::new(),
            sent: Vec::new(),
        }
    }

    fn put(&mut self, queue: u32, size: usize, now: Time) -> bool {
        let parcel = Parcel {
            size,
            number: self.numbers,
            queue,
            came: now,
        };
        self.numbers += 1;
        let is_taken = self.scheduler.enqueue(Some(QueueId(queue)), parcel, now).is_ok();
        if !is_taken {
            *self.refused.entry(queue).or_default() += 1;
        }
        is_taken
    }

    /// Keeps a queue full.
    fn fill(&mut self, queue: u32, size: usize, now: Time) {
        while self.put(queue, size, now) {}
    }

    fn take(&mut self, now: Time) -> usize {
        let before = self.sent.len();
        loop {
            let mut out = Out::new();
            self.scheduler.dequeue(now, &mut out);
            self.sent.extend(&out);
            if !out.is_full() {
                return self.sent.len() - before;
            }
        }
    }

    fn bytes_of(&self, queue: u32) -> u64 {
        self.sent
            .iter()
            .filter(|parcel| parcel.queue == queue)
            .map(|parcel| parcel.size as u64)
            .sum()
    }

    fn stats(&self, queue: u32) -> QueueStats {
        self.counters[&QueueId(queue)].read()
    }
}

/// Bits a second of a queue, with others kept full, over some milliseconds, asked every so many nanoseconds.
fn rates(plan: &PortPlan, sizes: &[(u32, usize)], millis: u64, step: u64) -> Vec<f64> {
    let mut rig = Rig::new(plan);
    for nanos in (0..millis * 1_000_000).step_by(step as usize) {
        let now = Time::from_nanos(nanos);
        for (queue, size) in sizes {
            rig.fill(*queue, *size, now);
        }
        rig.take(now);
    }
    sizes
        .iter()
        .map(|(queue, _)| rig.bytes_of(*queue) as f64 * 8_000.0 / millis as f64)
        .collect()
}

#[test]
fn a_shaper_is_exact_from_1_mbit_to_100_gbit_for_every_size() {
    for (rate, millis, step) in [
        (1_000_000, 5_000, 50_000),
        (10_000_000, 1_000, 20_000),
        (50_000_000, 1_000, 20_000),
        (1_000_000_000, 100, 5_000),
        (5_000_000_000, 50, 5_000),
        (100_000_000_000, 10, 1_000),
    ] {
        for size in [64, 512, 1500] {
            let by_port = PortPlan {
                rate: bps(rate),
                ..PortPlan::default()
            };
            let by_queue = PortPlan {
                queues: vec![QueuePlan {
                    max_rate: bps(rate),
                    ..queue(0)
                }],
                ..PortPlan::default()
            };
            for plan in [by_port, by_queue] {
                let got = rates(&plan, &[(0, size)], millis, step)[0];
                // The burst at the start, of a millisecond or two frames, and one packet.
                let burst = (rate as f64 / 1000.0).max(3_028.0 * 8.0) + 8.0 * size as f64;
                let (least, most) = (rate as f64, rate as f64 + burst * 1000.0 / millis as f64);
                let slack =
                    8_000.0 * size as f64 / millis as f64 + rate as f64 * step as f64 / (millis as f64 * 1e6);
                assert!(
                    got >= least - slack && got <= most + 1.0,
                    "{rate} bit/s with {size} bytes: {got}"
                );
            }
        }
    }
}

#[test]
fn a_worker_that_is_late_makes_up_for_it() {
    // Fetched every 15 ms only.
    for size in [64, 1500] {
        let rate = 50_000_000;
        let plan = PortPlan {
            rate: bps(rate),
            queues: vec![QueuePlan {
                packets_max: 10_000,
                ..queue(0)
            }],
            ..PortPlan::default()
        };
        let got = rates(&plan, &[(0, size)], 6_000, 15_000_000)[0];
        assert!((got / rate as f64 - 1.0).abs() < 0.005, "{got}");
    }
}

#[test]
fn a_worker_that_is_late_makes_up_for_it_though_its_queue_runs_empty_meanwhile() {
    // 1 Gbit/s, of which the queue holds 1 ms. Each round brings twice the rate; for 10 ms of each 60 there is none.
    let mut rig = Rig::new(&PortPlan {
        rate: bps(1_000_000_000),
        ..PortPlan::default()
    });
    let is_here = |nanos: &u64| !(20_000_000..30_000_000).contains(&(nanos % 60_000_000));
    for nanos in (0..200_000_000_u64).step_by(10_000).filter(is_here) {
        let now = Time::from_nanos(nanos);
        rig.scheduler.attend(now);
        for _ in 0..20 {
            rig.put(0, 125, now);
        }
        rig.take(now);
    }
    let (sent, wanted) = (rig.bytes_of(0), 200 * 125_000);
    assert!(
        sent.abs_diff(wanted) <= wanted / 100 + 125_000,
        "{sent} of {wanted}"
    );
}

#[test]
fn overhead_counts_for_each_packet() {
    let plan = PortPlan {
        rate: bps(88_000_000),
        overhead: 24,
        ..PortPlan::default()
    };
    let got = rates(&plan, &[(0, 64)], 1_000, 20_000)[0];
    assert!((got / 64_000_000.0 - 1.0).abs() < 0.002, "{got}");
}

#[test]
fn a_guarantee_holds_under_a_higher_priority_and_the_rest_goes_to_that() {
    let plan = PortPlan {
        rate: bps(100_000_000),
        queues: vec![
            QueuePlan {
                min_rate: bps(20_000_000),
                ..queue(1)
            },
            QueuePlan {
                priority: 7,
                ..queue(2)
            },
        ],
        ..PortPlan::default()
    };
    let got = rates(&plan, &[(0, 1500), (1, 300), (2, 64)], 2_000, 10_000);
    assert_eq!(got[0], 0.0, "no guarantee, lowest priority");
    assert!((got[1] / 20e6 - 1.0).abs() < 0.005, "{got:?}");
    assert!((got[2] / 80e6 - 1.0).abs() < 0.005, "{got:?}");
}

#[test]
fn weights_share_what_is_left_in_proportion_whatever_the_sizes() {
    let weighted = |id, weight| QueuePlan { weight, ..queue(id) };
    let plan = PortPlan {
        rate: bps(100_000_000),
        queues: vec![weighted(1, 10), weighted(2, 20), weighted(3, 70)],
        ..PortPlan::default()
    };
    let got = rates(&plan, &[(1, 64), (2, 1500), (3, 512)], 3_000, 10_000);
    for (got, wanted) in got.iter().zip([10e6, 20e6, 70e6]) {
        assert!((got / wanted - 1.0).abs() < 0.01, "{got} of {wanted}");
    }
}

#[test]
fn what_one_queue_may_not_take_goes_to_the_others() {
    let plan = PortPlan {
        rate: bps(100_000_000),
        queues: vec![
            QueuePlan {
                max_rate: bps(10_000_000),
                priority: 1,
                ..queue(1)
            },
            queue(2),
        ],
        ..PortPlan::default()
    };
    let got = rates(&plan, &[(1, 700), (2, 700)], 2_000, 10_000);
    assert!((got[0] / 10e6 - 1.0).abs() < 0.005, "{got:?}");
    assert!((got[1] / 90e6 - 1.0).abs() < 0.005, "{got:?}");
}

#[test]
fn a_packet_of_the_highest_priority_waits_for_one_packet_at_most_however_full_the_rest() {
    let plan = PortPlan {
        rate: bps(10_000_000),
        queues: vec![QueuePlan {
            priority: 7,
            ..queue(1)
        }],
        ..PortPlan::default()
    };
    let mut rig = Rig::new(&plan);
    let mut urgent = 0;
    for nanos in (0..2_000_000_000_u64).step_by(100_000) {
        let now = Time::from_nanos(nanos);
        rig.fill(0, 1500, now);
        if nanos % 20_000_000 == 0 {
            assert!(rig.put(1, 64, now));
        }
        let before = rig.sent.len();
        rig.take(now);
        for parcel in rig.sent[before..].iter().filter(|parcel| parcel.queue == 1) {
            urgent += 1;
            let waited = now.since(parcel.came);
            // A frame of 1,500 bytes takes 1.2 ms.
            assert!(waited.as_micros() <= 1_300, "{waited:?}");
        }
    }
    assert!(urgent >= 99);
}

#[test]
fn after_a_pause_a_queue_and_a_port_send_a_burst_and_no_more() {
    let plan = PortPlan {
        rate: bps(100_000_000),
        queues: vec![QueuePlan {
            max_rate: bps(50_000_000),
            ..queue(1)
        }],
        ..PortPlan::default()
    };
    let mut rig = Rig::new(&plan);
    for (second, queue, bytes) in [(10, 1, 6_250), (20, 0, 12_500), (30, 1, 6_250)] {
        rig.sent.clear();
        let now = Time::from_secs(second);
        rig.fill(queue, 100, now);
        rig.take(now);
        let sent = rig.bytes_of(queue);
        assert!(sent.abs_diff(bytes) <= 100, "{sent} of {bytes}");
        for nanos in (0..900_000_000).step_by(50_000) {
            rig.take(now + millrace_types::Duration::from_nanos(nanos));
        }
        assert!(rig.scheduler.is_empty());
    }
}

#[test]
fn who_is_held_back_by_others_saves_up_no_more_than_a_burst() {
    // Queue 1 may send little, and so the port could do more for a long time: that is not saved for queue 2.
    let plan = PortPlan {
        rate: bps(100_000_000),
        queues: vec![
            QueuePlan {
                max_rate: bps(1_000_000),
                ..queue(1)
            },
            queue(2),
        ],
        ..PortPlan::default()
    };
    let mut rig = Rig::new(&plan);
    for nanos in (0..100_000_000).step_by(50_000) {
        rig.fill(1, 100, Time::from_nanos(nanos));
        rig.take(Time::from_nanos(nanos));
    }
    let now = Time::from_millis(100);
    rig.fill(2, 100, now);
    rig.take(now);
    assert!(rig.bytes_of(2) <= 12_700, "{}", rig.bytes_of(2));
}

#[test]
fn packets_go_to_queue_0_if_they_choose_none_or_one_that_is_not_there() {
    let plan = PortPlan {
        queues: vec![queue(5), queue(700)],
        ..PortPlan::default()
    };
    let mut rig = Rig::new(&plan);
    let none = Parcel {
        size: 60,
        number: 0,
        queue: 0,
        came: Time::ZERO,
    };
    rig.scheduler.enqueue(None, none, Time::ZERO).unwrap();
    for id in [5, 6, 700, 701, u32::MAX] {
        assert!(rig.put(id, 60, Time::ZERO));
    }
    rig.take(Time::ZERO);
    let counts = [0, 5, 700].map(|id| rig.stats(id).tx_packets);
    assert_eq!(counts, [4, 1, 1]);
}

#[test]
fn a_full_queue_refuses_by_packets_and_by_bytes_and_takes_any_packet_when_empty() {
    let few = QueuePlan {
        packets_max: 3,
        ..queue(1)
    };
    let small = QueuePlan {
        bytes_max: Some(1000),
        ..queue(2)
    };
    let plan = PortPlan {
        queues: vec![few, small],
        ..PortPlan::default()
    };
    let mut rig = Rig::new(&plan);
    let taken =
        |rig: &mut Rig, id, size, len: usize| (0..len).filter(|_| rig.put(id, size, Time::ZERO)).count();
    assert_eq!(taken(&mut rig, 1, 1500, 10), 3);
    assert_eq!(taken(&mut rig, 2, 400, 10), 2);
    rig.scheduler.tell();
    let (first, second) = (rig.stats(1), rig.stats(2));
    assert_eq!(
        (first.dropped, first.waiting_packets, first.waiting_bytes),
        (7, 3, 4500)
    );
    assert_eq!(
        (second.dropped, second.waiting_packets, second.waiting_bytes),
        (8, 2, 800)
    );
    rig.take(Time::ZERO);
    assert_eq!((rig.stats(1).waiting_packets, rig.stats(2).waiting_bytes), (0, 0));
    assert_eq!(taken(&mut rig, 2, 9000, 2), 1);
}

#[test]
fn a_change_keeps_packets_order_and_counters_and_gives_no_second_burst() {
    let plan = |rate, queues| PortPlan {
        rate: bps(rate),
        queues,
        ..PortPlan::default()
    };
    let mut rig = Rig::new(&plan(8_000_000, vec![queue(1), queue(2)]));
    rig.fill(1, 100, Time::ZERO);
    rig.fill(2, 100, Time::ZERO);
    let burst = rig.take(Time::ZERO);
    assert!((30..=32).contains(&burst), "{burst}");
    // Queue 2 goes; queue 1 gets shorter.
    for _ in 0..10 {
        let next = plan(
            8_000_000,
            vec![QueuePlan {
                packets_max: 900,
                ..queue(1)
            }],
        );
        let mut scheduler = Scheduler::new(&next, &rig.counters, Time::ZERO);
        let mut homeless = Vec::new();
        core::mem::swap(&mut scheduler, &mut rig.scheduler);
        rig.scheduler.inherit(scheduler, Time::ZERO, &mut homeless);
        assert_eq!(rig.take(Time::ZERO), 0, "no second burst");
    }
    assert_eq!(rig.stats(1).waiting_packets, 900);
    rig.scheduler.release();
    rig.take(Time::ZERO);
    for id in [1, 2] {
        let numbers: Vec<u64> = rig
            .sent
            .iter()
            .filter(|parcel| parcel.queue == id)
            .map(|parcel| parcel.number)
            .collect();
        assert!(numbers.is_sorted() && numbers.len() > 900);
    }
    assert!(rig.scheduler.is_empty());
    assert_eq!(
        rig.stats(1).tx_packets + rig.stats(1).dropped - 1,
        1000,
        "one had been refused when it was full"
    );
}

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
        let mut rig = Rig::new(&plan);
        let mut now = Time::from_nanos(1);
        for step in steps {
            match step {
                Step::Put { queue, size, len } => (0..len).for_each(|_| { rig.put(queue, size, now); }),
                Step::Wait { nanos } => now = now + millrace_types::Duration::from_nanos(nanos),
                Step::Take { room } => {
                    let mut out = Out::new();
                    for _ in room..64 {
                        out.push(Parcel { size: 0, number: 0, queue: 99, came: now });
                    }
                    rig.scheduler.dequeue(now, &mut out);
                    let fresh = out.iter().filter(|parcel| parcel.queue != 99);
                    rig.sent.extend(fresh);
                    // Whoever sleeps until then misses nothing.
                    if let Some(opens) = rig.scheduler.opens().filter(|opens| *opens > now) {
                        let early = Time::from_nanos(opens.nanos() - 1);
                        let before = rig.scheduler.len();
                        rig.take(early);
                        prop_assert_eq!(rig.scheduler.len(), before);
                        now = early;
                    }
                }
            }
        }
        let is_there = |id: u32| plan.queues.iter().any(|queue| queue.id.0 == id);
        let home = |id: u32| if is_there(id) { id } else { 0 };
        let elapsed = now.nanos() as f64;
        let most = |rate: BitRate, largest: f64| {
            let burst = (rate.bps() as f64 / 1000.0).max(3028.0 * 8.0) + rate.bps() as f64 * 0.02;
            rate.bps() as f64 * elapsed / 1e9 + burst + largest * 8.0
        };
        let overhead = f64::from(plan.overhead);
        let bits = |parcel: &Parcel| (parcel.size as f64 + overhead) * 8.0;
        if let Some(rate) = plan.rate {
            let sent: f64 = rig.sent.iter().map(bits).sum();
            prop_assert!(sent <= most(rate, 9030.0) + 1.0);
        }
        for queue in plan.all_queues() {
            if let Some(rate) = queue.max_rate {
                let sent: f64 = rig.sent.iter().filter(|parcel| home(parcel.queue) == queue.id.0).map(bits).sum();
                prop_assert!(sent <= most(rate, 9030.0) + 1.0);
            }
        }
        // In the end everything leaves.
        let waiting = rig.scheduler.len() as u64;
        rig.scheduler.release();
        prop_assert_eq!(rig.take(now) as u64, waiting);
        let refused: u64 = rig.refused.values().sum();
        prop_assert_eq!(rig.sent.len() as u64 + refused, rig.numbers);
        for queue in plan.all_queues() {
            let of_queue = |parcel: &&Parcel| home(parcel.queue) == queue.id.0;
            let numbers: Vec<u64> = rig.sent.iter().filter(of_queue).map(|parcel| parcel.number).collect();
            prop_assert!(numbers.is_sorted());
            let stats = rig.stats(queue.id.0);
            prop_assert_eq!(stats.tx_packets, numbers.len() as u64);
            let bytes: u64 = rig.sent.iter().filter(of_queue).map(|parcel| parcel.size as u64).sum();
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
            // A turn of each is at most 2 kB times 20: of 10 MB in all.
            prop_assert!((got / wanted - 1.0).abs() < 0.08, "{got} of {wanted}");
        }
        prop_assert!((got[weights.len()] / 5e6 - 1.0).abs() < 0.05, "{got:?}");
    }
}
