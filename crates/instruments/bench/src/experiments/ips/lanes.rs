//! The rows of lanes: the sum of the rates of several functions, each on a core of its own, relative to one.
//!
//! ```text
//!  bench ─┬─▶ nf rate --wait   loads its rules ─▶ `ready` ─┐
//!         ├─▶ nf rate --wait   loads its rules ──▶ `ready` ┴─▶ a line to each ─▶ both measure
//! ```
//!
//! The time for loading 14,000 rules is longer than a measurement and differs between cores, so that lanes which
//! measured as soon as they have loaded could measure one after the other.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _, Write as _};
use std::process::{Child, ChildStdout, Command, Output, Stdio};

use millrace_process::tool_output;

use super::rows::{FRAME, LANES, lane_rows};
use super::{Experiment, IpsBenchError, Recorder, System, number, parsed, reason};
use crate::file_error::file;

impl Experiment {
    /// Measures several lanes, each on a core of its own, relative to one lane.
    pub(super) fn lanes(
        &self,
        recorder: &mut Recorder<'_>,
        round: usize,
        system: &System<'_>,
    ) -> Result<(), IpsBenchError> {
        let (cores, seconds) = (cores(), recorder.length.seconds);
        for (row, (count, _)) in lane_rows(system.name).iter().zip(LANES) {
            if cores < count {
                recorder.missing(row, &format!("this machine has {cores} cores"))?;
                continue;
            }
            match self.lanes_over_one(system, count, seconds) {
                Ok(times) => recorder.value(row, round, times)?,
                Err(error) => recorder.missing(row, &reason(error)?)?,
            }
        }
        Ok(())
    }

    /// Returns the ratio of the rate of several lanes to the rate of one lane.
    pub(super) fn lanes_over_one(
        &self,
        system: &System<'_>,
        count: usize,
        seconds: f64,
    ) -> Result<f64, IpsBenchError> {
        let cores = cores();
        let frame = ["--frame".to_owned(), FRAME.to_string()];
        let one = self.measure(system, Some(self.core), seconds, &frame)?;
        let one = number(&one, "/packets_per_second")?;
        let [name, size] = frame;
        let arguments = [name, size, "--wait".to_owned()];
        let command = |number: usize| system.command(Some((self.core + number) % cores), seconds, &arguments);
        let commands: Vec<Command> = (0..count).map(command).collect();
        let outputs = together(commands).map_err(file(system.build.program))?;
        let mut sum = 0.0;
        for (command, output) in outputs {
            sum += number(
                &parsed(system, &tool_output(&command, &output)?)?,
                "/packets_per_second",
            )?;
        }
        Ok(sum / one)
    }
}

/// Runs lanes that begin at the same time, and returns the output of each; those that did not become ready are first,
/// as the others fail only because of them.
fn together(commands: Vec<Command>) -> io::Result<Vec<(Command, Output)>> {
    let mut lanes = Vec::new();
    for mut command in commands {
        let lane = Lane::start(&mut command);
        lanes.push((command, lane));
    }
    let mut ready = Vec::new();
    for (_, lane) in &mut lanes {
        ready.push(lane.as_mut().is_ok_and(Lane::is_ready));
    }
    if ready.iter().all(|ready| *ready) {
        lanes.iter_mut().for_each(|(_, lane)| {
            // A lane that has ended meanwhile has its reason in its output.
            let _ = lane.as_mut().map(Lane::begin);
        });
    }
    // All lanes are waited for, even if one failed, so that none of them disturbs the next measurement.
    let mut outputs = Vec::new();
    for (ready, (command, lane)) in ready.into_iter().zip(lanes) {
        outputs.push((ready, command, lane.and_then(Lane::finish)));
    }
    outputs.sort_by_key(|(ready, ..)| *ready);
    let output = |(_, command, output): (bool, Command, io::Result<Output>)| Ok((command, output?));
    outputs.into_iter().map(output).collect()
}

/// A process of `millrace nf rate --wait`.
struct Lane {
    child: Child,
    output: BufReader<ChildStdout>,
    errors: File,
}

impl Lane {
    fn start(command: &mut Command) -> io::Result<Lane> {
        let errors = tempfile::tempfile()?;
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(errors.try_clone()?)
            .spawn()?;
        let output = child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
        Ok(Lane {
            child,
            output: BufReader::new(output),
            errors,
        })
    }

    /// Waits until the rules are loaded; returns false if the process ends before.
    fn is_ready(&mut self) -> bool {
        let mut line = String::new();
        self.output.read_line(&mut line).is_ok() && line.trim_end() == "ready"
    }

    fn begin(&mut self) -> io::Result<()> {
        self.child
            .stdin
            .as_mut()
            .map_or(Ok(()), |input| input.write_all(b"\n"))
    }

    /// Waits for the end. A process that has not begun ends, as its standard input does.
    fn finish(mut self) -> io::Result<Output> {
        drop(self.child.stdin.take());
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        let read = self.output.read_to_end(&mut stdout);
        let status = self.child.wait()?;
        read?;
        self.errors.rewind()?;
        self.errors.read_to_end(&mut stderr)?;
        Ok(Output {
            status,
            stdout,
            stderr,
        })
    }
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}
