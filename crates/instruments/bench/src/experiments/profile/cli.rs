//! `millrace profile`: the arguments and the output.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::Args;
use millrace_api::client::Client;
use millrace_process::{interrupt, pause, program_path};
use millrace_profile::simulated::{self, Scenario, Simulated};
use millrace_profile::{Profile, ProfileError, Target, measure, text};
use millrace_report::plot::flame::flame;

use super::error::CommandError;
use super::forward;
use crate::case::{self, Case};
use crate::cli::{case_named, peer};
use crate::experiments::forward::SEED;
use crate::experiments::lan::{self, System};
use crate::machine::Machine;
use crate::peer::Peer;
use crate::record::{Log, Record};
use crate::run::{Run, RunLength};
use crate::workload::{Sizes, Workload};

/// Show the time of a switch by stage and function, with context switches and the processor's counters.
///
/// With PID, profile a running switch. With --case, start each system with the entries and packets of that case of
/// `bench forward`. Without either, start each system between two hosts that send one TCP stream (as `bench lan`
/// does): the published comparison of architecture counters (E6). Needs root; perf for functions and stages (Debian:
/// linux-perf). Counters that the machine does not have are shown as not available: --simulate has cache, TLB and
/// branch misses for each packet of Millrace, simulated by valgrind, without root.
#[derive(Debug, Clone, Args)]
#[command(after_help = "Examples:\n  \
    millrace profile $(pidof millraced)\n  \
    millrace profile --case exact-10k\n  \
    millrace profile millrace --case exact-10k\n  \
    millrace profile --system millrace --system ovs-dpdk --seconds 10\n  \
    millrace profile --simulate --case one-rule --case exact-10k --case pipeline-8")]
pub struct Command {
    /// The process to profile by its number (a running millraced reports its packets over --api), or one system by its
    /// name, as with --system
    #[arg(value_name = "PID|SYSTEM", value_parser = subject)]
    subject: Option<Subject>,
    /// The case of `bench forward` for which systems are profiled; may be given several times
    #[arg(long = "case", value_name = "NAME", value_parser = case_named)]
    cases: Vec<&'static Case>,
    /// Only this system; may be given several times. linux-bridge and ovs need hosts that send; testpmd-io and
    /// ovs-dpdk-tuned need a case
    #[arg(long = "system", value_name = "NAME", value_parser = clap::builder::PossibleValuesParser::new(SYSTEMS))]
    systems: Vec<String>,
    /// Simulate the processor: the fast path of millraced forwards the packets of each case between memory devices
    /// under valgrind; the output compares the cases. Without --case: one-rule, exact-10k, pipeline-8
    #[arg(long)]
    simulate: bool,
    /// The number of packets that a simulated run counts
    #[arg(long, value_name = "PACKETS", default_value_t = 65_536, requires = "simulate",
        value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    packets: u64,
    /// The duration of counting, and of sampling after that
    #[arg(long, value_name = "SECONDS", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=600))]
    seconds: u64,
    /// The folder for the results: records, folded stacks and flame graphs, named profile-LOAD and flame-SYSTEM-LOAD
    #[arg(long, value_name = "DIR", default_value = "out/bench")]
    out: PathBuf,
    /// The daemon of Millrace to start; without it, the one beside this program
    #[arg(long, value_name = "FILE")]
    millraced: Option<PathBuf>,
}

/// The subject of a profile.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Subject {
    /// A running process, by its number.
    Pid(i32),
    /// A system that is started.
    System(&'static str),
}

fn subject(text: &str) -> Result<Subject, String> {
    if let Ok(pid) = text.parse::<i32>()
        && pid > 0
    {
        return Ok(Subject::Pid(pid));
    }
    let system = SYSTEMS.into_iter().find(|name| *name == text);
    system.map(Subject::System).ok_or_else(|| {
        format!(
            "expected the number of a process, or one of {}",
            SYSTEMS.join(", ")
        )
    })
}

/// The name of a system with its profile, or with the reason for a missing one.
type Outcome = (String, Result<Profile, String>);

