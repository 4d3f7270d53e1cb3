//! The invariant of the emulator: the outcome of a frame depends on the seed, the configuration and the
//! sequence of (arrival, frame). It does not depend on the division into bursts, on the times of polls, or on
//! other stages.

use millrace_types::Time;
use millrace_wan_emulator::{
    DirectionConfig, DirectionId, Halves, NoSources, Outcome, Path, PathConfig, Plan, Seed, heap_memory,
};
use proptest::prelude::*;

use crate::{config, nanos};

/// One text for each stage that draws numbers.
const STAGES: [(&str, &str); 8] = [
    ("rate", "20Mbps"),
    ("queue", "30ms,red"),
    ("background", "on-off:80%,on=5ms,off=20ms"),
    (
        "loss",
        "1%;ge:1%,burst=4;4-state:p13=1%,p31=50%,p32=10%,p23=50%,p14=1%;ber:1e-6;outage:up=100ms,down=5ms",
    ),
    ("delay", "20ms"),
    ("jitter", "3ms,normal,half-life=10ms"),
    ("duplicate", "1%,extra=1ms"),
    ("corrupt", "1%,bits=3,deliver"),
];

fn busy(order: &str, reorder: bool) -> PathConfig {
    let mut config = config(&STAGES);
    config.set("order", order).unwrap();
    if reorder {
        config.set("reorder", "2%,extra=4ms").unwrap();
    }
    config
}

/// Returns arrivals and sizes of a frame each, by the seed.
fn traffic(seed: u64, frames: usize) -> Vec<(u64, Vec<u8>)> {
    let mut state = seed | 1;
    let mut random = move |bound: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % bound
    };
    let mut arrival = 0;
    let next = |number: usize| {
        arrival += random(800_000);
        let mut frame = vec![number as u8; 60 + random(1400) as usize];
        frame[..8].copy_from_slice(&(number as u64).to_be_bytes());
        (arrival, frame)
    };
    (0..frames).map(next).collect()
}

/// Returns (release, frame) in the order in which the receiver takes them. `cut(n)` says whether the sender publishes after
/// frame n, and `poll(n)` whether the receiver takes what is due.
fn run(
    config: &PathConfig,
    traffic: &[(u64, Vec<u8>)],
    cut: impl Fn(usize) -> bool,
    poll: impl Fn(usize) -> bool,
) -> Vec<(Time, Vec<u8>)> {
    let direction = DirectionConfig {
        path: config.clone(),
        ..DirectionConfig::default()
    };
    let plan = Plan::new(&direction, Seed::new(3), DirectionId::Forward, &NoSources).unwrap();
    let memory = heap_memory(plan.memory_size());
    let Halves {
        mut sender,
        mut receiver,
        controller,
        ..
    } = plan.start(memory, Time::ZERO).unwrap();
    let mut taken = Vec::new();
    let mut take = |now: Time| {
        while let Some(frame) = receiver.take(now) {
            assert!(frame.release() <= now, "a frame is early");
            let mut bytes = vec![0; frame.len()];
            frame.copy_to(&mut bytes);
            taken.push((frame.release(), bytes));
        }
        receiver.free();
    };
    for (number, (arrival, frame)) in traffic.iter().enumerate() {
        sender.offer(nanos(*arrival), 0, frame);
        if cut(number) {
            sender.publish();
            if poll(number) {
                take(nanos(*arrival));
            }
        }
    }
    sender.publish();
    take(Time::from_secs(1000));
    let stats = controller.stats();
    assert_eq!(stats.in_flight, 0);
    assert_eq!(
        stats.offered + stats.duplicated,
        stats.released + stats.dropped_in_all()
    );
    taken
}

/// Returns the releases of the model alone, in the order of (release, offer).
fn expected(config: &PathConfig, traffic: &[(u64, Vec<u8>)]) -> Vec<(Time, Vec<u8>)> {
    let seed = Seed::new(3).direction(DirectionId::Forward).class(0);
    let mut path = Path::new(config, seed, &NoSources).unwrap();
    let mut released = Vec::new();
    for (arrival, frame) in traffic {
        for outcome in path.offer(nanos(*arrival), frame) {
            if let Outcome::Released(release) = outcome {
                let mut bytes = frame.clone();
                if let Some(flips) = release.flips {
                    flips.apply(&mut bytes);
                }
                released.push((release.at, bytes));
            }
        }
    }
    released.sort_by_key(|(at, _)| *at);
    released
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn outcomes_do_not_depend_on_cuts_or_polls(
        seed: u64,
        cuts in prop::collection::vec((any::<bool>(), any::<bool>()), 1..50),
        reordering: bool,
        reorder: bool,
    ) {
        let config = busy(if reordering { "reordering" } else { "ordered" }, reorder);
        let traffic = traffic(seed, 600);
        // The polls are late. They release frames in another order only if a frame arrived after its successor
        // was taken; the bytes and times are those of the model.
        let mut taken = run(&config, &traffic, |n| cuts[n % cuts.len()].0, |n| cuts[n % cuts.len()].1);
        taken.sort_by_key(|(at, _)| *at);
        prop_assert_eq!(taken, expected(&config, &traffic));
    }
}

#[test]
fn a_million_random_cuts_change_nothing() {
    let traffic = traffic(11, 2000);
    for order in ["ordered", "reordering"] {
        let config = busy(order, true);
        let reference = expected(&config, &traffic);
        let mut state = 1u64;
        // 250 runs of 2000 frames for each order: a million random decisions whether a burst ends.
        for _ in 0..250 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let coin = |n: usize, salt: u64| {
                (state ^ salt).wrapping_mul(n as u64 * 2 + 0x9e37_79b9_7f4a_7c15) >> 63 == 0
            };
            let mut taken = run(&config, &traffic, |n| coin(n, 1), |n| coin(n, 2));
            taken.sort_by_key(|(at, _)| *at);
            assert!(taken == reference);
        }
    }
}

#[test]
fn a_receiver_that_polls_in_time_sees_the_order_of_release() {
    let traffic = traffic(5, 2000);
    for order in ["ordered", "reordering"] {
        let config = busy(order, true);
        let taken = run(&config, &traffic, |_| true, |_| true);
        assert!(taken.is_sorted_by_key(|(at, _)| *at));
        assert_eq!(taken, expected(&config, &traffic));
    }
}

#[test]
fn switching_a_stage_on_does_not_change_the_draws_of_another() {
    let asked = |settings: &[(&str, &str)]| -> Vec<(u64, u64)> {
        let mut path = crate::path(settings);
        let frames = (0..5000u64).map(|number| (number, path.offer(nanos(number * 1_000_000), &[0; 60])));
        let delay = |(number, outcomes): (u64, millrace_wan_emulator::Outcomes)| match outcomes[0] {
            Outcome::Released(release) => Some((number, release.drawn_delay)),
            Outcome::Dropped(_) => None,
        };
        frames.filter_map(delay).collect()
    };
    let jitter = [
        ("delay", "10ms"),
        ("jitter", "2ms,normal"),
        ("order", "reordering"),
    ];
    let alone = asked(&jitter);
    let mut more = jitter.to_vec();
    more.extend([
        ("loss", "10%"),
        ("duplicate", "5%"),
        ("reorder", "5%,extra=1ms"),
        ("corrupt", "5%,deliver"),
    ]);
    for (number, delay) in asked(&more) {
        assert_eq!(alone[number as usize], (number, delay));
    }
}
