//! Writes the outcomes of a path in virtual time, for statistics by other programs:
//!
//! `millrace-wan-outcomes FRAMES INTERVAL SIZE[,SIZE…] SEED [KEY=TEXT…] >FILE`
//!
//! FRAMES frames arrive at intervals of INTERVAL, such as `1us`. Their sizes (without check sequence) cycle
//! through the list. Each outcome is 40 bytes, all numbers little-endian: frame (64 bits); release, end of
//! sending on the link, and drawn delay in nanoseconds (64 bits each); drop reason (32 bits, 0: released,
//! else the number of the reason from 1); inverted bits (32 bits).

use std::io::{self, BufWriter, Write};
use std::process::ExitCode;

use millrace_types::Time;
use millrace_wan_emulator::{Interval, Outcome, Path, PathConfig, Seed};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("millrace-wan-outcomes: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &[String]) -> Result<(), Box<dyn std::error::Error>> {
    let [frames, interval, sizes, seed, settings @ ..] = arguments else {
        return Err("expected FRAMES INTERVAL SIZE[,SIZE…] SEED [KEY=TEXT…]".into());
    };
    let frames: u64 = frames.parse()?;
    let interval: Interval = interval.parse()?;
    let sizes: Vec<usize> = sizes.split(',').map(str::parse).collect::<Result<_, _>>()?;
    let mut config = PathConfig::default();
    for setting in settings {
        let (key, text) = setting
            .split_once('=')
            .ok_or_else(|| format!("`{setting}`: expected KEY=TEXT"))?;
        config.set(key, text)?;
    }
    let files = |name: &str| std::fs::read_to_string(name).map_err(|error| format!("{name}: {error}"));
    let mut path = Path::new(&config, Seed::new(seed.parse()?), &files)?;
    let mut output = BufWriter::with_capacity(1 << 20, io::stdout().lock());
    for (frame, size) in (0..frames).zip(sizes.iter().cycle()) {
        let arrival = Time::from_nanos(frame * interval.nanos());
        for outcome in path.offer_sized(arrival, *size) {
            output.write_all(&record(frame, outcome))?;
        }
    }
    output.flush()?;
    Ok(())
}

fn record(frame: u64, outcome: Outcome) -> [u8; 40] {
    let (times, reason, flips) = match outcome {
        Outcome::Dropped(reason) => ([0; 3], reason as u32 + 1, 0),
        Outcome::Released(release) => {
            let flips = release.flips.map_or(0, |flips| flips.count() as u32);
            (
                [release.at.nanos(), release.sent.nanos(), release.drawn_delay],
                0,
                flips,
            )
        }
    };
    let mut record = [0; 40];
    let mut fields = record.as_chunks_mut::<8>().0.iter_mut();
    let words = [
        frame,
        times[0],
        times[1],
        times[2],
        u64::from(reason) | u64::from(flips) << 32,
    ];
    for (field, word) in (&mut fields).zip(words) {
        *field = word.to_le_bytes();
    }
    record
}
