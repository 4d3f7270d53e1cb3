//! Gate W4 (docs/gates.md): the rate and the depth of the queue, in virtual time and over veth pairs, with the
//! kernel's `tbf` in the same run.

use std::path::Path;
use std::time::Duration;

use millrace_types::Time;
use millrace_wan_emulator::{NoSources, Outcome, Path as Model, Seed};

use super::error::WanBenchError;
use super::packets::{Load, Stamp};
use super::record::{RealisedRate, WanRecord};
use super::recorder::Recorder;
use super::settings::path as config;
use super::test_bed::{Captured, TestBed};
use crate::gated::Gate;
use crate::gated::recorder::{Case, case};

/// Rates in bits per second, with their texts.
const VIRTUAL: [(&str, f64); 7] = [
    ("10kbps", 1e4),
    ("100kbps", 1e5),
    ("1Mbps", 1e6),
    ("10Mbps", 1e7),
    ("100Mbps", 1e8),
    ("1Gbps", 1e9),
    ("10Gbps", 1e10),
];
/// Rates over veth pairs, with the size of the frames in bytes.
const LIVE: [(&str, f64, usize); 5] = [
    ("10kbps", 1e4, 60),
    ("1Mbps", 1e6, 1514),
    ("10Mbps", 1e7, 1514),
    ("100Mbps", 1e8, 1514),
    ("1Gbps", 1e9, 1514),
];
/// The number of frames of a rate in virtual time.
const FRAMES: u64 = 20_000;
/// The largest error in percent.
const VIRTUAL_PERCENT: f64 = 0.1;
const LIVE_PERCENT: f64 = 1.0;
/// The offered load relative to the rate. The queue stays full.
const OVERLOAD: f64 = 1.3;
/// The smallest offered load, relative to the rate, for which the result is judged.
const OFFERED_MIN: f64 = 1.1;
/// The size of the check sequence in bytes. The emulator's rate includes the check sequence, the rate of tbf
/// does not.
const FCS: usize = 4;

/// Measures rates and queue depths in virtual time.
pub(super) fn in_virtual_time(recorder: &mut Recorder<'_>) -> Result<(), WanBenchError> {
    for (text, bps) in VIRTUAL {
        let config = config(&[("rate", text), ("queue", "100packets")])?;
        let mut model = Model::new(&config, Seed::new(1), &NoSources)?;
        let frame = [0; 1514];
        let gap = (1518.0 * 8.0 / bps * 1e9 / OVERLOAD) as u64;
        let mut releases = Vec::new();
        for number in 0..FRAMES {
            for outcome in model.offer(Time::from_nanos(number * gap), &frame) {
                if let Outcome::Released(release) = outcome {
                    releases.push(release.at.nanos());
                }
            }
        }
        let elapsed = match (releases.first(), releases.last()) {
            (Some(first), Some(last)) if last > first => (last - first) as f64 / 1e9,
            _ => f64::NAN,
        };
        let realised = (releases.len() as f64 - 1.0) * 1518.0 * 8.0 / elapsed;
        recorder.add(WanRecord::Rate(RealisedRate {
            system: "virtual time".to_owned(),
            round: 0,
            asked_bps: bps,
            realised_bps: realised,
            frames: releases.len(),
        }))?;
        let row = case(
            format!("W4 rate in virtual time, {text}: error"),
            text,
            Gate::AtMost(VIRTUAL_PERCENT),
            "%",
        );
        recorder.value(&row, 0, (realised / bps - 1.0).abs() * 100.0)?;
    }
    depths(recorder)
}

/// Counts the frames of a burst that a path accepts: one frame is on the link, the others are in the queue.
fn depths(recorder: &mut Recorder<'_>) -> Result<(), WanBenchError> {
    // A frame is 1,000 bytes long on the link, which takes 8 ms at 1 Mbit/s.
    let asked = [
        ("1packets", 2.0),
        ("100packets", 101.0),
        ("10000packets", 10_001.0),
        ("1000000B", 1000.0),
        ("999999B", 999.0),
        ("800ms", 101.0),
        ("799999us", 100.0),
    ];
    for (queue, room) in asked {
        let config = config(&[("rate", "1Mbps"), ("queue", queue)])?;
        let mut model = Model::new(&config, Seed::new(1), &NoSources)?;
        let accepted = (0..20_000)
            .flat_map(|_| model.offer(Time::ZERO, &[0; 996]))
            .filter(|outcome| matches!(outcome, Outcome::Released(_)))
            .count();
        let row = case(
            format!("W4 queue depth {queue}: frames of 1,000 B accepted at once"),
            queue,
            Gate::Exactly(room),
            "frames",
        );
        recorder.value(&row, 0, accepted as f64)?;
    }
    Ok(())
}

