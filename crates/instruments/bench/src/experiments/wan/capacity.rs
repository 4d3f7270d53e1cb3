//! Gates W2 and W3 (docs/gates.md): frames per second through sender and receiver of the emulator on one core, and
//! resident memory.
//!
//! Frames are offered to the model, wait in the ring and are copied out when they are due, all on one core. Time is
//! virtual: it passes as fast as the core takes frames.

use std::time::Instant;

use millrace_process::{pin_current_thread, resident_memory};
use millrace_types::Time;
use millrace_wan_emulator::{DirectionConfig, DirectionId, Halves, NoSources, Plan, Seed, heap_memory};

use super::error::WanBenchError;
use super::recorder::Recorder;
use crate::gated::Gate;
use crate::gated::recorder::{Case, case};

/// The number of frames of a burst.
const BURST: u64 = 32;
/// The resident memory in bytes that a row may use in addition to the frames in flight.
const SPARE_BYTES: f64 = 64.0 * 1024.0 * 1024.0;

/// The settings of a path: keys and their values as text.
type Settings<'a> = &'a [(&'a str, &'a str)];

/// The load of a measurement.
struct Offered<'a> {
    settings: Settings<'a>,
    /// The setting `memory`; `None` for the size that rate, delay and queue need.
    memory: Option<&'a str>,
    /// The size of frames in bytes, without check sequence.
    frame: usize,
    /// The time between two arrivals in nanoseconds of virtual time.
    gap: f64,
    frames: u64,
}

/// The outcome of a measurement.
struct Passed {
    elapsed_s: f64,
    /// Frames that were dropped, by any stage or because the memory was full.
    dropped: u64,
    /// The resident memory in bytes that this process had more while the path was full than before: that of the path, without the
    /// program and its other experiments.
    resident: u64,
    /// The number of frames in flight at that time.
    in_flight: u64,
}

/// Offers and takes frames on a thread that is pinned to `core`.
fn pass(offered: &Offered<'_>, core: u32) -> Result<Passed, WanBenchError> {
    let run = || {
        let _elsewhere = pin_current_thread(core);
        pass_here(offered)
    };
    std::thread::scope(|scope| match scope.spawn(run).join() {
        Ok(result) => result,
        Err(panic) => std::panic::resume_unwind(panic),
    })
}

fn pass_here(offered: &Offered<'_>) -> Result<Passed, WanBenchError> {
    let mut config = DirectionConfig::default();
    for (key, text) in offered.settings {
        config.path.set(key, text)?;
    }
    config.memory = offered.memory.and_then(|text| text.parse().ok());
    let plan = Plan::new(&config, Seed::new(1), DirectionId::Forward, &NoSources)?;
    let own = || resident_memory(std::process::id()).unwrap_or_default();
    let before = own();
    let memory = heap_memory(plan.memory_size());
    let Halves {
        mut sender,
        mut receiver,
        controller,
        ..
    } = plan.start(memory, Time::ZERO)?;
    let frame = vec![0x5a; offered.frame];
    let mut buffer = vec![0; 2048];
    let mut now = Time::ZERO;
    let (mut resident, mut in_flight) = (0, 0);
    let bursts = offered.frames / BURST;
    // The path is full in the last sixteenth of all but the shortest runs.
    let sampled = bursts - bursts / 16;
    let begin = Instant::now();
    for burst in 0..bursts {
        for number in burst * BURST..(burst + 1) * BURST {
            now = Time::from_nanos((number as f64 * offered.gap) as u64);
            sender.offer(now, 0, &frame);
        }
        sender.publish();
        while let Some(frame) = receiver.take(now) {
            frame.copy_to(&mut buffer);
        }
        receiver.free();
        if burst == sampled {
            resident = own().saturating_sub(before);
            in_flight = receiver.in_flight();
        }
    }
    let elapsed_s = begin.elapsed().as_secs_f64();
    Ok(Passed {
        elapsed_s,
        dropped: controller.stats().dropped_in_all(),
        resident,
        in_flight,
    })
}