/// The cases that are simulated by default: one entry, many entries, and many tables.
const SIMULATED: [&str; 3] = ["one-rule", "exact-10k", "pipeline-8"];
/// The nice level of systems in a case, as in `bench forward`.
const NICE: i32 = -20;
/// The names of all systems.
const SYSTEMS: [&str; 6] = [
    "testpmd-io",
    "millrace",
    "linux-bridge",
    "ovs",
    "ovs-dpdk",
    "ovs-dpdk-tuned",
];
/// The systems that are profiled in a case by default.
const IN_A_CASE: [&str; 3] = ["testpmd-io", "millrace", "ovs-dpdk"];

fn failed(path: &Path) -> impl FnOnce(io::Error) -> CommandError + use<> {
    let path = path.to_owned();
    move |source| CommandError::Profile(ProfileError::Write { path, source })
}

impl Command {
    /// Runs the command and prints the result; `api` is the address of a running millraced.
    ///
    /// # Errors
    /// [`CommandError`]. A system that cannot be started is reported, and the others continue.
    pub fn run(&self, api: &str, json: bool) -> Result<(), CommandError> {
        interrupt::install_handler();
        fs::create_dir_all(&self.out).map_err(failed(&self.out))?;
        let length = Duration::from_secs(self.seconds);
        let pid = match self.subject {
            Some(Subject::Pid(pid)) => Some(pid),
            _ => None,
        };
        if let Some(pid) = pid
            && (self.simulate || !self.cases.is_empty() || !self.systems.is_empty())
        {
            return Err(CommandError::Usage(format!(
                "process {pid} runs already: expected no --case, --system or --simulate with it"
            )));
        }
        if self.simulate {
            return self.simulated(json);
        }
        let mut profiles = Vec::new();
        match pid {
            Some(pid) => {
                let profile = attached(pid, api, length)?;
                let outcome = (profile.system.clone(), Ok(profile));
                self.record_outcomes("pid", vec![outcome], &mut profiles)?;
            }
            None if self.cases.is_empty() => {
                self.record_outcomes("lan", self.between_hosts(length)?, &mut profiles)?;
            }
            None => {
                for case in &self.cases {
                    self.record_outcomes(case.name, self.in_case(case, length)?, &mut profiles)?;
                }
            }
        }
        print(json, &profiles, text)
    }

    /// Records the outcome of each system, and adds its profile to `profiles`.
    fn record_outcomes(
        &self,
        load: &str,
        outcomes: Vec<Outcome>,
        profiles: &mut Vec<Profile>,
    ) -> Result<(), CommandError> {
        let experiment = format!("profile-{load}");
        let path = self.out.join(format!("{experiment}.jsonl"));
        let mut log = Log::create(&path).map_err(failed(&path))?;
        let mut add = |record: Record| log.add(record).map_err(failed(&path));
        add(run_record(&experiment))?;
        for (system, outcome) in outcomes {
            match outcome {
                Ok(profile) => {
                    add(Record::Profile(Box::new(profile.clone())))?;
                    self.write_stacks(&profile, load)?;
                    profiles.push(profile);
                }
                Err(reason) => {
                    eprintln!("  {system}: {reason}");
                    add(Record::Failed {
                        case: experiment.clone(),
                        system,
                        quantity: None,
                        reason,
                    })?;
                }
            }
        }
        Ok(())
    }

    /// Runs Millrace in each case on a processor that valgrind simulates.
    fn simulated(&self, json: bool) -> Result<(), CommandError> {
        if let Some(other) = SYSTEMS
            .into_iter()
            .find(|name| *name != "millrace" && self.names(name))
        {
            return Err(CommandError::Usage(format!(
                "{other} cannot be simulated: expected millrace, or no name, with --simulate"
            )));
        }
        let cases = match self.cases.as_slice() {
            [] => SIMULATED.into_iter().filter_map(case::find).collect(),
            cases => cases.to_vec(),
        };
        let path = self.out.join("profile-simulated.jsonl");
        let mut log = Log::create(&path).map_err(failed(&path))?;
        log.add(run_record("profile-simulated")).map_err(failed(&path))?;
        let packets = usize::try_from(self.packets).unwrap_or(usize::MAX);
        let mut runs = Vec::new();
        for case in cases {
            eprintln!("millrace in {}, simulated", case.name);
            let run = simulate(case, &self.daemon(), packets)?;
            log.add(Record::Simulated(Box::new(run.clone())))
                .map_err(failed(&path))?;
            runs.push(run);
        }
        print(json, &runs, simulated::text)
    }

