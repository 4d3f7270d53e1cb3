//! The two halves: memory, order, time, changes under traffic.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use millrace_types::Time;
use millrace_wan_emulator::{
    Bypass, ClassConfig, Controller, DirectionConfig, DirectionId, DropReason, NoSources, Plan, PlanError,
    Receiver, Seed, Sender, heap_memory,
};

use crate::{config, nanos};

type Memory = Box<[AtomicU64]>;

fn direction(settings: &[(&str, &str)], memory: Option<&str>) -> DirectionConfig {
    DirectionConfig {
        path: config(settings),
        memory: memory.map(|memory| memory.parse().unwrap()),
        ..DirectionConfig::default()
    }
}

fn start(config: &DirectionConfig) -> (Sender<Memory>, Receiver<Memory>, Controller) {
    let plan = Plan::new(config, Seed::new(1), DirectionId::Forward, &NoSources).unwrap();
    let memory = heap_memory(plan.memory_size());
    let halves = plan.start(memory, Time::ZERO).unwrap();
    (halves.sender, halves.receiver, halves.controller)
}

#[test]
fn memory_that_is_short_is_an_error_with_the_bytes_needed() {
    let delay = [("rate", "1Gbps"), ("delay", "100ms"), ("queue", "100ms")];
    let plan = Plan::new(
        &direction(&delay, None),
        Seed::new(1),
        DirectionId::Forward,
        &NoSources,
    )
    .unwrap();
    // 1 Gbit/s × 200 ms are 25 MB.
    let (size, bytes) = (plan.memory_size() as f64, 25e6);
    assert!((bytes * 1.35..bytes * 1.4 + 3e6).contains(&size), "{size}");
    let error = Plan::new(
        &direction(&delay, Some("20MB")),
        Seed::new(1),
        DirectionId::Forward,
        &NoSources,
    )
    .unwrap_err();
    assert!(matches!(
        error,
        PlanError::MemoryShort {
            given: 20_000_000,
            ..
        }
    ));
    assert!(error.to_string().contains("to fix it: give 35 MiB"), "{error}");
    let plan = Plan::new(
        &direction(&delay, None),
        Seed::new(1),
        DirectionId::Forward,
        &NoSources,
    )
    .unwrap();
    assert!(matches!(
        plan.start(heap_memory(1000), Time::ZERO),
        Err(PlanError::MemoryShort { .. })
    ));
    let error = Plan::new(
        &direction(&[("delay", "1ms")], None),
        Seed::new(1),
        DirectionId::Forward,
        &NoSources,
    )
    .unwrap_err();
    assert_eq!(error, PlanError::NeedsMemory);
    assert!(
        Plan::new(
            &direction(&[("loss", "1%")], None),
            Seed::new(1),
            DirectionId::Forward,
            &NoSources
        )
        .is_ok()
    );
}

#[test]
fn planned_memory_holds_a_full_queue_of_the_smallest_frames() {
    for order in ["ordered", "reordering"] {
        let settings = [
            ("rate", "100Mbps"),
            ("delay", "50ms"),
            ("jitter", "10ms"),
            ("queue", "50ms"),
            ("order", order),
        ];
        let (mut sender, mut receiver, controller) = start(&direction(&settings, None));
        for number in 0..200_000u64 {
            // The load is twice the rate.
            let now = nanos(number * 2_560);
            sender.offer(now, 0, &[0; 60]);
            sender.publish();
            while receiver.take(now).is_some() {}
            receiver.free();
        }
        let stats = controller.stats();
        assert!(stats.dropped(DropReason::QueueFull) > 80_000);
        assert_eq!(stats.dropped(DropReason::NoMemory), 0, "{stats:?}");
        assert!(stats.memory_high > stats.memory_size / 2);
    }
}

