//! What `perf` says: samples with their stacks, and counters. It is foreign text: lines that are neither
//! are named.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use millrace_process::{ProcessError, in_path, tool};

/// Samples a second: no divisor of the clock's 250 or 1000, so that what happens with the clock is not
/// seen more often than the rest.
const FREQUENCY: u32 = 499;
/// Size of stack that are kept with a sample in bytes; deeper frames are lost.
const STACK_BYTES: u32 = 8192;
/// The hardware counters that are asked for.
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

/// Why perf gives no answer.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum PerfError {
    /// It is not there.
    #[error(
        "perf is not installed. To fix it: apt-get install linux-perf (one of another kernel's version serves)"
    )]
    Missing,
    /// It fails.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// A line of `perf script` that is none.
    #[error("perf script, line {line}: {text:?}: expected {expected}")]
    Script {
        /// Which line, from 1.
        line: usize,
        /// What it says.
        text: String,
        /// What should be there.
        expected: &'static str,
    },
    /// A line of `perf stat -x,` that is none.
    #[error("perf stat: {text:?}: expected value,unit,event and more, separated by commas")]
    Stat {
        /// What it says.
        text: String,
    },
}

/// A function on a stack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// Its name, or [`Frame::UNKNOWN`].
    pub symbol: String,
    /// The file that it is in.
    pub object: String,
}

impl Frame {
    /// What perf calls a function whose name it does not know.
    pub const UNKNOWN: &'static str = "[unknown]";

    /// Returns true if it is the kernel's, or a module's.
    pub fn is_kernel(&self) -> bool {
        self.object.starts_with("[kernel")
            || self.object.starts_with("[guest.kernel")
            || self.object.ends_with(".ko")
    }

    /// The name for people: that of the file stands for one that is not known.
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

/// `name+0x1f` without what follows the plus.
fn strip_offset(symbol: &str) -> &str {
    match symbol.rsplit_once("+0x") {
        Some((name, offset)) if offset.bytes().all(|byte| byte.is_ascii_hexdigit()) => name,
        _ => symbol,
    }
}

/// A moment, and what ran.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sample {
    /// The thread's name.
    pub thread: String,
    /// The innermost function first.
    pub frames: Vec<Frame>,
}

/// A counter of the processor.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Counter {
    /// Its name, as perf calls it.
    pub event: String,
    /// What it counted; `None`: this machine does not have it.
    pub value: Option<f64>,
}

/// Whether perf can be asked at all.
///
/// # Errors
/// [`PerfError::Missing`].
pub fn check() -> Result<(), PerfError> {
    if in_path("perf") {
        Ok(())
    } else {
        Err(PerfError::Missing)
    }
}

/// Returns the commands that take the samples of a process, for a person.
pub fn commands(pid: i32, length: Duration, data: &Path) -> [String; 2] {
    [record(pid, length, data), script(data)].map(|command| millrace_process::shown(&command))
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
    // Without inlined functions: perf asks an external program for each of them, which takes minutes.
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
    tool(&mut record(pid, length, &data))?;
    let text = tool(&mut script(&data))?;
    parse_script(&text)
}

/// Counts the events of a process for `length`.
///
/// # Errors
/// [`PerfError`].
pub fn counters(pid: i32, length: Duration) -> Result<Vec<Counter>, PerfError> {
    check()?;
    let mut command = Command::new("perf");
    // What is counted goes to standard error, unless a file is named: there it is alone.
    command.args(["stat", "-x", ",", "-o", "/dev/stdout", "-e", &EVENTS.join(",")]);
    command.args([
        "-p",
        &pid.to_string(),
        "--",
        "sleep",
        &length.as_secs_f64().to_string(),
    ]);
    parse_stat(&tool(&mut command)?)
}

/// Reads what `perf script -F comm,tid,ip,sym,dso` writes.
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
            // The header that perf writes when it is asked for more.
        } else if line.starts_with([' ', '\t']) && open {
            let frame = frame(line).ok_or_else(|| wrong("address, function and (file)"))?;
            if let Some(sample) = samples.last_mut() {
                sample.frames.push(frame);
            }
        } else {
            // Names of threads may have blanks; the number does not.
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

/// `  5fefc name with blanks (/path/of file)`.
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

/// Reads what `perf stat -x,` writes: value, unit, event, and more that does not matter here.
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
                // <not supported>, <not counted>
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
            // cycles:u, where only the program's own are counted
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
    fn a_line_that_is_neither_is_named_with_its_number() {
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
    fn counters_that_the_machine_does_not_have_are_told_from_zero() {
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
