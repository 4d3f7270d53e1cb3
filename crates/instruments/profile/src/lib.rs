//! Where a switch's time goes (E6 of the published experiments): by function and by stage of a packet's way,
//! context switches and page faults, and the processor's counters where the machine has them.
//!
//! Two windows follow each other: in the first, the kernel and the processor count, which costs nothing; in
//! the second, `perf` looks 499 times a second at what runs. What a machine does not have is recorded as
//! not available, never as zero.

#![forbid(unsafe_code)]

pub mod counts;
pub mod perf;
pub mod simulated;
mod stage;
mod text;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use thiserror::Error;

pub use counts::Counts;
pub use perf::Counter;
pub use stage::Stage;
pub use text::text;

use millrace_process::{ProcessError, pause};
use perf::{Frame, PerfError, Sample};

/// How many functions are kept.
const FUNCTIONS_MAX: usize = 40;
/// How many different stacks are kept: the flame graph draws no narrower ones.
const STACKS_MAX: usize = 600;

/// What to do instead where counters cannot be read.
const NO_COUNTERS: &str = "the processor's counters are not available here: a virtual machine often has none; \
    `millrace profile --simulate --case NAME` has cache, TLB and branch misses that are simulated";

/// What was found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Profile {
    /// The system.
    pub system: String,
    /// What it was doing: `lan`, `one-rule`, `pid 4711`.
    pub load: String,
    /// How long the counters were watched, seconds.
    pub seconds: f64,
    /// Packets that the switch forwarded meanwhile, if it is known.
    pub packets: Option<u64>,
    /// What the kernel counted.
    pub counts: Counts,
    /// What the processor counted.
    pub counters: Vec<Counter>,
    /// The number of samples.
    pub samples: usize,
    /// Shares of the samples, in the order of a packet's way.
    pub stages: Vec<Share>,
    /// The functions with the most samples.
    pub functions: Vec<Function>,
    /// The stacks with the most samples, folded: `caller;callee`.
    pub stacks: Vec<Stack>,
    /// What is not there, and why.
    pub notes: Vec<String>,
    /// The commands that repeat it.
    pub commands: Vec<String>,
}

/// A share of the samples.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Share {
    /// Of this stage.
    pub stage: String,
    /// 0 to 1.
    pub share: f64,
}

/// A function's own samples, without those of what it calls.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Function {
    /// Its name.
    pub function: String,
    /// The file that it is in.
    pub object: String,
    /// The stage of most of its samples.
    pub stage: String,
    /// 0 to 1.
    pub share: f64,
}

/// A stack and how often it was seen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stack {
    /// `thread;caller;callee`.
    pub frames: String,
    /// In how many samples.
    pub count: u64,
}

/// Why there is no profile.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ProfileError {
    /// No process has this number.
    #[error("there is no process {0}: `pidof millraced` says which there are")]
    NoProcess(i32),
    /// A program fails, or the person at the keyboard wants to stop.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// A file cannot be written.
    #[error("{}: {source}", .path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
}

/// What is looked at.
pub struct Target<'a> {
    /// The system's name.
    pub system: &'a str,
    /// What it is doing.
    pub load: &'a str,
    /// Its process; a switch in the kernel has none, and only the machine's counts are taken.
    pub pid: Option<i32>,
    /// How many packets it has forwarded up to now, if that can be asked.
    pub packets: &'a dyn Fn() -> Option<u64>,
}

