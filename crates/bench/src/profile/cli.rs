//! `millrace profile`: the arguments, and what is printed.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::Args;
use millrace_api::client::Client;

use super::{Profile, ProfileError, Target, forward, measure, text};
use crate::case::Case;
use crate::cli::{case_named, peer};
use crate::lan::{self, System};
use crate::machine::Machine;
use crate::peer::Peer;
use crate::process::{beside, pause};
use crate::record::{Log, Record};
use crate::report::plot::flame::flame;
use crate::run::{Effort, Run};

/// See where a switch's time goes: by stage and function, with context switches and the processor's counters.
///
/// With PID, a running switch is watched. With --case, each system is started with the entries and packets of
/// that case of `bench forward`. Without either, each is started between two hosts that send one TCP stream
/// (as `bench lan` does): the published comparison of architecture counters (E6). Needs root; perf for
/// functions and stages (Debian: linux-perf). Counters that the machine does not have are said to be not
/// available.
#[derive(Debug, Clone, Args)]
#[command(after_help = "Examples:\n  \
    millrace profile $(pidof millraced)\n  \
    millrace profile --case exact-10k\n  \
    millrace profile --system millrace --system ovs-dpdk --seconds 10")]
pub struct Command {
    /// The process to watch; a running millraced is asked for its packets over --api
    #[arg(value_name = "PID", value_parser = clap::value_parser!(i32).range(1..), conflicts_with_all = ["systems", "case"])]
    pid: Option<i32>,
    /// The case of `bench forward` in which systems are watched
    #[arg(long, value_name = "NAME", value_parser = case_named)]
    case: Option<&'static Case>,
    /// Only this system; may be given several times. linux-bridge and ovs need hosts that send; testpmd-io
    /// and ovs-dpdk-tuned need a case
    #[arg(long = "system", value_name = "NAME", value_parser = clap::builder::PossibleValuesParser::new(SYSTEMS))]
    systems: Vec<String>,
    /// How long to count, and then again to sample
    #[arg(long, value_name = "SECONDS", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=600))]
    seconds: u64,
    /// Where results go: records, folded stacks and flame graphs, named profile-LOAD and flame-SYSTEM-LOAD
    #[arg(long, value_name = "DIR", default_value = "out/bench")]
    out: PathBuf,
    /// The daemon of Millrace to start; without it, the one beside this program
    #[arg(long, value_name = "FILE")]
    millraced: Option<PathBuf>,
}

/// A system, and its profile or why there is none.
type Outcome = (String, Result<Profile, String>);

/// The nice level of systems in a case, as in `bench forward`.
const NICE: i32 = -20;
/// All systems of both kinds.
const SYSTEMS: [&str; 6] = [
    "testpmd-io",
    "millrace",
    "linux-bridge",
    "ovs",
    "ovs-dpdk",
    "ovs-dpdk-tuned",
];
/// Those that are watched in a case unless others are named.
const IN_A_CASE: [&str; 3] = ["testpmd-io", "millrace", "ovs-dpdk"];

fn failed(path: &Path) -> impl FnOnce(io::Error) -> ProfileError + use<> {
    let path = path.to_owned();
    move |source| ProfileError::Write { path, source }
}

