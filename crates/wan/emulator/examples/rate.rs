//! Prints the number of frames that one core passes through the model, into the ring and out again, for each
//! second of processor time. The processor time is the kernel's account of this thread. So other processes on
//! a shared machine do not count, except by their use of the caches.
//!
//! `cargo run --release -p millrace-wan-emulator --example rate [-- CASE]`

#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a measurement")]

use millrace_types::Time;
use millrace_wan_emulator::{
    ByteSize, DirectionConfig, DirectionId, Interval, NoSources, Plan, Seed, heap_memory,
};

/// The keys and values of a path's settings.
type Settings = &'static [(&'static str, &'static str)];

/// A measurement: its name, its settings, the size of a frame in bytes without check sequence, and the
/// nanoseconds between arrivals.
const CASES: [(&str, Settings, usize, u64); 6] = [
    ("64 B, constant delay", &[("delay", "10ms")], 60, 60),
    ("64 B, constant delay 200 ms", &[("delay", "200ms")], 60, 60),
    (
        "64 B, jitter and reordering",
        &[
            ("delay", "10ms"),
            ("jitter", "2ms,normal"),
            ("order", "reordering"),
        ],
        60,
        120,
    ),
    (
        "64 B, jitter with half-life, loss, reordering",
        &[
            ("delay", "50ms"),
            ("jitter", "5ms,normal,half-life=10ms"),
            ("loss", "ge:1%,burst=8"),
            ("order", "reordering"),
        ],
        60,
        120,
    ),
    (
        "64 B, 10 Gbit/s",
        &[("delay", "10ms"), ("rate", "10Gbps")],
        60,
        60,
    ),
    (
        "1518 B, 10 Gbit/s, 200 ms",
        &[("delay", "200ms"), ("rate", "10Gbps")],
        1514,
        1215,
    ),
];

const BURST: u64 = 32;

fn main() {
    let wanted = std::env::args().nth(1).unwrap_or_default();
    for (name, settings, size, gap) in CASES {
        if name.contains(&wanted) {
            let rates: Vec<f64> = (0..3).map(|_| measure(settings, size, gap)).collect();
            let best = rates.iter().copied().fold(0.0, f64::max);
            println!("{name}: {best:.2} Mpps (of 3: {rates:.2?})");
        }
    }
}

/// Returns millions of frames a second of processor time. Virtual time advances with the frames.
fn measure(settings: Settings, size: usize, gap: u64) -> f64 {
    let mut config = DirectionConfig::default();
    for (key, text) in settings {
        config.path.set(key, text).unwrap();
    }
    if config.path.rate.is_none() {
        // Twice the bytes in flight at the mean delay, so that the ring is used many times over.
        let delay: Interval = settings[0].1.parse().unwrap();
        let record = (16 + size as u64).next_multiple_of(16);
        config.memory = Some(ByteSize(record * delay.nanos() / gap * 2 + (4 << 20)));
    }
    let plan = Plan::new(&config, Seed::new(1), DirectionId::Forward, &NoSources).unwrap();
    let memory = heap_memory(plan.memory_size());
    let mut halves = plan.start(memory, Time::ZERO).unwrap();
    let (sender, receiver) = (&mut halves.sender, &mut halves.receiver);
    let frame = vec![0x5a; size];
    let mut buffer = vec![0; 2048];
    let (mut now, mut released) = (0, 0u64);
    let frames = 8_000_000;
    let begin = on_processor();
    for _ in 0..frames / BURST {
        for _ in 0..BURST {
            now += gap;
            sender.offer(Time::from_nanos(now), 0, &frame);
        }
        sender.publish();
        while let Some(frame) = receiver.take(Time::from_nanos(now)) {
            frame.copy_to(&mut buffer);
            released += 1;
        }
        receiver.free();
    }
    let elapsed = on_processor() - begin;
    let stats = halves.controller.stats();
    assert_eq!(stats.released, released);
    assert_eq!(stats.released + stats.in_flight + stats.dropped_in_all(), frames);
    frames as f64 / elapsed / 1e6
}

/// Returns the processor time of this thread in seconds: proc(5), `/proc/pid/schedstat`.
fn on_processor() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    let nanos: u64 = text.split(' ').next().unwrap().parse().unwrap();
    nanos as f64 / 1e9
}