#[test]
fn planned_memory_holds_a_full_queue_of_frames_with_the_largest_records() {
    let settings = [("rate", "400Mbps"), ("delay", "100ms"), ("queue", "250ms")];
    let (mut sender, mut receiver, controller) = start(&direction(&settings, None));
    // 65 bytes take 69 on the link, and 96 in the ring.
    for number in 0..500_000u64 {
        let now = nanos(number * 690);
        sender.offer(now, 0, &[0; 65]);
        sender.publish();
        while receiver.take(now).is_some() {}
        receiver.free();
    }
    let stats = controller.stats();
    assert!(stats.dropped(DropReason::QueueFull) > 0, "{stats:?}");
    assert_eq!(stats.dropped(DropReason::NoMemory), 0, "{stats:?}");
}

#[test]
fn planned_memory_holds_the_duplicates_of_a_full_queue() {
    // 65 bytes take 69 on the link, and 96 in the ring; 1,514 bytes take 1,518 and 1,536.
    for (duplicate, size) in [
        ("100%", 65),
        ("100%", 1514),
        ("1%", 65),
        ("50%", 1514),
        ("20%,correlation=90%", 65),
    ] {
        let settings = [
            ("rate", "100Mbps"),
            ("delay", "100ms"),
            ("queue", "250ms"),
            ("duplicate", duplicate),
        ];
        let (mut sender, mut receiver, controller) = start(&direction(&settings, None));
        let frame = vec![0; size];
        // The load is twice the rate, for 700 ms.
        let frames = 175_000_000 / 10 / (size as u64 + 4);
        for number in 0..frames {
            let now = nanos(number * 700_000_000 / frames);
            sender.offer(now, 0, &frame);
            sender.publish();
            while receiver.take(now).is_some() {}
            receiver.free();
        }
        let stats = controller.stats();
        assert!(
            stats.dropped(DropReason::QueueFull) > 0 && stats.duplicated > 0,
            "{stats:?}"
        );
        assert_eq!(
            stats.dropped(DropReason::NoMemory),
            0,
            "{duplicate}, {size}: {stats:?}"
        );
    }
}

#[test]
fn memory_in_use_is_that_of_the_frames_in_flight_however_many_have_passed() {
    let (mut sender, mut receiver, controller) = start(&direction(&[("delay", "1ms")], Some("4MiB")));
    let mut used = 0;
    for number in 0..100_000u64 {
        sender.offer(nanos(number * 2_000_000), 0, &[0; 60]);
        sender.publish();
        used = controller.stats().memory_used;
        assert!(receiver.take(nanos(number * 2_000_000 + 1_000_000)).is_some());
        receiver.free();
    }
    let stats = controller.stats();
    assert_eq!((used, stats.memory_used), (80, 0));
    // A record at the end of the ring may be padded.
    assert!((80..200).contains(&stats.memory_high), "{}", stats.memory_high);
}

#[test]
fn a_frame_without_memory_is_dropped_by_that_name() {
    let (mut sender, mut receiver, controller) = start(&direction(&[("delay", "10s")], Some("4MiB")));
    for number in 0..100_000u64 {
        sender.offer(nanos(number), 0, &[0; 60]);
    }
    sender.publish();
    let stats = controller.stats();
    assert_eq!(stats.dropped(DropReason::NoMemory), 100_000 - (4 << 20) / 80);
    assert_eq!(receiver.next_due(), Some(Time::from_secs(10)));
    let mut taken = 0;
    while receiver.take(Time::from_secs(11)).is_some() {
        taken += 1;
    }
    receiver.free();
    assert_eq!(taken, (4 << 20) / 80);
    sender.offer(Time::from_secs(11), 0, &[0; 60]);
    assert_eq!(controller.stats().dropped_in_all(), stats.dropped_in_all());
}

