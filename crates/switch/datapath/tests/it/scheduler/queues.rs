//! Queues: which one a packet enters, how many packets it holds, and what a change of settings keeps.

use millrace_datapath::schedule::{PortPlan, QUEUES_MAX, QueuePlan, Scheduler};
use millrace_types::Time;

use super::{TestBed, TestPacket, bps, queue};

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
    let mut testbed = TestBed::new(&plan);
    let mut urgent = 0;
    for nanos in (0..2_000_000_000_u64).step_by(100_000) {
        let now = Time::from_nanos(nanos);
        testbed.fill(0, 1500, now);
        if nanos % 20_000_000 == 0 {
            assert!(testbed.put(1, 64, now));
        }
        let before = testbed.sent.len();
        testbed.take(now);
        for packet in testbed.sent[before..].iter().filter(|packet| packet.queue == 1) {
            urgent += 1;
            let waited = now.since(packet.enqueued_at);
            // A frame of 1,500 bytes takes 1.2 ms.
            assert!(waited.as_micros() <= 1_300, "{waited:?}");
        }
    }
    assert!(urgent >= 99);
}

#[test]
fn packets_go_to_queue_0_if_they_choose_none_or_one_that_is_not_there() {
    let plan = PortPlan {
        queues: vec![queue(5), queue(700)],
        ..PortPlan::default()
    };
    let mut testbed = TestBed::new(&plan);
    let none = TestPacket {
        size: 60,
        number: 0,
        queue: 0,
        enqueued_at: Time::ZERO,
    };
    testbed.scheduler.enqueue(None, none, Time::ZERO).unwrap();
    for id in [5, 6, 700, 701, u32::MAX] {
        assert!(testbed.put(id, 60, Time::ZERO));
    }
    testbed.take(Time::ZERO);
    let counts = [0, 5, 700].map(|id| testbed.stats(id).tx_packets);
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
    let mut testbed = TestBed::new(&plan);
    let taken = |testbed: &mut TestBed, id, size, len: usize| {
        (0..len).filter(|_| testbed.put(id, size, Time::ZERO)).count()
    };
    assert_eq!(taken(&mut testbed, 1, 1500, 10), 3);
    assert_eq!(taken(&mut testbed, 2, 400, 10), 2);
    testbed.scheduler.publish_len();
    let (first, second) = (testbed.stats(1), testbed.stats(2));
    assert_eq!(
        (first.dropped, first.waiting_packets, first.waiting_bytes),
        (7, 3, 4500)
    );
    assert_eq!(
        (second.dropped, second.waiting_packets, second.waiting_bytes),
        (8, 2, 800)
    );
    testbed.take(Time::ZERO);
    assert_eq!(
        (testbed.stats(1).waiting_packets, testbed.stats(2).waiting_bytes),
        (0, 0)
    );
    assert_eq!(taken(&mut testbed, 2, 9000, 2), 1);
}

#[test]
fn a_change_keeps_packets_order_and_counters_and_gives_no_second_burst() {
    let plan = |rate, queues| PortPlan {
        rate: bps(rate),
        queues,
        ..PortPlan::default()
    };
    let mut testbed = TestBed::new(&plan(8_000_000, vec![queue(1), queue(2)]));
    testbed.fill(1, 100, Time::ZERO);
    testbed.fill(2, 100, Time::ZERO);
    let burst = testbed.take(Time::ZERO);
    assert!((30..=32).contains(&burst), "{burst}");
    // Queue 2 is removed; queue 1 gets shorter.
    for _ in 0..10 {
        let next = plan(
            8_000_000,
            vec![QueuePlan {
                packets_max: 900,
                ..queue(1)
            }],
        );
        let mut scheduler = Scheduler::new(&next, &testbed.counters, Time::ZERO);
        let mut overflow = Vec::new();
        core::mem::swap(&mut scheduler, &mut testbed.scheduler);
        testbed.scheduler.inherit(scheduler, Time::ZERO, &mut overflow);
        assert_eq!(testbed.take(Time::ZERO), 0, "no second burst");
    }
    assert_eq!(testbed.stats(1).waiting_packets, 900);
    testbed.scheduler.lift_limits();
    testbed.take(Time::ZERO);
    for id in [1, 2] {
        let numbers: Vec<u64> = testbed
            .sent
            .iter()
            .filter(|packet| packet.queue == id)
            .map(|packet| packet.number)
            .collect();
        assert!(numbers.is_sorted() && numbers.len() > 900);
    }
    assert!(testbed.scheduler.is_empty());
    assert_eq!(
        testbed.stats(1).tx_packets + testbed.stats(1).dropped - 1,
        1000,
        "one had been refused when it was full"
    );
}

#[test]
fn the_default_queue_exists_though_it_is_listed_behind_as_many_queues_as_a_port_can_have() {
    let plan = PortPlan {
        queues: (1..=QUEUES_MAX as u32).chain([0]).map(queue).collect(),
        ..PortPlan::default()
    };
    let all = plan.all_queues();
    assert_eq!((all.len(), all[0].id), (QUEUES_MAX, PortPlan::DEFAULT_QUEUE));
    let mut testbed = TestBed::new(&plan);
    assert!(testbed.put(u32::MAX, 60, Time::ZERO));
    testbed.take(Time::ZERO);
    assert_eq!(testbed.stats(0).tx_packets, 1);
}
