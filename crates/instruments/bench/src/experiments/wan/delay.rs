//! Row W1 of docs/gates.md: the error of the delay, over veth pairs and in virtual time.

use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

use millrace_report::stats::quantile;
use millrace_types::Time;
use millrace_wan_emulator::{
    DirectionConfig, DirectionId, NoSources, Outcome, Path as Model, Plan, Seed, heap_memory,
};

use super::error::WanBenchError;
use super::packets::{Load, Stamp};
use super::record::{DelayError, WanRecord};
use super::recorder::Recorder;
use super::settings::path;
use super::test_bed::{Captured, Emulator, TestBed};
use crate::gated::Gate;
use crate::gated::recorder::{case, part};

/// Delays in milliseconds; 0 is the baseline of the others.
const DELAYS_MS: [u32; 4] = [1, 10, 100, 200];
/// Frame sizes in bytes, without the check sequence as in captures, and their names in rows. The name 64 B
/// includes the check sequence.
const FRAMES: [(usize, &str); 2] = [(60, "64 B"), (1514, "1,514 B")];
/// Rates in frames per second.
const RATES: [(u32, &str); 3] = [(1_000, "1k pps"), (10_000, "10k pps"), (100_000, "100k pps")];
/// The time at the start of each run in which frames are not judged: a changed setting takes effect only with
/// the next burst.
const WARM_UP: Duration = Duration::from_millis(100);
/// The gates in microseconds.
const P50_US: f64 = 20.0;
const P99_US: f64 = 200.0;

/// The time from entry to exit of each frame, in the order of entry.
struct Transits {
    nanos: Vec<i64>,
    lost: usize,
}

/// Returns the transit times of the frames that entered after the warm-up.
fn transits(captured: &Captured) -> Transits {
    let left: HashMap<u64, i64> = captured
        .left
        .iter()
        .map(|Stamp { number, nanos }| (*number, *nanos))
        .collect();
    let first = captured.entered.first().map_or(0, |stamp| stamp.nanos);
    let judged = captured
        .entered
        .iter()
        .filter(|stamp| stamp.nanos - first >= WARM_UP.as_nanos() as i64);
    let (mut nanos, mut lost) = (Vec::new(), 0);
    for entered in judged {
        match left.get(&entered.number) {
            Some(at) => nanos.push(at - entered.nanos),
            None => lost += 1,
        }
    }
    Transits { nanos, lost }
}

/// Returns the errors of the delay of a run, after subtraction of the asked delay and the median at 0 ms.
fn error(transits: &Transits, asked_ns: i64, baseline_ns: f64, record: DelayError) -> DelayError {
    let micros = |nanos: f64| nanos / 1000.0;
    let mut errors: Vec<f64> = transits
        .nanos
        .iter()
        .map(|nanos| (*nanos as f64 - asked_ns as f64 - baseline_ns).abs())
        .collect();
    errors.sort_by(f64::total_cmp);
    DelayError {
        frames: errors.len(),
        lost: transits.lost,
        early: transits.nanos.iter().filter(|nanos| **nanos < asked_ns).count(),
        baseline_us: micros(baseline_ns),
        p50_us: micros(quantile(&errors, 0.5)),
        p99_us: micros(quantile(&errors, 0.99)),
        max_us: micros(errors.last().copied().unwrap_or_default()),
        ..record
    }
}

/// A system whose delay can be set.
pub(super) trait AdjustableDelay {
    fn name(&self) -> &'static str;
    fn set_delay(&mut self, test_bed: &mut TestBed, ms: u32) -> Result<(), WanBenchError>;
}

impl AdjustableDelay for Emulator {
    fn name(&self) -> &'static str {
        "millrace-wan"
    }

    fn set_delay(&mut self, _: &mut TestBed, ms: u32) -> Result<(), WanBenchError> {
        self.set(&[("delay", &format!("{ms}ms"))])
    }
}

/// The kernel's netem behind a bridge, with a queue that does not overflow.
struct Netem;

