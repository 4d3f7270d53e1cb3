//! Row W6 of docs/gates.md: settings change under traffic, and the emulator is killed.

use std::path::Path;
use std::time::{Duration, Instant};

use super::error::WanBenchError;
use super::packets::Load;
use super::recorder::Recorder;
use super::test_bed::{Captured, TestBed};
use crate::gated::Gate;
use crate::gated::recorder::case;

/// The load of both parts of the row.
const LOAD: Load = Load {
    run: 0,
    frame: 60,
    pps: 5_000,
    duration: Duration::from_secs(120),
};
/// The time between two changes.
const CHANGE_EVERY: Duration = Duration::from_millis(4);
/// The longest delay that a changed setting causes.
const LONGEST: Duration = Duration::from_millis(300);
/// The settings of the changes, used in turn. None of them drops frames, and in ordered mode none reorders
/// frames.
const SETTINGS: [&[(&str, &str)]; 6] = [
    &[("delay", "20ms"), ("jitter", "none")],
    &[("delay", "5ms"), ("rate", "1Gbps")],
    &[("delay", "40ms"), ("jitter", "3ms,normal")],
    &[("rate", "200Mbps"), ("queue", "100ms")],
    &[("delay", "1ms"), ("jitter", "1ms,half-life=20ms")],
    &[("rate", "none"), ("jitter", "none"), ("delay", "10ms")],
];
/// The gate of a restart: the largest time in seconds until the first frame leaves.
const AGAIN_WITHIN_S: f64 = 1.0;

/// Returns the number of frames that entered and did not leave, and the number of frames that left after a
/// later frame.
fn lost_and_reordered(captured: &Captured) -> (usize, usize) {
    let mut left: Vec<u64> = captured.left.iter().map(|stamp| stamp.number).collect();
    let mut highest = None;
    let mut reordered = 0;
    for number in &left {
        reordered += usize::from(highest.is_some_and(|highest| *number < highest));
        highest = highest.max(Some(*number));
    }
    left.sort_unstable();
    left.dedup();
    let entered = captured.entered.len();
    (entered.saturating_sub(left.len()), reordered)
}

/// Changes settings through the control socket while frames pass.
pub(super) fn under_traffic(
    recorder: &mut Recorder<'_>,
    test_bed: &mut TestBed,
    program: &Path,
    core: usize,
) -> Result<(), WanBenchError> {
    let changes = recorder.length.changes;
    let emulator = test_bed.emulator(program, Some(core), &["--memory", "64MiB", "--poll"])?;
    let mut change = || {
        for (_, settings) in (0..changes).zip(SETTINGS.iter().cycle()) {
            emulator.set(settings)?;
            std::thread::sleep(CHANGE_EVERY);
        }
        Ok(())
    };
    let (captured, _) = test_bed.load(LOAD, LONGEST, Some(&mut change))?;
    let (lost, reordered) = lost_and_reordered(&captured);
    let asked = format!("{changes} changes");
    let row = |quantity: &str, gate| {
        case(
            format!("W6 changes under traffic: {quantity}"),
            &asked,
            gate,
            "frames",
        )
    };
    recorder.value(&row("lost", Gate::Exactly(0.0)), 0, lost as f64)?;
    recorder.value(&row("reordered", Gate::Exactly(0.0)), 0, reordered as f64)?;
    // At least half of the expected frames must pass, which shows that the load continued during all changes.
    let least = CHANGE_EVERY.as_secs_f64() * f64::from(changes) * f64::from(LOAD.pps) / 2.0;
    recorder.value(
        &row("passed", Gate::AtLeast(least)),
        0,
        captured.left.len() as f64,
    )
}

/// Returns the kernel's description of the two interfaces, of their queueing disciplines and of their
/// filters.
fn interfaces(test_bed: &TestBed) -> Result<String, WanBenchError> {
    let mut text = String::new();
    for name in ["eth0", "eth1"] {
        text += &test_bed.run(&["ip", "-json", "-details", "link", "show", name])?;
        text += &test_bed.run(&["ip", "-json", "address", "show", name])?;
        text += &test_bed.run(&["tc", "qdisc", "show", "dev", name])?;
        text += &test_bed.run(&["ethtool", "--show-features", name])?;
    }
    Ok(text)
}

/// Kills the emulator with SIGKILL, compares the interfaces, and starts it again.
pub(super) fn killed(
    recorder: &mut Recorder<'_>,
    test_bed: &mut TestBed,
    program: &Path,
    core: usize,
) -> Result<(), WanBenchError> {
    let options = ["--delay", "10ms", "--memory", "64MiB"];
    let before = interfaces(test_bed)?;
    for round in 0..recorder.length.rounds {
        let emulator = test_bed.emulator(program, Some(core), &options)?;
        emulator.kill()?;
        let after = interfaces(test_bed)?;
        let changed = before
            .split(',')
            .zip(after.split(','))
            .filter(|(before, after)| before != after)
            .count()
            + before.split(',').count().abs_diff(after.split(',').count());
        let row = case(
            "W6 kill -9: properties of interfaces changed",
            "SIGKILL",
            Gate::Exactly(0.0),
            "properties",
        );
        recorder.value(&row, round, changed as f64)?;
        let seconds = restart(test_bed, program, core, &options)?;
        let row = case(
            "W6 kill -9: traffic again after a restart",
            "restart",
            Gate::AtMost(AGAIN_WITHIN_S),
            "s",
        );
        recorder.value(&row, round, seconds)?;
    }
    Ok(())
}

/// Starts an emulator while frames arrive. Returns the seconds from its start until the first frame left it.
fn restart(
    test_bed: &mut TestBed,
    program: &Path,
    core: usize,
    options: &[&str],
) -> Result<f64, WanBenchError> {
    let clock = || {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        now.map_or(0, |since| since.as_nanos() as i64)
    };
    let mut started = 0;
    let starter = test_bed.starter();
    let mut start = || {
        // Frames are sent before the emulator is started.
        std::thread::sleep(Duration::from_millis(100));
        started = clock();
        let emulator = starter.emulator(program, Some(core), options)?;
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_millis(300) {
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(emulator)
    };
    let load = Load { pps: 1000, ..LOAD };
    let (captured, _emulator) = test_bed.load(load, LONGEST, Some(&mut start))?;
    let first = captured.left.first().ok_or(WanBenchError::NoFrames {
        sent: captured.sent as usize,
        system: "millrace-wan".to_owned(),
        within: LONGEST,
    })?;
    Ok((first.nanos - started) as f64 / 1e9)
}

#[cfg(test)]
mod tests {
    use super::super::packets::Stamp;
    use super::*;

    #[test]
    fn lost_and_reordered_frames_are_counted_and_a_duplicate_hides_no_loss() {
        let stamps = |numbers: &[u64]| {
            numbers
                .iter()
                .map(|number| Stamp {
                    number: *number,
                    nanos: 0,
                })
                .collect()
        };
        let captured = Captured {
            sent: 5,
            entered: stamps(&[0, 1, 2, 3, 4]),
            left: stamps(&[0, 2, 2, 1, 4]),
        };
        assert_eq!(lost_and_reordered(&captured), (1, 1));
    }
}