#[test]
fn nothing_is_due_before_next_due_and_something_soon_after() {
    for order in ["ordered", "reordering"] {
        let settings = [("delay", "50ms"), ("jitter", "40ms"), ("order", order)];
        let (mut sender, mut receiver, _) = start(&direction(&settings, Some("16MiB")));
        for number in 0..5000u64 {
            sender.offer(nanos(number * 1_000_000), 0, &[0; 60]);
        }
        sender.publish();
        let (mut taken, mut polls) = (0, 0);
        while let Some(due) = receiver.next_due() {
            assert!(receiver.take(nanos(due.nanos().saturating_sub(1))).is_none());
            if receiver.take(due).is_some() {
                taken += 1;
            }
            polls += 1;
            assert!(polls < 20_000);
        }
        assert_eq!(taken, 5000);
    }
}

#[test]
fn classes_have_paths_of_their_own_and_some_frames_bypass_them() {
    let mut config = direction(&[("delay", "100ms")], Some("16MiB"));
    config.class = vec![ClassConfig {
        name: "voice".to_owned(),
        filter: "udp".to_owned(),
        path: crate::config(&[("delay", "1ms")]),
    }];
    config.bypass = vec![Bypass::ArpNd, Bypass::Multicast];
    let (mut sender, mut receiver, controller) = start(&config);
    let mut arp = [0; 60];
    arp[12..14].copy_from_slice(&[0x08, 0x06]);
    sender.offer(nanos(0), 0, &[0; 60]);
    sender.offer(nanos(0), 1, &[0; 61]);
    sender.offer(nanos(0), 0, &arp);
    sender.offer(nanos(0), 0, &[0xff; 62]);
    sender.publish();
    let mut due = |now: u64| {
        let mut sizes = Vec::new();
        while let Some(frame) = receiver.take(nanos(now)) {
            sizes.push((frame.len(), frame.class()));
        }
        sizes
    };
    assert_eq!(due(0), [(60, 0), (62, 0)]);
    assert_eq!(due(1_000_000), [(61, 1)]);
    assert_eq!(due(99_999_999), []);
    assert_eq!(due(100_000_000), [(60, 0)]);
    // The delays are those of the paths alone.
    let stats = controller.stats();
    assert_eq!((stats.delay_asked.count, stats.delay_given.count), (2, 2));
    assert_eq!((stats.lateness.count, stats.bypassed), (4, 2));
}

#[test]
fn a_thousand_changes_under_traffic_lose_and_reorder_nothing() {
    let rates = ["100Mbps", "1Gbps", "10Gbps"];
    let settings = |n: usize| {
        [
            ("rate", rates[n % 3]),
            ("delay", ["10ms", "30ms"][n % 2]),
            ("queue", "100ms"),
        ]
    };
    let (mut sender, mut receiver, controller) = start(&direction(&settings(0), Some("256MiB")));
    let (mut next, mut offered) = (0u64, 0u64);
    for change in 0..1000 {
        controller
            .set(&direction(&settings(change), None), &NoSources)
            .unwrap();
        sender.publish();
        for _ in 0..100 {
            // The load is at most half of the lowest rate.
            let now = nanos(offered * 50_000);
            let mut frame = [0; 200];
            frame[..8].copy_from_slice(&offered.to_be_bytes());
            sender.offer(now, 0, &frame);
            offered += 1;
            sender.publish();
            while let Some(frame) = receiver.take(now) {
                let mut number = [0; 8];
                frame.copy_to(&mut number);
                assert_eq!(u64::from_be_bytes(number), next);
                next += 1;
            }
            receiver.free();
        }
    }
    while receiver.take(Time::from_secs(1000)).is_some() {
        next += 1;
    }
    assert_eq!((next, offered), (100_000, 100_000));
    assert_eq!(controller.stats().changes, 1000);
}