impl AdjustableDelay for Netem {
    fn name(&self) -> &'static str {
        "netem"
    }

    fn set_delay(&mut self, test_bed: &mut TestBed, ms: u32) -> Result<(), WanBenchError> {
        test_bed.set_qdisc(&["netem", "limit", "1000000", "delay", &format!("{ms}ms")])
    }
}

/// The frames of a measurement.
#[derive(Clone, Copy)]
pub(super) struct Offer<'a> {
    pub(super) frame: (usize, &'a str),
    pub(super) rate: (u32, &'a str),
    /// The text that follows the system's name in the names of rows.
    pub(super) remark: &'a str,
}

/// Measures delays after a run at 0 ms, and records the error of each.
pub(super) fn measure(
    recorder: &mut Recorder<'_>,
    test_bed: &mut TestBed,
    system: &mut dyn AdjustableDelay,
    round: usize,
    offer: Offer<'_>,
    delays_ms: &[u32],
) -> Result<(), WanBenchError> {
    let Offer { frame, rate, remark } = offer;
    let load = Load {
        run: 0,
        frame: frame.0,
        pps: rate.0,
        duration: recorder.length.window + WARM_UP,
    };
    let mut baseline = None;
    for asked in std::iter::once(&0).chain(delays_ms) {
        system.set_delay(test_bed, *asked)?;
        let delay = Duration::from_millis((*asked).into());
        let (captured, _) = test_bed.load::<()>(load, delay, None)?;
        let transits = transits(&captured);
        if transits.nanos.is_empty() {
            return Err(WanBenchError::NoFrames {
                sent: captured.sent as usize,
                system: system.name().to_owned(),
                within: delay,
            });
        }
        let baseline = *baseline.get_or_insert_with(|| {
            let mut sorted: Vec<f64> = transits.nanos.iter().map(|nanos| *nanos as f64).collect();
            sorted.sort_by(f64::total_cmp);
            quantile(&sorted, 0.5)
        });
        let record = DelayError {
            system: system.name().to_owned(),
            round,
            frame: frame.0,
            pps: rate.0,
            asked_ms: (*asked).into(),
            frames: 0,
            lost: 0,
            early: 0,
            baseline_us: 0.0,
            p50_us: 0.0,
            p99_us: 0.0,
            max_us: 0.0,
        };
        let error = error(&transits, delay.as_nanos() as i64, baseline, record);
        // Rows of other systems have no gate: they are for comparison.
        let ours = system.name() == "millrace-wan";
        let gate = |gate| if ours { gate } else { Gate::None };
        let name = |quantity: &str| {
            format!(
                "W1 {}{remark}, {}, {}: {quantity}",
                system.name(),
                frame.1,
                rate.1
            )
        };
        let asked_text = format!("{asked} ms");
        let row = |quantity: &str, limit, unit| {
            case(
                format!("{} at {asked} ms", name(quantity)),
                &asked_text,
                gate(limit),
                unit,
            )
        };
        if *asked > 0 {
            recorder.value(
                &row("error, p50", Gate::AtMost(P50_US), "us"),
                round,
                error.p50_us,
            )?;
            recorder.value(
                &row("error, p99", Gate::AtMost(P99_US), "us"),
                round,
                error.p99_us,
            )?;
        }
        recorder.value(
            &row("early", Gate::Exactly(0.0), "frames"),
            round,
            error.early as f64,
        )?;
        recorder.value(
            &row("lost", Gate::Exactly(0.0), "frames"),
            round,
            error.lost as f64,
        )?;
        recorder.add(WanRecord::Delay(error))?;
    }
    Ok(())
}

/// Measures a system with frames of all sizes and rates, at all delays.
fn measure_all(
    recorder: &mut Recorder<'_>,
    test_bed: &mut TestBed,
    system: &mut dyn AdjustableDelay,
    round: usize,
) -> Result<(), WanBenchError> {
    for frame in FRAMES {
        for rate in RATES {
            let offer = Offer {
                frame,
                rate,
                remark: "",
            };
            measure(recorder, test_bed, system, round, offer, &DELAYS_MS)?;
        }
    }
    Ok(())
}

/// Measures all sizes, rates and delays over veth pairs, once each round.
pub(super) fn live(
    recorder: &mut Recorder<'_>,
    test_bed: &mut TestBed,
    program: &Path,
    core: usize,
) -> Result<(), WanBenchError> {
    let memory = ["--memory", "256MiB"];
    for round in 0..recorder.length.rounds {
        let polling = [&memory[..], &["--poll"]].concat();
        let mut emulator = test_bed.emulator(program, Some(core), &polling)?;
        measure_all(recorder, test_bed, &mut emulator, round)?;
        drop(emulator);
        let mut emulator = test_bed.emulator(program, Some(core), &memory)?;
        let offer = Offer {
            frame: FRAMES[0],
            rate: RATES[1],
            remark: " without --poll",
        };
        measure(recorder, test_bed, &mut emulator, round, offer, &DELAYS_MS[1..2])?;
    }
    Ok(())
}

/// Measures netem in the same test bed, if this kernel has it.
pub(super) fn netem(recorder: &mut Recorder<'_>, test_bed: &mut TestBed) -> Result<(), WanBenchError> {
    let probe = test_bed.set_qdisc(&["netem", "delay", "1ms"]);
    if let Err(error) = probe {
        test_bed.remove_bridge()?;
        let reason = format!("this kernel has no netem: {error}");
        return recorder.missing(&part("W1 netem: error, p50", "1..200 ms"), &reason);
    }
    for round in 0..recorder.length.rounds {
        measure_all(recorder, test_bed, &mut Netem, round)?;
    }
    test_bed.remove_qdisc()
}

/// Measures the error of the delay in virtual time, of the model and of the ring. The ring must not release a
/// frame one nanosecond before its release time, and must release it at that time.
pub(super) fn in_virtual_time(recorder: &mut Recorder<'_>) -> Result<(), WanBenchError> {
    for ms in DELAYS_MS {
        let mut worst = 0_u64;
        let delay = u64::from(ms) * 1_000_000;
        let mut model = Model::new(&path(&[("delay", &format!("{ms}ms"))])?, Seed::new(1), &NoSources)?;
        let mut direction = DirectionConfig {
            path: path(&[("delay", &format!("{ms}ms"))])?,
            ..DirectionConfig::default()
        };
        direction.memory = "256MiB".parse().ok();
        let plan = Plan::new(&direction, Seed::new(1), DirectionId::Forward, &NoSources)?;
        let memory = heap_memory(plan.memory_size());
        let mut halves = plan.start(memory, Time::ZERO)?;
        let (sender, receiver) = (&mut halves.sender, &mut halves.receiver);
        let mut early = 0_u64;
        let mut arrival = 0;
        for (size, _) in FRAMES {
            for (pps, _) in RATES {
                let frame = vec![0; size];
                for _ in 0..2000 {
                    arrival += u64::from(1_000_000_000 / pps);
                    for outcome in model.offer(Time::from_nanos(arrival), &frame) {
                        let at = match outcome {
                            Outcome::Released(release) => release.at.nanos(),
                            Outcome::Dropped(_) => u64::MAX,
                        };
                        worst = worst.max(at.abs_diff(arrival + delay));
                    }
                }
                // The ring is tested with one frame at a time.
                for _ in 0..200 {
                    arrival += delay + 1_000;
                    sender.offer(Time::from_nanos(arrival), 0, &frame);
                    sender.publish();
                    early += u64::from(receiver.take(Time::from_nanos(arrival + delay - 1)).is_some());
                    let taken = receiver.take(Time::from_nanos(arrival + delay));
                    let at = taken.map_or(u64::MAX, |frame| frame.release().nanos());
                    worst = worst.max(at.abs_diff(arrival + delay));
                    receiver.free();
                }
            }
        }
        let row = |quantity: &str, unit| {
            case(
                format!("W1 virtual time: {quantity} at {ms} ms"),
                format!("{ms} ms"),
                Gate::Exactly(0.0),
                unit,
            )
        };
        recorder.value(&row("largest error", "ns"), 0, worst as f64)?;
        recorder.value(&row("early", "frames"), 0, early as f64)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::recorder::RunLength;
    use super::super::test_bed;
    use super::*;
    use crate::record::{Log, Record};

    fn captured(entered: &[(u64, i64)], left: &[(u64, i64)]) -> Captured {
        let stamps = |list: &[(u64, i64)]| {
            list.iter()
                .map(|(number, nanos)| Stamp {
                    number: *number,
                    nanos: *nanos,
                })
                .collect()
        };
        Captured {
            sent: entered.len() as u64,
            entered: stamps(entered),
            left: stamps(left),
        }
    }

    #[test]
    fn transits_are_matched_by_number_after_the_warm_up_and_missing_frames_are_lost() {
        let warm = WARM_UP.as_nanos() as i64;
        let captured = captured(
            &[(0, 5), (1, 5 + warm), (2, 6 + warm), (3, 9 + warm)],
            &[(3, 20 + warm), (1, 15 + warm), (0, 10)],
        );
        let transits = transits(&captured);
        assert_eq!((transits.nanos, transits.lost), (vec![10, 11], 1));
    }

    #[test]
    fn the_error_of_a_delay_over_veth_pairs_is_measured_and_the_test_bed_is_removed() {
        let program = millrace_lab::find_program("millrace-wan").unwrap_or_default();
        if let Some(obstacle) = test_bed::obstacle(&program) {
            eprintln!("skipped: {obstacle}");
            return;
        }
        let directory = tempfile::tempdir().unwrap();
        let mut log = Log::create(&directory.path().join("wan.jsonl")).unwrap();
        let mut progress = |text: &str| eprintln!("{text}");
        let mut recorder = Recorder::new(RunLength::QUICK, &mut log, &mut progress);
        let mut test_bed = TestBed::up().unwrap();
        let mut emulator = test_bed.emulator(&program, None, &["--memory", "16MiB"]).unwrap();
        let offer = Offer {
            frame: FRAMES[0],
            rate: RATES[0],
            remark: "",
        };
        measure(&mut recorder, &mut test_bed, &mut emulator, 0, offer, &[20]).unwrap();
        drop(test_bed);
        let errors: Vec<&DelayError> = log
            .records()
            .iter()
            .filter_map(|record| match record {
                Record::Wan(record) => match record.as_ref() {
                    WanRecord::Delay(error) => Some(error),
                    _ => None,
                },
                _ => None,
            })
            .collect();
        let [baseline, delayed] = errors[..] else {
            panic!("{errors:?}")
        };
        assert_eq!((baseline.early, delayed.early), (0, 0), "{errors:?}");
        assert_eq!((baseline.lost, delayed.lost), (0, 0), "{errors:?}");
        // The bounds are loose, because tests run on busy cores. The gates apply to a machine without other
        // load.
        assert!(delayed.frames > 400 && delayed.p50_us < 5_000.0, "{delayed:?}");
        assert!(baseline.baseline_us < 10_000.0, "{baseline:?}");
    }

    #[test]
    fn the_error_is_what_remains_after_the_asked_delay_and_the_baseline() {
        let transits = Transits {
            nanos: vec![1_030_000, 1_020_000, 999_999],
            lost: 0,
        };
        let record = DelayError {
            system: String::new(),
            round: 0,
            frame: 60,
            pps: 1,
            asked_ms: 1.0,
            frames: 0,
            lost: 0,
            early: 0,
            baseline_us: 0.0,
            p50_us: 0.0,
            p99_us: 0.0,
            max_us: 0.0,
        };
        let error = error(&transits, 1_000_000, 20_000.0, record);
        assert_eq!((error.frames, error.early), (3, 1));
        assert_eq!((error.p50_us, error.max_us), (10.0, 20.001));
    }
}
