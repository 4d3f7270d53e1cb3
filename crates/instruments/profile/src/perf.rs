//! Samples with their stacks, and counters, from `perf`. Every line of its output is checked, and an error names the
//! line that is wrong.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use millrace_process::{ProcessError, is_installed, run_tool};

/// Samples per second. The number does not divide the 250 or 1000 ticks per second of the clock. Otherwise
/// functions that run at ticks of the clock would be sampled too often.
const FREQUENCY: u32 = 499;
/// The size of the stack that is copied with a sample, in bytes; outer frames beyond it are lost.
const STACK_BYTES: u32 = 8192;
/// The hardware counters.
const EVENTS: [&str; 9] = [
    "cycles",
    "instructions",
    "branch-misses",
    "L1-dcache-loads",
    "L1-dcache-load-misses",
    "LLC-load-misses",
    "dTLB-loads",
    "dTLB-load-misses",
    "iTLB-load-misses",
];

/// The error of `perf`.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum PerfError {
    /// perf is not installed.
    #[error(
        "perf is not installed. To fix it: apt-get install linux-perf (its version need not be that of the kernel)"
    )]
    Missing,
    /// perf failed.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// A line of `perf script` is neither a sample nor a frame.
    #[error("perf script, line {line}: {text:?}: expected {expected}")]
    Script {
        /// The number of the line, from 1.
        line: usize,
        /// The line.
        text: String,
        /// The expected content.
        expected: &'static str,
    },
    /// A line of `perf stat -x,` is not a counter.
    #[error("perf stat: {text:?}: expected value,unit,event and more, separated by commas")]
    Stat {
        /// The line.
        text: String,
    },
}

/// A frame of a stack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// The name of the function, or [`Frame::UNKNOWN`].
    pub symbol: String,
    /// The path of the program or library.
    pub object: String,
}

impl Frame {
    /// The name that perf prints for an unknown function.
    pub const UNKNOWN: &'static str = "[unknown]";

    /// Returns true if the function belongs to the kernel or to one of its modules.
    pub fn is_kernel(&self) -> bool {
        self.object.starts_with("[kernel")
            || self.object.starts_with("[guest.kernel")
            || self.object.ends_with(".ko")
    }

    /// Returns the name for display: the name of the function or, if it is unknown, of the file.
    pub fn name(&self) -> String {
        let symbol = strip_offset(&self.symbol);
        if symbol == Frame::UNKNOWN {
            let file = self.object.rsplit('/').next().unwrap_or_default();
            format!("[{}]", file.trim_matches(['[', ']']))
        } else {
            symbol.to_owned()
        }
    }
}

/// Returns `name` of `name+0x1f`.
fn strip_offset(symbol: &str) -> &str {
    match symbol.rsplit_once("+0x") {
        Some((name, offset)) if offset.bytes().all(|byte| byte.is_ascii_hexdigit()) => name,
        _ => symbol,
    }
}

/// A sample: the stack of a thread at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sample {
    /// The name of the thread.
    pub thread: String,
    /// The frames, the innermost first.
    pub frames: Vec<Frame>,
}

/// A hardware counter.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Counter {
    /// The name of the event in perf.
    pub event: String,
    /// The count; `None` if the machine does not have the counter.
    pub value: Option<f64>,
}

/// Returns an error if perf is not installed.
///
/// # Errors
/// [`PerfError::Missing`].
pub fn check() -> Result<(), PerfError> {
    if is_installed("perf") {
        Ok(())
    } else {
        Err(PerfError::Missing)
    }
}

/// Returns the commands that sample a process, for display.
pub fn commands(pid: i32, length: Duration, data: &Path) -> [String; 2] {
    [record(pid, length, data), script(data)].map(|command| millrace_process::command_line(&command))
}