/// Watches a process for twice `length`: counters, then samples.
///
/// # Errors
/// [`ProfileError`]. Without perf there are no samples, and a note says so.
pub fn measure(target: &Target<'_>, length: Duration) -> Result<Profile, ProfileError> {
    if let Some(pid) = target.pid
        && !Path::new(&format!("/proc/{pid}/stat")).exists()
    {
        return Err(ProfileError::NoProcess(pid));
    }
    let mut notes = Vec::new();
    let (before, packets, start) = (Counts::now(target.pid), (target.packets)(), Instant::now());
    let counters = match target.pid.map(|pid| perf::counters(pid, length)) {
        Some(Ok(counters)) => counters,
        Some(Err(error)) => {
            // The process and the machine are watched all the same.
            notes.push(error.to_string());
            notes.push(NO_COUNTERS.to_owned());
            pause(length.saturating_sub(start.elapsed()))?;
            Vec::new()
        }
        None => {
            pause(length)?;
            Vec::new()
        }
    };
    let counts = Counts::now(target.pid).since(before);
    let seconds = start.elapsed().as_secs_f64();
    let packets = packets
        .zip((target.packets)())
        .map(|(before, after)| after.saturating_sub(before));
    if counters.iter().any(|counter| counter.value.is_none()) {
        notes.push(NO_COUNTERS.to_owned());
    }
    let scratch = tempfile::Builder::new().prefix("millrace-profile.").tempdir();
    let dir = scratch.map_err(|source| ProfileError::Write {
        path: PathBuf::from("/tmp"),
        source,
    })?;
    let samples = match target.pid.map(|pid| perf::samples(pid, length, dir.path())) {
        Some(Ok(samples)) => samples,
        Some(Err(PerfError::Process(error @ ProcessError::Interrupted))) => return Err(error.into()),
        Some(Err(error)) => {
            notes.push(error.to_string());
            Vec::new()
        }
        None => {
            notes.push(
                "it forwards in the kernel, in other programs' time: there is no process to sample"
                    .to_owned(),
            );
            Vec::new()
        }
    };
    let commands = target
        .pid
        .map(|pid| perf::commands(pid, length, Path::new("perf.data")).to_vec())
        .unwrap_or_default();
    notes.dedup();
    Ok(Profile {
        system: target.system.to_owned(),
        load: target.load.to_owned(),
        seconds,
        packets,
        counts,
        counters,
        samples: samples.len(),
        stages: stages(&samples),
        functions: functions(&samples),
        stacks: stacks(&samples),
        notes,
        commands,
    })
}

impl Profile {
    /// Something for each million packets.
    pub fn per_million_packets(&self, count: u64) -> Option<f64> {
        let packets = self.packets.filter(|packets| *packets > 0)?;
        Some(count as f64 * 1e6 / packets as f64)
    }

    /// What a counter says, if the machine has it.
    pub fn counter(&self, event: &str) -> Option<f64> {
        self.counters.iter().find(|counter| counter.event == event)?.value
    }

    /// Cycles for each instruction.
    pub fn cycles_per_instruction(&self) -> Option<f64> {
        Some(self.counter("cycles")? / self.counter("instructions").filter(|count| *count > 0.0)?)
    }

    /// Stacks as the tools for flame graphs read them, one a line.
    pub fn folded(&self) -> String {
        let line = |stack: &Stack| format!("{} {}\n", stack.frames, stack.count);
        self.stacks.iter().map(line).collect()
    }
}

fn stages(samples: &[Sample]) -> Vec<Share> {
    let mut counts: BTreeMap<Stage, usize> = BTreeMap::new();
    for sample in samples {
        *counts.entry(stage::stage(&sample.frames)).or_default() += 1;
    }
    counts
        .into_iter()
        .map(|(stage, count)| Share {
            stage: stage.to_string(),
            share: count as f64 / samples.len() as f64,
        })
        .collect()
}

fn functions(samples: &[Sample]) -> Vec<Function> {
    let mut counts: BTreeMap<(String, &str), BTreeMap<Stage, usize>> = BTreeMap::new();
    for sample in samples {
        if let Some(leaf) = sample.frames.first() {
            let stages = counts.entry((leaf.name(), &leaf.object)).or_default();
            *stages.entry(stage::stage(&sample.frames)).or_default() += 1;
        }
    }
    let mut functions: Vec<Function> = counts
        .into_iter()
        .map(|((function, object), stages)| Function {
            function,
            object: object.to_owned(),
            share: stages.values().sum::<usize>() as f64 / samples.len() as f64,
            stage: stages
                .into_iter()
                .max_by_key(|(_, count)| *count)
                .map_or_else(String::new, |(stage, _)| stage.to_string()),
        })
        .collect();
    functions.sort_by(|a, b| b.share.total_cmp(&a.share).then(a.function.cmp(&b.function)));
    functions.truncate(FUNCTIONS_MAX);
    functions
}

