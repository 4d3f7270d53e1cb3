//! Compares a simulator of the RTL with the model.
//!
//! ```text
//! records SIMULATOR [--frames N] [--seed S] [--sizes ten|forty] [--keep DIR]   compares, and says where they differ first
//! records --write [--frames N] [--seed S] [--sizes ten|forty] > input          writes the records for the simulator
//! records --model < input > output                                             puts out what the simulator should
//! ```
//! The simulator reads records from its standard input and writes records to its standard output (docs/nic-interface.md).

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program for the terminal"
)]

use std::io::{Read as _, Write as _};
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};

use millrace_nic::Capabilities;
use millrace_nic::record::{Input, Output};
use millrace_nic_model::stimulus::Stimulus;
use millrace_nic_model::{Simulator, differences};

type Failure = Box<dyn std::error::Error>;

struct Options {
    simulator: Option<PathBuf>,
    write: bool,
    model: bool,
    frames: usize,
    seed: u64,
    sizes: Capabilities,
    keep: Option<PathBuf>,
}

fn options() -> Result<Options, Failure> {
    let mut options = Options {
        simulator: None,
        write: false,
        model: false,
        frames: 10_000,
        seed: 1,
        sizes: Capabilities::TEN,
        keep: None,
    };
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value = || {
            arguments
                .next()
                .ok_or(format!("{argument}: expected a value after it"))
        };
        match argument.as_str() {
            "--write" => options.write = true,
            "--model" => options.model = true,
            "--frames" => options.frames = value()?.parse()?,
            "--seed" => options.seed = value()?.parse()?,
            "--keep" => options.keep = Some(value()?.into()),
            "--sizes" => {
                options.sizes = match value()?.as_str() {
                    "ten" => Capabilities::TEN,
                    "forty" => Capabilities::FORTY,
                    other => return Err(format!("--sizes: expected ten or forty, found {other:?}").into()),
                }
            }
            path if !path.starts_with('-') => options.simulator = Some(path.into()),
            other => return Err(format!("{other}: there is no such option").into()),
        }
    }
    Ok(options)
}

fn input(options: &Options) -> Vec<Input> {
    let mut stimulus = Stimulus::new(options.seed, options.sizes);
    let mut records = stimulus.prologue();
    (0..options.frames).for_each(|_| stimulus.next(&mut records));
    records.push(Input::End);
    records
}

fn expected(options: &Options, input: &[Input]) -> Vec<Output> {
    let mut simulator = Simulator::new(options.sizes);
    let mut out = Vec::new();
    input.iter().for_each(|record| simulator.take(record, &mut out));
    out
}

fn read_all<T>(
    mut bytes: &[u8],
    parse: impl Fn(&[u8]) -> Result<Option<(T, usize)>, millrace_nic::record::RecordError>,
) -> Result<Vec<T>, Failure> {
    let mut records = Vec::new();
    while let Some((record, size)) = parse(bytes)? {
        records.push(record);
        bytes = &bytes[size..];
    }
    if bytes.is_empty() {
        Ok(records)
    } else {
        Err(format!("{} bytes after the last record", bytes.len()).into())
    }
}

fn run() -> Result<bool, Failure> {
    let options = options()?;
    if options.model {
        let mut bytes = Vec::new();
        std::io::stdin().read_to_end(&mut bytes)?;
        let mut out = Vec::new();
        let records = read_all(&bytes, Input::parse)?;
        expected(&options, &records)
            .iter()
            .for_each(|record| record.emit(&mut out));
        std::io::stdout().write_all(&out)?;
        return Ok(true);
    }
    let input = input(&options);
    let mut bytes = Vec::new();
    input.iter().for_each(|record| record.emit(&mut bytes));
    if options.write {
        std::io::stdout().write_all(&bytes)?;
        return Ok(true);
    }
    let simulator = options
        .simulator
        .as_ref()
        .ok_or("expected the path of a simulator, --write or --model")?;
    let mut child = Command::new(simulator)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut stdin = child.stdin.take().ok_or("the simulator has no standard input")?;
    let sent = bytes.clone();
    // The simulator writes while it reads, so a thread of its own feeds it.
    let feeder = std::thread::spawn(move || stdin.write_all(&sent));
    let output = child.wait_with_output()?;
    let fed = feeder.join().map_err(|_| "the feeder has panicked")?;
    let found = read_all(&output.stdout, Output::parse)?;
    let expected = expected(&options, &input);
    let differences = differences(&expected, &found);
    if let Some(folder) = options.keep.as_ref().filter(|_| !differences.is_empty()) {
        std::fs::create_dir_all(folder)?;
        std::fs::write(folder.join("input"), &bytes)?;
        std::fs::write(folder.join("output"), &output.stdout)?;
    }
    differences.iter().for_each(|difference| println!("{difference}"));
    println!(
        "{} frames, {} records in, {} out, {} expected, {} streams differ",
        options.frames,
        input.len(),
        found.len(),
        expected.len(),
        differences.len()
    );
    if !output.status.success() {
        return Err(format!("{}: {}", simulator.display(), output.status).into());
    }
    fed?;
    Ok(differences.is_empty())
}

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("records: {error}");
            ExitCode::FAILURE
        }
    }
}