fn record(pid: i32, length: Duration, data: &Path) -> Command {
    let mut command = Command::new("perf");
    command.args(["record", "-q", "-e", "cpu-clock", "-F", &FREQUENCY.to_string()]);
    command.args(["--call-graph", &format!("dwarf,{STACK_BYTES}")]);
    command.args(["-p", &pid.to_string(), "-o"]).arg(data);
    command.args(["--", "sleep", &length.as_secs_f64().to_string()]);
    command
}

fn script(data: &Path) -> Command {
    let mut command = Command::new("perf");
    // Inlined functions are left out: perf starts an external program for each of them, which takes minutes.
    command.args(["script", "--no-inline", "-F", "comm,tid,ip,sym,dso", "-i"]);
    command.arg(data);
    command
}

/// Samples a process for `length`.
///
/// # Errors
/// [`PerfError`].
pub fn samples(pid: i32, length: Duration, dir: &Path) -> Result<Vec<Sample>, PerfError> {
    check()?;
    let data = dir.join("perf.data");
    run_tool(&mut record(pid, length, &data))?;
    let text = run_tool(&mut script(&data))?;
    parse_script(&text)
}

/// Counts the events of a process for `length`.
///
/// # Errors
/// [`PerfError`].
pub fn counters(pid: i32, length: Duration) -> Result<Vec<Counter>, PerfError> {
    check()?;
    let mut command = Command::new("perf");
    // The counters are written to standard output, because standard error may contain other text.
    command.args(["stat", "-x", ",", "-o", "/dev/stdout", "-e", &EVENTS.join(",")]);
    command.args([
        "-p",
        &pid.to_string(),
        "--",
        "sleep",
        &length.as_secs_f64().to_string(),
    ]);
    parse_stat(&run_tool(&mut command)?)
}

/// Parses the output of `perf script -F comm,tid,ip,sym,dso`.
///
/// # Errors
/// [`PerfError::Script`].
pub fn parse_script(text: &str) -> Result<Vec<Sample>, PerfError> {
    let mut samples: Vec<Sample> = Vec::new();
    let mut open = false;
    for (index, line) in text.lines().enumerate() {
        let wrong = |expected| PerfError::Script {
            line: index + 1,
            text: line.chars().take(120).collect(),
            expected,
        };
        if line.trim().is_empty() {
            open = false;
        } else if line.starts_with('#') {
            // A line with `#` is a header of perf.
        } else if line.starts_with([' ', '\t']) && open {
            let frame = frame(line).ok_or_else(|| wrong("address, function and (file)"))?;
            if let Some(sample) = samples.last_mut() {
                sample.frames.push(frame);
            }
        } else {
            // The name of a thread may have spaces; its number does not.
            let (thread, tid) = line
                .trim()
                .rsplit_once(char::is_whitespace)
                .ok_or_else(|| wrong("the name and the number of a thread"))?;
            if tid.is_empty() || !tid.bytes().all(|byte| byte.is_ascii_digit()) {
                return Err(wrong("the name and the number of a thread"));
            }
            samples.push(Sample {
                thread: thread.trim().to_owned(),
                frames: Vec::new(),
            });
            open = true;
        }
    }
    Ok(samples)
}

/// Parses `  5fefc name with blanks (/path/of file)`.
fn frame(line: &str) -> Option<Frame> {
    let (address, rest) = line.trim().split_once(' ')?;
    if address.is_empty() || !address.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let (symbol, object) = rest.strip_suffix(')')?.rsplit_once(" (")?;
    Some(Frame {
        symbol: symbol.trim().to_owned(),
        object: object.to_owned(),
    })
}

