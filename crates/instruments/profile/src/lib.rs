//! Profiles of a switch (E6 in docs/gates.md): its time by function and by stage of the packet
//! path, with context switches, page faults, and the hardware counters of the machine.
//!
//! A profile has two windows in sequence. In the first, the kernel and the processor count events, which costs
//! nothing. In the second, `perf` takes 499 samples per second. A counter that the machine does not have is recorded
//! as not available, never as zero.

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

/// The number of functions that are kept.
const FUNCTIONS_MAX: usize = 40;
/// The number of different stacks that are kept; the flame graph does not draw rarer ones.
const STACKS_MAX: usize = 600;

/// The note on missing counters.
const NO_COUNTERS: &str = "the processor's counters are not available here: a virtual machine often has none; \
    `millrace profile --simulate --case NAME` has cache, TLB and branch misses that are simulated";

/// The profile of a system.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Profile {
    /// The name of the system.
    pub system: String,
    /// The load of the system: `lan`, `one-rule`, `pid 4711`.
    pub load: String,
    /// The duration of the first window in seconds.
    pub seconds: f64,
    /// The packets that the switch forwarded in the first window, if the number is known.
    pub packets: Option<u64>,
    /// The counters of the kernel.
    pub counts: Counts,
    /// The hardware counters.
    pub counters: Vec<Counter>,
    /// The seconds in which the hardware counters counted, a part of the first window: perf starts before and ends
    /// after it. `None` in profiles of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counted_s: Option<f64>,
    /// The number of samples.
    pub samples: usize,
    /// The shares of the samples by stage, in the order of the packet path.
    pub stages: Vec<Share>,
    /// The functions with the most samples.
    pub functions: Vec<Function>,
    /// The stacks with the most samples, folded: `caller;callee`.
    pub stacks: Vec<Stack>,
    /// Notes on missing parts, with the reasons.
    pub notes: Vec<String>,
    /// The commands that repeat the profile.
    pub commands: Vec<String>,
}

/// The share of a stage in the samples.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Share {
    /// The name of the stage.
    pub stage: String,
    /// The share, 0 to 1.
    pub share: f64,
}

/// The share of a function in the samples, without the functions that it calls.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Function {
    /// The name of the function.
    pub function: String,
    /// The path of the program or library.
    pub object: String,
    /// The stage of most of its samples.
    pub stage: String,
    /// The share, 0 to 1.
    pub share: f64,
}

/// A stack and the number of its samples.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stack {
    /// The frames: `thread;caller;callee`.
    pub frames: String,
    /// The number of samples.
    pub count: u64,
}

/// An error that prevents a profile.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ProfileError {
    /// No process has this identifier.
    #[error("there is no process {0}: `pidof millraced` prints those of millraced")]
    NoProcess(i32),
    /// A program failed, or SIGINT was received.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// A file cannot be written.
    #[error("{}: {source}", .path.display())]
    Write {
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
}

/// The system that is profiled.
pub struct Target<'a> {
    /// The name of the system.
    pub system: &'a str,
    /// The load of the system.
    pub load: &'a str,
    /// The process of the system; `None` for a switch in the kernel, for which only the machine's counts are
    /// recorded.
    pub pid: Option<i32>,
    /// Returns the number of packets that the system has forwarded, if it is known.
    pub packets: &'a dyn Fn() -> Option<u64>,
}

/// Profiles a system for twice `length`: first counters, then samples.
///
/// # Errors
/// [`ProfileError`]. Without perf there are no samples, and a note says why.
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
        Some(Err(PerfError::Process(error @ ProcessError::Interrupted))) => return Err(error.into()),
        Some(Err(error)) => {
            // The counters of the kernel are still read over the same window.
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
            notes.push("it forwards in the kernel: there is no process to sample".to_owned());
            Vec::new()
        }
    };
    // SIGTERM does not reach perf.
    pause(Duration::ZERO)?;
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
        counted_s: Some(length.as_secs_f64()),
        samples: samples.len(),
        stages: stages(&samples),
        functions: functions(&samples),
        stacks: stacks(&samples),
        notes,
        commands,
    })
}

impl Profile {
    /// Returns a count per million packets; `None` if the number of packets is not known.
    pub fn per_million_packets(&self, count: u64) -> Option<f64> {
        let packets = self.packets.filter(|packets| *packets > 0)?;
        Some(count as f64 * 1e6 / packets as f64)
    }

    /// Returns the value of a hardware counter per packet; `None` if the number of packets is not known. Packets are
    /// counted in the whole first window, and taken to be evenly spread over it.
    pub fn per_packet(&self, value: f64) -> Option<f64> {
        let packets = self.packets.filter(|packets| *packets > 0)? as f64;
        let share = self.counted_s.map_or(1.0, |counted| counted / self.seconds);
        Some(value / (packets * share))
    }

    /// Returns the value of a hardware counter; `None` if the machine does not have it.
    pub fn counter(&self, event: &str) -> Option<f64> {
        self.counters.iter().find(|counter| counter.event == event)?.value
    }

    /// Returns the cycles per instruction.
    pub fn cycles_per_instruction(&self) -> Option<f64> {
        Some(self.counter("cycles")? / self.counter("instructions").filter(|count| *count > 0.0)?)
    }

    /// Returns the stacks in the folded format of flame graph tools, one per line.
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

/// Returns the functions with the most samples.
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

/// Returns true if the frame belongs to the start of a thread. Such frames are left out at the outer end of a
/// stack. The outermost frame has no name if the stack is deeper than the part that perf copies.
fn is_thread_start(frame: &Frame) -> bool {
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

/// Returns the folded stacks with the most samples.
fn stacks(samples: &[Sample]) -> Vec<Stack> {
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    for sample in samples {
        // The folded format separates frames by semicolons, and the count by the last space.
        let plain = |frame: &Frame| frame.name().replace(';', ":");
        let mut names = vec![sample.thread.replace(';', ":")];
        names.extend(
            sample
                .frames
                .iter()
                .rev()
                .skip_while(|frame| is_thread_start(frame))
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
            counted_s: None,
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
    fn a_counter_is_divided_by_the_packets_of_its_part_of_the_window() {
        let line = r#"{"system":"millrace","load":"pid 1","seconds":1.25,"packets":1000,"counts":{"voluntary":0,
            "involuntary":0,"machine":0,"minor_faults":0,"major_faults":0,"cpu_s":0.0},"counters":[],"samples":0,
            "stages":[],"functions":[],"stacks":[],"notes":[],"commands":[]}"#;
        let mut profile: Profile = serde_json::from_str(line).unwrap();
        assert_eq!((profile.counted_s, profile.per_packet(4000.0)), (None, Some(4.0)));
        profile.counted_s = Some(1.0);
        assert_eq!(profile.per_packet(4000.0), Some(5.0));
        profile.counters = vec![Counter {
            event: "cycles".to_owned(),
            value: Some(4000.0),
        }];
        assert!(text(&[profile]).contains("cycles: 4000, 5.00 a packet"));
    }

    #[test]
    fn the_error_of_a_missing_process_names_it() {
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