    /// Returns the path of the daemon of Millrace.
    fn daemon(&self) -> PathBuf {
        self.millraced
            .clone()
            .unwrap_or_else(|| program_path("millraced", "MILLRACED"))
    }

    /// Returns true if a system is named by either argument.
    fn names(&self, system: &str) -> bool {
        let is_named = matches!(self.subject, Some(Subject::System(name)) if name == system);
        is_named || self.systems.iter().any(|wanted| wanted == system)
    }

    /// Returns true if any system is named.
    fn names_any(&self) -> bool {
        SYSTEMS.into_iter().any(|system| self.names(system))
    }

    fn wants(&self, system: &str) -> bool {
        !self.names_any() || self.names(system)
    }

    /// Profiles each system in a case of `bench forward`.
    fn in_case(&self, case: &'static Case, length: Duration) -> Result<Vec<Outcome>, CommandError> {
        let peers: Vec<Box<dyn Peer>> = SYSTEMS
            .into_iter()
            .filter(|name| self.wants(name) && (self.names_any() || IN_A_CASE.contains(name)))
            .filter_map(peer)
            .collect();
        let mut progress = |text: &str| eprintln!("{text}");
        let mut run = Run::new(RunLength::QUICK, self.daemon(), NICE, &self.out, &mut progress)?;
        let outcomes = forward::profiles(&mut run, case, &peers, length)?;
        Ok(outcomes
            .into_iter()
            .map(|(system, outcome)| (system.to_owned(), outcome))
            .collect())
    }

