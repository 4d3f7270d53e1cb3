//! Checks that the outcome of a frame does not depend on the division into bursts, nor on the times of polls.

use millrace_types::Time;
use millrace_wan_emulator::{
    Direction, DirectionConfig, DirectionId, Halves, NoSources, Outcome, Plan, Seed, heap_memory,
};

use super::super::error::WanBenchError;
use super::super::recorder::Recorder;
use super::super::settings::path as config;
use crate::gated::Gate;
use crate::gated::recorder::case;
use crate::random::Random;

/// The largest number of frames of a burst; the smallest is 1.
const BURST_MAX: usize = 8;
/// The seed of the path, and of the division into bursts.
const SEED: u64 = 21;

/// The settings of the path. Every stage of it draws random numbers.
const SETTINGS: [(&str, &str); 8] = [
    ("delay", "5ms"),
    ("jitter", "1ms,normal"),
    ("order", "reordering"),
    ("loss", "ge:1%,burst=8"),
    ("rate", "500Mbps"),
    ("queue", "100packets"),
    ("duplicate", "1%"),
    ("reorder", "1%,extra=2ms"),
];

/// Returns the time between a frame and the next in nanoseconds. The load alternates between above and below
/// the rate, so that the queue fills and empties.
fn gap(number: u64) -> u64 {
    if (number / 4_000).is_multiple_of(2) {
        700
    } else {
        1_500
    }
}

/// Offers the same frames to the model alone, and to the emulator's sender in bursts of random size. The
/// receiver polls at random times. Compares the released frames in order.
pub(super) fn run(recorder: &mut Recorder<'_>) -> Result<(), WanBenchError> {
    let cuts = recorder.length.frames;
    let direction = DirectionConfig {
        path: config(&SETTINGS)?,
        ..DirectionConfig::default()
    };
    let mut model = Direction::new(&direction, Seed::new(SEED), DirectionId::Forward, &NoSources)?;
    let plan = Plan::new(&direction, Seed::new(SEED), DirectionId::Forward, &NoSources)?;
    let memory = heap_memory(plan.memory_size());
    let Halves {
        mut sender,
        mut receiver,
        controller,
        ..
    } = plan.start(memory, Time::ZERO)?;
    let mut random = Random::new(SEED);
    let (mut expected, mut taken) = (Vec::new(), Vec::new());
    let (mut number, mut now, mut bytes, mut dropped) = (0_u64, Time::ZERO, [0; 64], 0_u64);
    for _ in 0..cuts {
        let burst = 1 + random.below(BURST_MAX);
        for _ in 0..burst {
            now = Time::from_nanos(now.nanos() + gap(number));
            let mut frame = [0; 60];
            frame[20..28].copy_from_slice(&number.to_be_bytes());
            for outcome in model.offer(now, 0, &frame) {
                match outcome {
                    Outcome::Released(release) => expected.push((release.at.nanos(), number)),
                    Outcome::Dropped(_) => dropped += 1,
                }
            }
            sender.offer(now, 0, &frame);
            number += 1;
        }
        sender.publish();
        // Half of the bursts are followed by a poll.
        if random.below(2) == 0 {
            while let Some(frame) = receiver.take(now) {
                taken.push((frame.release().nanos(), read(&frame, &mut bytes)));
            }
            receiver.free();
        }
    }
    while let Some(frame) = receiver.take(Time::from_nanos(u64::MAX / 2)) {
        taken.push((frame.release().nanos(), read(&frame, &mut bytes)));
    }
    // Frames with the same release time are taken in the order in which they were offered.
    expected.sort_by_key(|(at, _)| *at);
    let different = expected.iter().zip(&taken).filter(|(a, b)| a != b).count()
        + expected.len().abs_diff(taken.len())
        + controller.stats().dropped_in_all().abs_diff(dropped) as usize;
    let row = case(
        "W5 random burst cuts: frames with another outcome",
        format!("{cuts} cuts, {number} frames"),
        Gate::Exactly(0.0),
        "frames",
    );
    recorder.value(&row, 0, different as f64)
}

/// Returns the number in a frame.
fn read<M: millrace_wan_emulator::Memory>(
    frame: &millrace_wan_emulator::Frame<'_, M>,
    bytes: &mut [u8; 64],
) -> u64 {
    frame.copy_to(&mut bytes[..frame.len().min(64)]);
    bytes[20..28].try_into().map_or(u64::MAX, u64::from_be_bytes)
}