/// Returns true if a frame is of how a thread begins: below the first that is not, nothing tells anything. Where a
/// stack was deeper than what is kept of it, its outermost frame has no name.
fn is_start(frame: &Frame) -> bool {
    const STARTS: [&str; 5] = [
        "clone3",
        "start_thread",
        "thread_start",
        "call_once",
        "__rust_begin_short_backtrace",
    ];
    frame.symbol == Frame::UNKNOWN && !frame.object.contains('/')
        || STARTS.iter().any(|start| frame.symbol.contains(start))
}

fn stacks(samples: &[Sample]) -> Vec<Stack> {
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    for sample in samples {
        // Semicolons separate, and the last blank is before the count.
        let plain = |frame: &Frame| frame.name().replace(';', ":");
        let mut names = vec![sample.thread.replace(';', ":")];
        names.extend(
            sample
                .frames
                .iter()
                .rev()
                .skip_while(|frame| is_start(frame))
                .map(plain),
        );
        *counts.entry(names.join(";")).or_default() += 1;
    }
    let mut stacks: Vec<Stack> = counts
        .into_iter()
        .map(|(frames, count)| Stack { frames, count })
        .collect();
    stacks.sort_by(|a, b| b.count.cmp(&a.count).then(a.frames.cmp(&b.frames)));
    stacks.truncate(STACKS_MAX);
    stacks
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples() -> Vec<Sample> {
        let text = "worker-0 1 \n\t 1 <Rx as RxQueue>::rx_burst (/m)\n\t 2 main;x (/m)\n\n\
            worker-0 1 \n\t 1 <Rx as RxQueue>::rx_burst (/m)\n\t 2 main;x (/m)\n\n\
            worker-0 1 \n\t 3 millrace_flow::extract::run (/m)\n\n\
            tokio-1 2 \n\t 4 tokio::park (/m)\n\n";
        perf::parse_script(text).unwrap()
    }

    #[test]
    fn samples_become_shares_of_stages_in_the_order_of_a_packets_way() {
        let stages = stages(&samples());
        let shares: Vec<(&str, f64)> = stages
            .iter()
            .map(|share| (share.stage.as_str(), share.share))
            .collect();
        assert_eq!(shares, [("receive", 0.5), ("parse", 0.25), ("control", 0.25)]);
    }

    #[test]
    fn stacks_are_folded_from_the_outside_and_the_commonest_come_first() {
        let profile = Profile {
            system: "millrace".to_owned(),
            load: "pid 1".to_owned(),
            seconds: 1.0,
            packets: Some(2_000_000),
            counts: Counts::default(),
            counters: vec![
                Counter {
                    event: "cycles".to_owned(),
                    value: Some(8.0),
                },
                Counter {
                    event: "instructions".to_owned(),
                    value: Some(4.0),
                },
                Counter {
                    event: "dTLB-loads".to_owned(),
                    value: None,
                },
            ],
            samples: 4,
            stages: Vec::new(),
            functions: functions(&samples()),
            stacks: stacks(&samples()),
            notes: Vec::new(),
            commands: Vec::new(),
        };
        assert!(
            profile
                .folded()
                .starts_with("worker-0;main:x;<Rx as RxQueue>::rx_burst 2\n"),
            "{}",
            profile.folded()
        );
        assert_eq!(profile.functions[0].function, "<Rx as RxQueue>::rx_burst");
        assert_eq!(profile.functions[0].stage, "receive");
        assert_eq!(profile.per_million_packets(10), Some(5.0));
        assert_eq!(
            (profile.cycles_per_instruction(), profile.counter("dTLB-loads")),
            (Some(2.0), None)
        );
    }

    #[test]
    fn a_process_that_is_not_there_is_named() {
        let target = Target {
            system: "x",
            load: "x",
            pid: Some(i32::MAX),
            packets: &|| None,
        };
        let error = measure(&target, Duration::from_millis(1))
            .unwrap_err()
            .to_string();
        assert!(error.contains("no process 2147483647"), "{error}");
    }
}