/// Returns the rate of the frames that arrived. The first fifth is left out, because the token bucket may
/// have had credit.
fn realised(stamps: &[i64], size_on_link: usize) -> Option<f64> {
    let judged = stamps.get(stamps.len() / 5..)?;
    let (first, last) = (judged.first()?, judged.last()?);
    let seconds = (last - first) as f64 / 1e9;
    (seconds > 0.0).then(|| (judged.len() - 1) as f64 * (size_on_link * 8) as f64 / seconds)
}

/// Measures rates over veth pairs, of the emulator and of tbf in turn.
pub(super) fn live(
    recorder: &mut Recorder<'_>,
    test_bed: &mut TestBed,
    program: &Path,
    core: usize,
) -> Result<(), WanBenchError> {
    for round in 0..recorder.length.rounds {
        for (text, bps, frame) in LIVE {
            let on_link = frame + FCS;
            // At least a hundred frames at the lowest rates.
            let longest = Duration::from_secs_f64(100.0 * on_link as f64 * 8.0 / bps);
            let load = Load {
                run: 0,
                frame,
                pps: (bps * OVERLOAD / 8.0 / on_link as f64).ceil() as u32,
                duration: recorder.length.window.max(longest),
            };
            let queue = Duration::from_secs_f64((20.0 * on_link as f64 * 8.0 / bps).max(0.02));
            let queue_text = format!("{}us", queue.as_micros());
            let options = ["--rate", text, "--queue", &queue_text, "--poll"];
            let emulator = test_bed.emulator(program, Some(core), &options)?;
            let (captured, _) = test_bed.load::<()>(load, queue, None)?;
            drop(emulator);
            record(recorder, round, "millrace-wan", (text, bps), &captured, on_link)?;

            let burst = format!("{}", (bps / 8.0 / 1000.0) as u64 + 2 * on_link as u64);
            let limit = format!("{}", (bps / 8.0 * queue.as_secs_f64()) as u64 + 10_000);
            let rate = format!("{bps}bit");
            let bucket = ["tbf", "rate", &rate, "burst", &burst, "limit", &limit];
            let shaped = test_bed.set_qdisc(&bucket);
            if let Err(error) = shaped {
                test_bed.remove_bridge()?;
                recorder.missing(&row("tbf", text), &error.to_string())?;
                continue;
            }
            let (captured, _) = test_bed.load::<()>(load, queue + Duration::from_millis(100), None)?;
            test_bed.remove_qdisc()?;
            record(recorder, round, "tbf", (text, bps), &captured, frame)?;
        }
    }
    Ok(())
}

/// Returns the row of a rate over veth pairs. Rows of tbf have no gate: they are for comparison.
fn row(system: &str, text: &str) -> Case {
    let gate = match system {
        "tbf" => Gate::None,
        _ => Gate::AtMost(LIVE_PERCENT),
    };
    case(format!("W4 rate of {system}, {text}: error"), text, gate, "%")
}

/// Records the rate of the frames that left a system. Records the row as missing if the load did not fill the
/// queue: it then shows nothing about the rate.
fn record(
    recorder: &mut Recorder<'_>,
    round: usize,
    system: &str,
    (text, bps): (&str, f64),
    captured: &Captured,
    size_on_link: usize,
) -> Result<(), WanBenchError> {
    let row = row(system, text);
    let rate = |stamps: &[Stamp]| {
        let nanos: Vec<i64> = stamps.iter().map(|stamp| stamp.nanos).collect();
        realised(&nanos, size_on_link).unwrap_or_default()
    };
    let (offered, realised, frames) = (rate(&captured.entered), rate(&captured.left), captured.left.len());
    if offered < bps * OFFERED_MIN || realised == 0.0 {
        let reason = format!(
            "{:.1} Mbit/s entered and {frames} frames left: expected a load above the rate",
            offered / 1e6
        );
        return recorder.missing(&row, &reason);
    }
    recorder.add(WanRecord::Rate(RealisedRate {
        system: system.to_owned(),
        round,
        asked_bps: bps,
        realised_bps: realised,
        frames,
    }))?;
    recorder.value(&row, round, (realised / bps - 1.0).abs() * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_that_of_the_last_four_fifths_of_the_frames() {
        // Ten at once, then one of 1,000 bytes each millisecond: 8 Mbit/s.
        let mut stamps = vec![0; 10];
        stamps.extend((1..=40).map(|number| number * 1_000_000));
        assert_eq!(realised(&stamps, 1000), Some(8e6));
        assert_eq!(realised(&[], 1000), None);
        assert_eq!(realised(&[5], 1000), None);
    }
}