impl Command {
    /// Does it, and prints the result; `api` is where a running millraced answers.
    ///
    /// # Errors
    /// [`ProfileError`]. A system that cannot be started is none: it is told, and the others follow.
    pub fn run(&self, api: &str, json: bool) -> Result<(), ProfileError> {
        crate::interrupt::watch();
        fs::create_dir_all(&self.out).map_err(failed(&self.out))?;
        let length = Duration::from_secs(self.seconds);
        let (load, outcomes) = match (self.pid, self.case) {
            (Some(pid), _) => {
                let profile = attached(pid, api, length)?;
                ("pid", vec![(profile.system.clone(), Ok(profile))])
            }
            (None, Some(case)) => (case.name, self.in_case(case, length)?),
            (None, None) => ("lan", self.between_hosts(length)?),
        };
        let experiment = format!("profile-{load}");
        let path = self.out.join(format!("{experiment}.jsonl"));
        let mut log = Log::create(&path).map_err(failed(&path))?;
        let mut add = |record: Record| log.add(record).map_err(failed(&path));
        add(introduction(&experiment))?;
        let mut profiles = Vec::new();
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
                        reason,
                    })?;
                }
            }
        }
        let text = if json {
            format!("{:#}\n", serde_json::json!(profiles))
        } else {
            text(&profiles)
        };
        let out = io::stdout().write_all(text.as_bytes());
        out.map_err(failed(Path::new("standard output")))
    }

    fn wants(&self, system: &str) -> bool {
        self.systems.is_empty() || self.systems.iter().any(|wanted| wanted == system)
    }

    /// Each system in a case of `bench forward`.
    fn in_case(&self, case: &'static Case, length: Duration) -> Result<Vec<Outcome>, ProfileError> {
        let millraced = self
            .millraced
            .clone()
            .unwrap_or_else(|| beside("millraced", "MILLRACED"));
        let peers: Vec<Box<dyn Peer>> = SYSTEMS
            .into_iter()
            .filter(|name| self.wants(name) && (!self.systems.is_empty() || IN_A_CASE.contains(name)))
            .filter_map(peer)
            .collect();
        let mut tell = |text: &str| eprintln!("{text}");
        let mut run = Run::new(Effort::QUICK, millraced, NICE, &self.out, &mut tell)?;
        let outcomes = forward::profiles(&mut run, case, &peers, length)?;
        Ok(outcomes
            .into_iter()
            .map(|(system, outcome)| (system.to_owned(), outcome))
            .collect())
    }

    /// Each system of its own between two hosts.
    fn between_hosts(&self, length: Duration) -> Result<Vec<Outcome>, ProfileError> {
        let mut outcomes = Vec::new();
        for system in System::ALL.into_iter().filter(|system| self.wants(system.name())) {
            let name = system.name().to_owned();
            eprintln!("{name}: one TCP stream between two hosts");
            match self.on_the_way(system, length) {
                Ok(profile) => outcomes.push((name, Ok(profile))),
                Err(ProfileError::Lan(error)) => {
                    // An interrupt reaches iperf3, too, which then fails.
                    pause(Duration::ZERO)?;
                    outcomes.push((name, Err(error.to_string())));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(outcomes)
    }

    /// Folded stacks for other tools, and a flame graph of them.
    fn write_stacks(&self, profile: &Profile, load: &str) -> Result<(), ProfileError> {
        if profile.stacks.is_empty() {
            return Ok(());
        }
        let name = format!("flame-{}-{load}", profile.system);
        let plot = flame(
            &name,
            &format!("Where the time of {} goes ({})", profile.system, profile.load),
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

    /// One system, while the hosts send.
    fn on_the_way(&self, system: System, length: Duration) -> Result<Profile, ProfileError> {
        let site = lan::Site::up(system, self.millraced.as_deref())?;
        // Both windows, what perf takes to begin and to end, and a second for TCP to find its rate.
        let transfer = length * 2 + Duration::from_secs(4);
        std::thread::scope(|scope| {
            let sending = scope.spawn(|| site.transfer(0, transfer));
            pause(Duration::from_secs(2))?;
            let packets = || site.packets().ok();
            let target = Target {
                system: system.name(),
                load: "lan",
                pid: site.forwarder(),
                packets: &packets,
            };
            let profile = measure(&target, length)?;
            // The transfer's own result is of no interest, its failure is: then nothing was forwarded.
            if let Ok(outcome) = sending.join() {
                outcome?;
            }
            Ok(profile)
        })
    }
}

fn introduction(experiment: &str) -> Record {
    let started = SystemTime::now().duration_since(UNIX_EPOCH);
    Record::Run {
        experiment: experiment.to_owned(),
        started: started.map_or(0, |since| since.as_secs()),
        quick: false,
        machine: Box::new(Machine::describe(0)),
        command: std::env::args().collect::<Vec<_>>().join(" "),
    }
}

/// A process that runs already.
fn attached(pid: i32, api: &str, length: Duration) -> Result<Profile, ProfileError> {
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
    measure(&target, length)
}

/// Packets that all ports of a switch have received.
fn received(client: &Client) -> Option<u64> {
    let mut sum = 0;
    for bridge in client.bridges().ok()? {
        let ports = client.ports(&bridge.name).ok()?;
        sum += ports.iter().map(|port| port.rx.packets).sum::<u64>();
    }
    Some(sum)
}