/// Measures row W2.
pub(super) fn rates(recorder: &mut Recorder<'_>, core: u32) -> Result<(), WanBenchError> {
    let constant = case(
        "W2 one core, 64 B, constant delay",
        "10 ms",
        Gate::AtLeast(8.0),
        "Mpps",
    );
    let jitter = case(
        "W2 one core, 64 B, jitter and reordering",
        "10 ms, 2 ms normal",
        Gate::AtLeast(4.0),
        "Mpps",
    );
    let rows: [(Case, Settings<'_>, f64); 2] = [
        (constant, &[("delay", "10ms")], 60.0),
        (
            jitter,
            &[
                ("delay", "10ms"),
                ("jitter", "2ms,normal"),
                ("order", "reordering"),
            ],
            120.0,
        ),
    ];
    for round in 0..recorder.length.rounds {
        for (row, settings, gap) in &rows {
            let offered = Offered {
                settings,
                memory: Some("256MiB"),
                frame: 60,
                gap: *gap,
                frames: recorder.length.core_frames,
            };
            let passed = pass(&offered, core)?;
            let mpps = offered.frames as f64 / passed.elapsed_s / 1e6;
            recorder.value(row, round, mpps)?;
            let lost = case(
                format!("{}: dropped", row.name),
                &row.asked,
                Gate::Exactly(0.0),
                "frames",
            );
            recorder.value(&lost, round, passed.dropped as f64)?;
        }
    }
    long_fat_path(recorder, core)
}

/// Measures 10 Gbit/s x 200 ms with frames of 1,518 bytes, offered at 99.9 % of the rate.
fn long_fat_path(recorder: &mut Recorder<'_>, core: u32) -> Result<(), WanBenchError> {
    let seconds = recorder.length.virtual_s;
    let gap = 1518.0 * 8.0 / 10.0 / 0.999;
    let offered = Offered {
        settings: &[("delay", "200ms"), ("rate", "10Gbps")],
        memory: None,
        frame: 1514,
        gap,
        frames: (seconds as f64 * 1e9 / gap) as u64,
    };
    let passed = pass(&offered, core)?;
    let asked = format!("10 Gbit/s, 200 ms, {seconds} s");
    let row = |quantity: &str, gate, unit| {
        case(
            format!("W2 one core, 1,518 B at 10 Gbit/s: {quantity}"),
            &asked,
            gate,
            unit,
        )
    };
    recorder.value(
        &row("dropped", Gate::Exactly(0.0), "frames"),
        0,
        passed.dropped as f64,
    )?;
    let faster = seconds as f64 / passed.elapsed_s;
    recorder.value(
        &row("faster than real time", Gate::AtLeast(1.0), "times"),
        0,
        faster,
    )
}

/// Measures row W3. The path and its queue are full, because the offered load exceeds the rate of the path.
pub(super) fn memory(recorder: &mut Recorder<'_>, core: u32) -> Result<(), WanBenchError> {
    let paths = [
        ("1,518 B", 1514_usize, "10Gbps", 10e9, 200, 50, 1.2),
        ("1,518 B", 1514, "1Gbps", 1e9, 100, 250, 1.2),
        ("64 B", 60, "1Gbps", 1e9, 100, 50, 1.5),
    ];
    for (name, frame, rate, bps, delay_ms, queue_ms, factor) in paths {
        let (delay, queue) = (format!("{delay_ms}ms"), format!("{queue_ms}ms"));
        let on_link = (frame + 4) as f64;
        // The load is a third above the rate, so the queue is full after three times its length in time.
        let gap = on_link * 8.0 / bps * 1e9 / (4.0 / 3.0);
        let seconds = f64::from(delay_ms + 5 * queue_ms) / 1e3 * 2.0;
        let offered = Offered {
            settings: &[("delay", &delay), ("rate", rate), ("queue", &queue)],
            memory: None,
            frame,
            gap,
            frames: (seconds * 1e9 / gap) as u64,
        };
        let passed = pass(&offered, core)?;
        let bytes = bps / 8.0 * f64::from(delay_ms + queue_ms) / 1e3;
        let most = factor * bytes + SPARE_BYTES;
        let mib = |bytes: f64| bytes / 1024.0 / 1024.0;
        let asked = format!("{rate} x ({delay_ms} + {queue_ms}) ms");
        let row = case(
            format!("W3 resident memory, {name}, {asked}"),
            &asked,
            Gate::AtMost(mib(most)),
            "MiB",
        );
        recorder.value(&row, 0, mib(passed.resident as f64))?;
        let full = case(
            format!("W3 frames of {name} on their way, {asked}"),
            &asked,
            Gate::AtLeast((bytes / on_link * 0.99).floor()),
            "frames",
        );
        recorder.value(&full, 0, passed.in_flight as f64)?;
    }
    Ok(())
}