    /// Profiles each system between two hosts.
    fn between_hosts(&self, length: Duration) -> Result<Vec<Outcome>, CommandError> {
        let mut outcomes = Vec::new();
        for system in System::ALL.into_iter().filter(|system| self.wants(system.name())) {
            let name = system.name().to_owned();
            eprintln!("{name}: one TCP stream between two hosts");
            match self.profile_between_hosts(system, length) {
                Ok(profile) => outcomes.push((name, Ok(profile))),
                Err(CommandError::Lan(error)) => {
                    // An interrupt also ends iperf3, whose failure must not hide it.
                    pause(Duration::ZERO)?;
                    outcomes.push((name, Err(error.to_string())));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(outcomes)
    }

    /// Writes folded stacks, and a flame graph of them.
    fn write_stacks(&self, profile: &Profile, load: &str) -> Result<(), CommandError> {
        if profile.stacks.is_empty() {
            return Ok(());
        }
        let name = format!("flame-{}-{load}", profile.system);
        let plot = flame(
            &name,
            &format!("Time of {} ({})", profile.system, profile.load),
            profile
                .stacks
                .iter()
                .map(|stack| (stack.frames.as_str(), stack.count)),
        );
        for (extension, text) in [("folded", profile.folded()), ("svg", plot.file())] {
            let path = self.out.join(format!("{name}.{extension}"));
            fs::write(&path, text).map_err(failed(&path))?;
            eprintln!("  {}", path.display());
        }
        Ok(())
    }

    /// Profiles a system while the hosts send.
    fn profile_between_hosts(&self, system: System, length: Duration) -> Result<Profile, CommandError> {
        let test_bed = lan::TestBed::up(system, self.millraced.as_deref())?;
        // The transfer covers both windows, the start and end of perf, and a second for TCP to reach its rate.
        let transfer = length * 2 + Duration::from_secs(4);
        std::thread::scope(|scope| {
            let sending = scope.spawn(|| test_bed.transfer(0, transfer));
            pause(Duration::from_secs(2))?;
            let packets = || test_bed.packets().ok();
            let target = Target {
                system: system.name(),
                load: "lan",
                pid: test_bed.forwarder(),
                packets: &packets,
            };
            let profile = measure(&target, length)?;
            // Only a failure of the transfer matters: then nothing was forwarded.
            if let Ok(outcome) = sending.join() {
                outcome?;
            }
            Ok(profile)
        })
    }
}

/// Prints the results as JSON or as text.
fn print<T: serde::Serialize>(json: bool, found: &[T], text: fn(&[T]) -> String) -> Result<(), CommandError> {
    let text = if json {
        format!("{:#}\n", serde_json::json!(found))
    } else {
        text(found)
    };
    let out = io::stdout().write_all(text.as_bytes());
    out.map_err(failed(Path::new("standard output")))
}

fn run_record(experiment: &str) -> Record {
    let started = SystemTime::now().duration_since(UNIX_EPOCH);
    Record::Run {
        experiment: experiment.to_owned(),
        started: started.map_or(0, |since| since.as_secs()),
        quick: false,
        machine: Box::new(Machine::describe(0)),
        command: std::env::args().collect::<Vec<_>>().join(" "),
    }
}

/// Profiles a process that runs already.
fn attached(pid: i32, api: &str, length: Duration) -> Result<Profile, CommandError> {
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).map_err(|_| ProfileError::NoProcess(pid))?;
    let name = name.trim();
    let system = match name {
        "millraced" => "millrace",
        other => other,
    };
    let client = (system == "millrace")
        .then(|| Client::new(api, None, None).ok())
        .flatten();
    let packets = || client.as_ref().and_then(received);
    let target = Target {
        system,
        load: &format!("pid {pid}"),
        pid: Some(pid),
        packets: &packets,
    };
    Ok(measure(&target, length)?)
}

/// Simulates Millrace in a case.
fn simulate(case: &'static Case, millraced: &Path, packets: usize) -> Result<Simulated, CommandError> {
    let scratch = tempfile::Builder::new().prefix("millrace-simulate.").tempdir();
    let scratch = scratch.map_err(failed(Path::new("/tmp")))?;
    let dir = scratch.path();
    let workload = Workload::new(case.shape, SEED).repeated(case.packets_min);
    let flows = dir.join(simulated::FLOWS);
    fs::write(&flows, workload.lines()).map_err(failed(&flows))?;
    let capture = dir.join(simulated::PACKETS);
    workload
        .write_packets(&capture, &Sizes::SMALLEST, SEED)
        .map_err(failed(&capture))?;
    let scenario = Scenario {
        case: case.name,
        title: case.title,
        dir,
        entries: workload.rules_len,
        flows: workload.headers.len(),
        shares: workload.shares,
    };
    Ok(simulated::simulate(&scenario, millraced, packets)?)
}

/// Returns the number of packets that all ports of a switch have received.
fn received(client: &Client) -> Option<u64> {
    let mut sum = 0;
    for bridge in client.bridges().ok()? {
        let ports = client.ports(&bridge.name).ok()?;
        sum += ports.iter().map(|port| port.rx.packets).sum::<u64>();
    }
    Some(sum)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        command: Command,
    }

    fn command(line: &str) -> Result<Command, String> {
        let words = std::iter::once("profile").chain(line.split_whitespace());
        Line::try_parse_from(words)
            .map(|line| line.command)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn the_argument_is_a_process_or_a_system() {
        assert_eq!(command("4711").unwrap().subject, Some(Subject::Pid(4711)));
        let named = command("ovs-dpdk --case one-rule --case exact-10k").unwrap();
        assert!(named.wants("ovs-dpdk") && !named.wants("millrace"));
        assert_eq!(named.cases.len(), 2);
        assert!(command("").unwrap().wants("millrace"));
        for wrong in ["0", "-3", "nonsense"] {
            assert!(command(&format!("-- {wrong}")).is_err(), "{wrong}");
        }
        let error = command("nonsense").unwrap_err();
        assert!(
            error.contains("number of a process, or one of testpmd-io, millrace"),
            "{error}"
        );
    }

    #[test]
    fn contradicting_arguments_are_named() {
        let dir = tempfile::tempdir().unwrap();
        let run = |line: &str| {
            let mut command = command(line).unwrap();
            command.out = dir.path().to_owned();
            command.run("http://127.0.0.1:1", false).unwrap_err().to_string()
        };
        let error = run("4711 --case one-rule");
        assert!(error.contains("process 4711 runs already"), "{error}");
        let error = run("ovs-dpdk --simulate");
        assert!(error.contains("ovs-dpdk cannot be simulated"), "{error}");
        assert!(command("--packets 5").is_err());
    }
}