/// Parses the output of `perf stat -x,`: value, unit, event, and fields that are not used.
///
/// # Errors
/// [`PerfError::Stat`].
pub fn parse_stat(text: &str) -> Result<Vec<Counter>, PerfError> {
    text.lines()
        .filter(|line| !line.trim().is_empty() && !line.starts_with('#'))
        .map(|line| {
            let wrong = || PerfError::Stat {
                text: line.chars().take(120).collect(),
            };
            let fields: Vec<&str> = line.split(',').collect();
            let (value, event) = (
                fields.first().ok_or_else(wrong)?,
                fields.get(2).ok_or_else(wrong)?,
            );
            let value = if value.starts_with('<') {
                // The value is `<not supported>` or `<not counted>`.
                None
            } else {
                Some(
                    value
                        .parse::<f64>()
                        .ok()
                        .filter(|value| value.is_finite())
                        .ok_or_else(wrong)?,
                )
            };
            // The suffix in `cycles:u` means that only user mode is counted.
            let event = event.split(':').next().unwrap_or_default().to_owned();
            Ok(Counter { event, value })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCRIPT: &str = "worker-0 20540 \n\
        \tffffffff821f8054 __schedule ([kernel.kallsyms])\n\
        \t           5fefc millrace_pipeline::processor::run::Run<P,E,O>::execute (/opt/my builds/millraced)\n\
        \t            443e [unknown] (/usr/lib/dpdk/librte_net_null.so.23.0)\n\
        \n\
        name with blanks  7 \n\
        \t    1447a1 memcpy+0x1f (inlined) (/usr/lib/libc.so.6)\n\n";

    #[test]
    fn samples_are_read_with_their_stacks() {
        let samples = parse_script(SCRIPT).unwrap();
        assert_eq!(samples.len(), 2);
        assert_eq!(
            (samples[0].thread.as_str(), samples[0].frames.len()),
            ("worker-0", 3)
        );
        assert!(samples[0].frames[0].is_kernel() && !samples[0].frames[1].is_kernel());
        assert_eq!(samples[0].frames[1].object, "/opt/my builds/millraced");
        assert_eq!(samples[0].frames[2].name(), "[librte_net_null.so.23.0]");
        assert_eq!(samples[1].thread, "name with blanks");
        assert_eq!(samples[1].frames[0].symbol, "memcpy+0x1f (inlined)");
        assert_eq!(strip_offset("memcpy+0x1f"), "memcpy");
        assert_eq!(strip_offset("operator+0xzz"), "operator+0xzz");
    }

    #[test]
    fn a_line_that_is_neither_sample_nor_frame_is_named_with_its_number() {
        let error = parse_script("worker-0 1 \n\tnot an address (x)\n")
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("line 2") && error.contains("address, function"),
            "{error}"
        );
        let error = parse_script("worker-0\n").unwrap_err().to_string();
        assert!(
            error.contains("line 1") && error.contains("number of a thread"),
            "{error}"
        );
        assert!(parse_script("").unwrap().is_empty());
    }

    #[test]
    fn missing_counters_differ_from_zero() {
        let text = "# started on Sat Nov 21 07:00:00 2026\n\n\
            <not supported>,,cycles,0,100.00,,\n\
            <not counted>,,L1-dcache-loads:u,0,0.00,,\n\
            905,,context-switches,528706239,100.00,,\n\
            0,,page-faults,528706239,100.00,,\n";
        let counters = parse_stat(text).unwrap();
        assert_eq!(counters.len(), 4);
        assert_eq!((counters[0].event.as_str(), counters[0].value), ("cycles", None));
        assert_eq!(
            (counters[1].event.as_str(), counters[1].value),
            ("L1-dcache-loads", None)
        );
        assert_eq!((counters[2].value, counters[3].value), (Some(905.0), Some(0.0)));
        let error = parse_stat("many,,cycles\n").unwrap_err().to_string();
        assert!(error.contains("many,,cycles"), "{error}");
        assert!(parse_stat("5\n").is_err());
    }

    #[test]
    fn no_text_makes_the_readers_panic() {
        for end in 0..SCRIPT.len() {
            let _ = parse_script(&SCRIPT[..end]);
            let _ = parse_stat(&SCRIPT[..end]);
            let _ = parse_script(&SCRIPT[end..]);
        }
    }
}