#[test]
fn a_change_applies_to_new_frames_only_and_may_let_them_overtake() {
    let (mut sender, mut receiver, controller) = start(&direction(&[("delay", "100ms")], Some("16MiB")));
    sender.offer(nanos(0), 0, &[0; 60]);
    sender.publish();
    let faster = direction(&[("delay", "10ms"), ("order", "reordering")], None);
    controller.set_at(nanos(2_000_000), &faster, &NoSources).unwrap();
    sender.publish();
    sender.offer(nanos(1_999_999), 0, &[0; 61]);
    sender.offer(nanos(2_000_000), 0, &[0; 62]);
    sender.publish();
    let mut order = Vec::new();
    while let Some(frame) = receiver.take(Time::from_secs(1)) {
        order.push((frame.len(), frame.release().nanos()));
    }
    assert_eq!(order, [(62, 12_000_000), (60, 100_000_000), (61, 101_999_999)]);
}

#[test]
fn after_a_change_to_ordered_no_frame_leaves_before_one_that_was_delayed_longer() {
    let jitter = [("delay", "50ms"), ("jitter", "40ms"), ("order", "reordering")];
    let (mut sender, mut receiver, controller) = start(&direction(&jitter, Some("16MiB")));
    for number in 0..100 {
        sender.offer(nanos(number), 0, &[0; 60]);
    }
    let ordered = direction(&[("delay", "1ms")], None);
    controller.set_at(nanos(1_000), &ordered, &NoSources).unwrap();
    sender.publish();
    for number in 1_000..1_100 {
        sender.offer(nanos(number), 0, &[0; 61]);
    }
    sender.publish();
    let mut sizes = Vec::new();
    while let Some(frame) = receiver.take(Time::from_secs(1)) {
        sizes.push(frame.len());
    }
    assert_eq!(sizes.len(), 200);
    assert!(
        sizes.is_sorted(),
        "frames of 61 bytes were offered after the change"
    );
}

#[test]
fn a_change_that_does_not_fit_is_refused_with_the_reason() {
    let (_sender, _receiver, controller) = start(&direction(&[("rate", "100Mbps"), ("delay", "10ms")], None));
    let slower = direction(&[("rate", "100Mbps"), ("delay", "9s")], None);
    assert!(matches!(
        controller.set(&slower, &NoSources),
        Err(PlanError::MemoryShort { .. })
    ));
    let mut classes = direction(&[("rate", "100Mbps")], None);
    classes.class = vec![ClassConfig::default()];
    assert!(matches!(
        controller.set(&classes, &NoSources),
        Err(PlanError::ClassesChanged { .. })
    ));
}

#[test]
fn two_threads_hand_over_every_frame_once_and_never_early() {
    let frames = 200_000u64;
    let settings = [("delay", "200us"), ("jitter", "100us"), ("order", "reordering")];
    let (mut sender, mut receiver, controller) = start(&direction(&settings, Some("4MiB")));
    let clock = std::time::Instant::now();
    let now = move || nanos(clock.elapsed().as_nanos() as u64);
    let done = AtomicBool::new(false);
    let mut seen = vec![false; frames as usize];
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0..frames {
                let mut frame = [0; 100];
                frame[..8].copy_from_slice(&number.to_be_bytes());
                sender.offer(now(), 0, &frame);
                if number % 32 == 0 {
                    sender.publish();
                    // The receiver may share this core.
                    while controller.stats().in_flight > 10_000 {
                        std::thread::yield_now();
                    }
                }
            }
            sender.publish();
            done.store(true, Ordering::Release);
        });
        loop {
            let over = done.load(Ordering::Acquire);
            let at = now();
            while let Some(frame) = receiver.take(at) {
                assert!(frame.release() <= at);
                let mut number = [0; 8];
                frame.copy_to(&mut number);
                let number = u64::from_be_bytes(number) as usize;
                assert!(!seen[number], "frame {number} came twice");
                seen[number] = true;
            }
            receiver.free();
            if over && receiver.next_due().is_none() {
                break;
            }
            std::thread::yield_now();
        }
    });
    let stats = controller.stats();
    assert_eq!((stats.released, stats.dropped_in_all()), (frames, 0));
    assert!(seen.iter().all(|seen| *seen));
    assert_eq!(stats.lateness.count, frames);
}
